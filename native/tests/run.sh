#!/bin/bash
# Builds and runs the C tests: run.sh [plain | asan | tsan | all] [TEST ...]
#
# plain  as it ships, with gcc and with clang where it is; then with a pause put in front of the atomic operations, with
#        rings of 4, and without futexes
# asan   under the address and the undefined-behaviour sanitizer
# tsan   under the thread sanitizer
#
# FILCH_SEED repeats a run's random numbers, FILCH_SCALE is the percentage of the usual number of steps, FILCH_LIMIT the
# seconds that a test program may take.
set -u
here=$(cd "$(dirname "$0")" && pwd)
core=$here/../core
mode=${1:-plain}
shift
tests=("$@")
if [ ${#tests[@]} -eq 0 ]; then
    for file in "$here"/test_*.c; do
        file=${file##*/test_}
        tests+=("${file%.c}")
    done
fi
build=$(mktemp -d)
trap 'rm -rf -- "$build"' EXIT
passed=0 failed=0
warnings=(-std=c11 -O2 -g -Wall -Wextra -Werror)

fail() {
    echo "FAILED $*"
    failed=$((failed + 1))
}

# leg NAME COMPILER FLAGS...: builds the core once and each test with it, and runs them.
leg() {
    local name=$1 compiler=$2 file test log=$build/log status objects
    shift 2
    echo "--- $name: $compiler $*"
    objects=$build/$name
    mkdir -p "$objects/core"
    mkdir -p "$objects/tests"
    cp "$core"/*.[ch] "$objects/core/"
    cp "$here"/*.[ch] "$objects/tests/"
    if ! (
        cd "$objects/core" || exit 1
        for file in *.c ../tests/harness.c; do
            "$compiler" "${warnings[@]}" "$@" -c "$file" || exit 1
        done
    ); then
        fail "$name: does not build"
        return
    fi
    for test in "${tests[@]}"; do
        if ! "$compiler" "${warnings[@]}" "$@" "$objects/tests/test_$test.c" "$objects"/core/*.o \
            -o "$objects/$test"; then
            fail "$name: $test does not build"
            continue
        fi
        "$objects/$test" >"$log" 2>&1
        status=$?
        passed=$((passed + $(grep -c '^ok ' "$log")))
        if [ $status -ne 0 ]; then
            cat "$log"
            fail "$name: $test ended with status $status"
        else
            grep -v '^ok ' "$log"
        fi
    done
}

plain() {
    leg gcc gcc -pthread
    leg yields gcc -pthread -DFILCH_INTERPOSE
    leg small gcc -pthread -DFILCH_INTERPOSE -DFILCH_RING=4 -DFILCH_NO_FUTEX
    if command -v clang >/dev/null; then
        leg clang clang -pthread
    else
        echo "clang is not installed, so gcc alone was used"
    fi
}

asan() {
    leg asan gcc -pthread -fsanitize=address,undefined -fno-sanitize-recover=all -DFILCH_INTERPOSE
    leg asan-small gcc -pthread -fsanitize=address,undefined -fno-sanitize-recover=all -DFILCH_INTERPOSE -DFILCH_RING=4
}

tsan() {
    export TSAN_OPTIONS=${TSAN_OPTIONS:-halt_on_error=1 exitcode=66}
    leg tsan gcc -pthread -fsanitize=thread -DFILCH_INTERPOSE
    leg tsan-small gcc -pthread -fsanitize=thread -DFILCH_INTERPOSE -DFILCH_RING=4 -DFILCH_NO_FUTEX
}

case $mode in
plain | asan | tsan) "$mode" ;;
all)
    plain
    asan
    tsan
    ;;
*)
    echo "there is no $mode; choose plain, asan, tsan or all" >&2
    exit 2
    ;;
esac
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
