#!/bin/bash
# Checks the models with spin: each as it is, which must hold, and each broken twin, which must fail.
#
# check.sh [MODEL ...]
set -u
here=$(cd "$(dirname "$0")" && pwd)
for tool in spin gcc; do
    if ! command -v $tool >/dev/null; then
        echo "$tool is not installed; both are Debian packages of that name" >&2
        exit 2
    fi
done
build=$(mktemp -d)
trap 'rm -rf -- "$build"' EXIT
passed=0 failed=0

# search MODEL DEFINITION...: 0 when no error was found, 1 when one was, 2 when the search itself failed.
search() {
    local model=$1 folder=$build/run
    shift
    rm -rf "$folder"
    mkdir "$folder"
    (
        cd "$folder" || exit 2
        spin "$@" -a "$here/$model.pml" >spin.log 2>&1 || exit 2
        gcc -O1 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 pan.c -o pan || exit 2
        timeout 120 ./pan -m1000000 >pan.log 2>&1
        grep -q 'errors: 0' pan.log && ! grep -qi 'max search depth too small\|out of memory' pan.log && exit 0
        grep -q 'errors: [1-9]' pan.log && ! grep -q 'out of memory' pan.log && exit 1
        exit 2
    )
}

# expect WANTED MODEL TWIN: WANTED is 0 (holds) or 1 (fails).
expect() {
    local wanted=$1 model=$2 twin=$3 found words=("holds" "fails" "cannot be checked")
    search "$model" ${twin:+"-D$twin"}
    found=$?
    local states
    states=$(awk '/states, stored/ { print $1 }' "$build/run/pan.log" 2>/dev/null)
    if [ $found -eq "$wanted" ]; then
        passed=$((passed + 1))
        echo "ok $model ${twin:-as it is}: ${words[$found]} (${states:-?} states)"
    else
        failed=$((failed + 1))
        echo "FAILED $model ${twin:-as it is}: ${words[$found]}, though it must be that it ${words[$wanted]}"
        cat "$build/run/spin.log" "$build/run/pan.log" 2>/dev/null
    fi
}

models=("$@")
[ ${#models[@]} -gt 0 ] || models=(deque task_states sleep_wake hand_off)
for model in "${models[@]}"; do
    case $model in
    sleep_wake) twins=(NO_RECHECK NO_SUBMITTER_FENCE NO_SLEEPER_FENCE LEAVES_LATE NO_CHAIN) ;;
    deque) twins=(NO_LAG SPECULATIVE TWO_THIEVES BLIND_POP) ;;
    task_states) twins=(BLIND_END BLIND_MARK NO_SECOND_LOOK OUTSIDE) ;;
    hand_off) twins=(NO_LOOK NO_FENCE NO_STAND_DOWN STAYS_IN_EXCESS) ;;
    *)
        echo "there is no model $model" >&2
        exit 2
        ;;
    esac
    expect 0 "$model" ""
    for twin in "${twins[@]}"; do
        expect 1 "$model" "$twin"
    done
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
