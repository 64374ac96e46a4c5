#!/usr/bin/env bash
# Run CPython's own executor tests against filch.
#
#     tools/run_cpython_suite.sh [PYTHON [OPTION...]]      options as for the runner, for example -k Shutdown
#
# PYTHON must be able to import filch.  EXECUTOR and FUTURE (module:name) may point at something else.  The runner lies
# in ${FILCH_SHARED:-../shared}/cpython_suite; without it the script says so and ends with status 77.  Where an
# interpreter comes without its tests, they are fetched into ${FILCH_CI_HOME:-.ci/cache}.  Failures that are expected
# are listed in tools/cpython_suite_expected.txt.  The last line is "N passed, N failed, N skipped".
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
python=${1:-python3}
shift $(($# > 0))
extent=all
[ $# -eq 0 ] || extent=subset
runner=$(realpath -m -- "${FILCH_SHARED:-$root/../shared}")/cpython_suite
cache=$(realpath -m -- "${FILCH_CI_HOME:-$root/.ci/cache}")
export EXECUTOR=${EXECUTOR:-filch:Pool} PYTHONDONTWRITEBYTECODE=1
[ "$EXECUTOR" != filch:Pool ] || export FUTURE=${FUTURE:-filch:Future}

if [ ! -e "$runner/run_suite.py" ]; then
    echo "there is no $runner/run_suite.py"
    exit 77
fi

options=()
if ! "$python" -c 'import test.test_concurrent_futures' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    tests=$cache/cpython-tests-$version
    if [ ! -d "$tests" ]; then
        echo "fetching the tests of Python $version"
        fresh=$tests.fresh
        rm -rf -- "$fresh"
        mkdir -p "$cache"
        if ! sh "$runner/get_suite.sh" "$version" "$fresh" && [ "$(id -u)" -eq 0 ]; then
            rm -rf -- "$fresh"
            apt-get -q update
            sh "$runner/get_suite.sh" "$version" "$fresh"
        fi
        mv -- "$fresh" "$tests"
    fi
    options+=(--suite-dir "$tests")
fi

# asyncio's own tests of what it does with executors, where the interpreter has them.
! "$python" -c 'import test.test_asyncio.test_threads' 2>/dev/null || options+=(--with-asyncio)

results=$(mktemp)
trap 'rm -f -- "$results"' EXIT
# The runner's own verdict does not know the list of expected failures.
"$python" "$runner/run_suite.py" "${options[@]}" --json "$results" "$@" | sed '$d' || true
"$python" "$root/tools/cpython_suite_verdict.py" "$results" "$root/tools/cpython_suite_expected.txt" "$extent"
