#!/usr/bin/env bash
# Run the trials: small scripts, each from a bug that users of other pools reported.
#
#     tools/run_trials.sh [PYTHON [PATTERN...]]
#
# PYTHON must be able to import filch.  EXECUTOR (module:name) may point at something else.  The trials lie in
# ${FILCH_SHARED:-../shared}/trials; without them the script says so and ends with status 77.  Without patterns, all run
# that are not left out below.  The last line is "N passed, N failed, N skipped".
set -euo pipefail

# One line each: the trial, and what it waits for.
left_out="
07_backlog_bounded: bounded queues
54_unpicklable_does_not_hang: processes (a thread pool pickles nothing)
56_large_results: processes (a thread pool has no pipe)
"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
python=${1:-python3}
shift $(($# > 0))
trials=$(realpath -m -- "${FILCH_SHARED:-$root/../shared}")/trials
export EXECUTOR=${EXECUTOR:-filch:Pool} PYTHONDONTWRITEBYTECODE=1
if [ -z "${TRIAL_OPTIONS:-}" ]; then
    export TRIAL_OPTIONS='{"bounded": {"queue_capacity": 8}, "daemon": {"daemon": true}, "restart": {"on_broken": "restart"},
        "exit": {"exit_timeout": 1.0}, "report": {}, "context": {}}'
fi

if [ ! -e "$trials/run_all.py" ]; then
    echo "there is no $trials/run_all.py"
    exit 77
fi

if [ $# -eq 0 ]; then
    for file in "$trials"/[0-9][0-9]_*.py; do
        name=$(basename "$file" .py)
        reason=$(sed -n "s/^$name: //p" <<<"$left_out")
        if [ -n "$reason" ]; then
            echo "$name is left out, it waits for $reason"
        else
            set -- "$@" "/$name.py"
        fi
    done
fi
"$python" "$trials/run_all.py" -j 2 "$@"
