#!/usr/bin/env bash
# Run the Python tests over a native kernel that was built under sanitizers.
#
#     tools/sanitize.sh asan PYTHON [PYTEST_ARGUMENT...]    address and undefined behaviour; by default all of tests/
#     tools/sanitize.sh tsan [PYTEST_ARGUMENT...]           data races; by default tests/kernel
#
# asan needs gcc and a PYTHON with the test extra.  tsan takes the free-threaded Python with the thread sanitizer, which
# tools/free_threaded_python.sh --tsan builds, and some packages in ${FILCH_CI_HOME:-.ci/cache}; it takes long.
# FILCH_SANITIZE_KERNEL=pure runs over the pure kernel instead, to see what is not the native kernel's.
#
# Nothing is built in the checkout.  The last line says how many reports there were; any one that is not explained in
# tools/sanitize_suppressions.txt fails.  Without a native kernel's sources the script says so and ends with status 77.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cache=$(realpath -m -- "${FILCH_CI_HOME:-$root/.ci/cache}")
kernel=${FILCH_SANITIZE_KERNEL:-native}
# Tests that wait for something get that much longer.
export FILCH_TEST_PATIENCE=${FILCH_TEST_PATIENCE:-120}

usage() {
    sed -n '2,/^set /{s/^# \{0,1\}//;/^set /d;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
}

mode=${1:-}
case $mode in
    asan) [ $# -ge 2 ] || usage; python=$2; shift 2 ;;
    tsan) shift ;;
    *) usage ;;
esac
if [ "$kernel" = native ] && ! compgen -G "$root/native/python/*.c" >/dev/null; then
    echo "there is no native kernel to sanitize yet"
    exit 77
fi

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
reports=$work/reports
mkdir "$work/tree" "$reports"
(cd "$root" && tar -c --exclude=__pycache__ --exclude='_native.*.so' src native tests tools docs examples benchmarks setup.py pyproject.toml README.md LICENSE) |
    tar -x -C "$work/tree"
cd "$work/tree"
export PYTHONPATH=$work/tree/src FILCH_KERNEL=$kernel

# build SANITIZERS COMMAND...: build the kernel in place; COMMAND is the interpreter.  -UNDEBUG keeps the assertions.
build() {
    local sanitizers=$1
    shift
    [ "$kernel" = native ] || return 0
    FILCH_BUILD=native CC=gcc CFLAGS="-fsanitize=$sanitizers -fno-sanitize-recover=all -fno-omit-frame-pointer -g -UNDEBUG" \
        LDFLAGS="-fsanitize=$sanitizers" "$@" setup.py --quiet build_ext --inplace --force
}

asan() {
    # Undefined behaviour ends the process with a word on the error output, which pytest must not keep for itself.
    local options=(-p no:cacheprovider -q -o timeout=600 --capture=sys)
    build address,undefined "$python" || return
    # In files of their own, because a test may read what its processes print.  At its end an interpreter keeps memory
    # on purpose, so leaks are the matter of tools/leaks.py.  Python's own allocator would hide what happens in a block.
    export ASAN_OPTIONS="log_path=$reports/asan:detect_leaks=0:allocator_may_return_null=1"
    export UBSAN_OPTIONS="print_stacktrace=1"
    "$python" -c 'import sysconfig; raise SystemExit(bool(sysconfig.get_config_var("Py_GIL_DISABLED")))' &&
        export PYTHONMALLOC=malloc
    # Not here: what builds, what starts other programs, and what measures memory, of which the sanitizer takes its share.
    if [ $# -eq 0 ]; then
        set -- tests --ignore=tests/build --ignore=tests/test_benchmarks.py --ignore=tests/kernel/test_memory.py
    fi
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
        "$python" -m pytest "${options[@]}" "$@" 2>&1 | tee "$work/output"
}

tsan() {
    local sanitized packages=$cache/packages-tsan runner
    sanitized=$("$root/tools/free_threaded_python.sh" --tsan | tail -n 1)
    if [ ! -e "$packages/done" ]; then # with the ordinary interpreter, which is quick and takes the same packages
        "$("$root/tools/free_threaded_python.sh" | tail -n 1)" -m pip install -q --target "$packages" \
            'pytest>=8' 'pytest-timeout>=2.3' 'psutil>=5.9' 'hypothesis<6.156' 'setuptools>=77'
        touch "$packages/done"
    fi
    export PYTHONPATH=$PYTHONPATH:$packages PYTHON_GIL=0
    # The sanitizer's fixed memory layout and a strongly randomised address space exclude each other.
    runner=(setarch "$(uname -m)" -R "$sanitized")
    TSAN_OPTIONS="exitcode=0 report_bugs=0" build thread "${runner[@]}" || return
    export TSAN_OPTIONS="log_path=$reports/tsan exitcode=0 history_size=7 suppressions=$work/tree/tools/sanitize_suppressions.txt"
    # Not here: what measures processor time and memory, of which the sanitizer takes its share.
    [ $# -gt 0 ] || set -- tests/kernel --ignore=tests/kernel/test_memory.py \
        --deselect=tests/kernel/test_liveness.py::test_idle_engines_use_no_cpu \
        --deselect=tests/kernel/test_waiting.py::test_nested_10000_deep
    "${runner[@]}" -m pytest -p no:cacheprovider -q -o timeout=1200 "$@"
}

status=0
"$mode" "$@" || status=$?
found=$(find "$reports" -type f -size +0 | wc -l)
if [ "$found" -gt 0 ]; then
    cat "$reports"/*
fi
count=$(cat "$reports"/* "$work/output" 2>/dev/null | grep -cE '^(WARNING: ThreadSanitizer|==[0-9]+==ERROR|.*runtime error:)' || true)
echo "$count reports of $mode, the tests ended with status $status"
[ "$status" -eq 0 ] && [ "$found" -eq 0 ]
