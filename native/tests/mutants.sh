#!/bin/bash
# Tests the C tests: takes one step at a time out of the core, and some test must fail.
#
# mutants.sh [FILE]     only the mutants of core/FILE.c
#
# What is taken out is told as a sed expression; the last column says which test has to see it. A mutant is tried with
# pauses put in, with rings of 4 and without futexes, and under the thread sanitizer, until one of them fails. What no
# machine with strong ordering can show, the fences, is for native/models.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
trap 'rm -rf -- "$build"' EXIT
killed=0 alive=0
export FILCH_LIMIT=10 TSAN_OPTIONS="halt_on_error=1 exitcode=66"
warnings=(-std=c11 -O2 -g -w -pthread)

# attempt TEST FLAGS...: 0 if the test fails.
attempt() {
    local test=$1
    shift
    gcc "${warnings[@]}" "$@" "$build/tests/test_$test.c" "$build/tests/harness.c" "$build"/core/*.c -o "$build/program" ||
        return 0
    ! "$build/program" >"$build/log" 2>&1
}

# mutant FILE TEST WHAT SED
mutant() {
    local file=$1 test=$2 what=$3 expression=$4 round how
    [ -z "$only" ] || [ "$only" = "$file" ] || return
    rm -rf "${build:?}"/*
    cp -r "$here/../core" "$here" "$build/"
    sed -i -E "$expression" "$build/core/$file.c"
    if cmp -s "$build/core/$file.c" "$here/../core/$file.c"; then
        echo "FAILED $file: $what: the expression changes nothing"
        alive=$((alive + 1))
        return
    fi
    for round in 1 2 3; do
        for how in "" "-DFILCH_INTERPOSE" "-DFILCH_INTERPOSE -DFILCH_RING=4 -DFILCH_NO_FUTEX" \
            "-DFILCH_INTERPOSE -fsanitize=thread"; do
            # shellcheck disable=SC2086 # flags
            if attempt "$test" $how; then
                echo "ok $file: $what: $(grep -m1 -oE 'FAILED [^ ]+|data race|Assertion .*|runtime error.*' "$build/log" ||
                    echo crashed) (${how:-plain}, round $round)"
                killed=$((killed + 1))
                return
            fi
        done
    done
    echo "FAILED $file: $what: test_$test passes"
    alive=$((alive + 1))
}

only=${1:-}
mutant parker parker "unpark rings nobody" 's/^        ring\(parker\);/        ;/'
mutant parker parker "the token that meets the deadline is dropped" 's/if \(filch_u32_exchange_acq_rel\(&parker->state, EMPTY\) == TOKEN\)/if (filch_u32_exchange_acq_rel(\&parker->state, EMPTY) == 9)/'
mutant parker parker "without a futex, the bell is rung without the lock" '/The lock is what keeps/,/^}/s/filch_mutex_(un)?lock\(&parker->lock\);//'
mutant parker parker "a doze that ends is a token" 's/if \(filch_u32_cas_acq_rel\(&parker->state, &seen, EMPTY\)\)/if (filch_u32_cas_acq_rel(\&parker->state, \&seen, EMPTY) || reason == FILCH_TOKEN)/;s/FUTEX_WAIT_BITSET_PRIVATE, PARKED,/FUTEX_WAIT_BITSET_PRIVATE, EMPTY,/'
mutant parker parker "a watch takes the token" 's/found = filch_u32_load_relaxed\(&parker->state\) == TOKEN;/found = filch_u32_exchange_acq_rel(\&parker->state, EMPTY) == TOKEN;/'
mutant parker parker "a watch has no end" 's/while \(!found && filch_now_ns/while (!found || filch_now_ns/'
mutant parker parker "all may watch" 's/< watch_threads\)/< 9)/'
mutant parker parker "patience is not lost" 's#patience->ns /= 2;#;#'
mutant waiters task "who leaves without being woken stays in the table" 's/^    if \(waiter->link\)$/    if (0)/'
mutant waiters task "all waiters of a row are woken as one" 's/if \(waiter->key == key\)/if (waiter->key != key)/'
mutant waiters task "a child keeps those who waited" 's/rows\[i\]\.first = NULL;//'
mutant task task "a claim is not compared" 's/if \(filch_u32_cas_acq_rel\(&task->state, &word, word \| FILCH_RUNNING\)\)/filch_u32_store_release(\&task->state, word | FILCH_RUNNING);/'
mutant task task "an end does not look for a condition" 's/if \(\*word & FILCH_CONDITION && !holding\)/if (0)/'
mutant task task "an end is not compared" 's/while \(!filch_u32_cas_acq_rel\(&task->state, word, (.*)\)\);/while (filch_u32_store_release(\&task->state, \1), 0);/'
mutant task task "an end wakes nobody" 's/if \(\*word & FILCH_SLEEPERS\)/if (0)/'
mutant task task "a sleeper does not look again" 's/if \(!filch_word_is_done\(filch_task_mark\(task, FILCH_SLEEPERS\)\)\)/filch_task_mark(task, FILCH_SLEEPERS);/'
mutant task task "a mark is a load and a store" 's/return filch_u32_fetch_or_acq_rel\(&task->state, bit\);/uint32_t old = filch_u32_load_acquire(\&task->state); filch_u32_store_release(\&task->state, old | bit); return old;/'
mutant deque deque "room is reckoned from the top" 's/\(ends\.bottom - ends\.lag\) \+ count/(ends.bottom - ends.top) + count/'
mutant deque deque "a push takes one task too many" 's/\+ count > FILCH_RING/+ count > FILCH_RING + 1/'
mutant deque deque "a second thief comes in" 's/if \(ends\.lag != ends\.top\)/if (0)/'
mutant deque deque "a claim frees its slots at once" 's/^        ends\.top = \(uint16_t\)\(first \+ count\);/        ends.lag = ends.top = (uint16_t)(first + count);/'
mutant deque deque "a commit goes to the end of the loot" 's/ends\.lag = ends\.top; .*/ends.lag = (uint16_t)(first + count);/'
mutant deque deque "a pop is not compared" '/ends\.bottom--/,/\} while/s/while \(!filch_u64_cas_acq_rel\(&deque->ends, &word, pack\(ends\)\)\)/while (filch_u64_store_release(\&deque->ends, pack(ends)), 0)/'
mutant deque deque "a take leaves the lag behind" 's/^            ends\.lag = ends\.top;$/            ;/'
mutant deque deque "half is rounded down" 's/\(length\(ends\) \+ 1\) \/ 2/length(ends) \/ 2 + (length(ends) == 1)/'
mutant deque deque "slots are written after the push" '/Others may move/,/^}/{/for \(unsigned/d;/deque->slots/d;s/^    return true;/    for (unsigned i = 0; i < count; i++) deque->slots[(uint16_t)(ends.bottom + i) % FILCH_RING] = tasks[i]; return true;/}'
mutant idle idle "no last look before sleep" 's/^    if \(!idle->visible\(idle->context\)\)$/    if (1)/'
mutant idle idle "who finds work calls nobody" 's/if \(last \|\| waiting > 1\)/if (0)/'
mutant idle idle "a sleeper stays among the searchers" '/^bool filch_idle_rest/,/^}/s/^        idle->searching--;/        ;/'
mutant idle idle "a processor given up is nobody's" '/^struct filch_call filch_idle_give_up/,/^}/s/let_go\(idle, held\(self\)\);//'
mutant idle runtime "who gives up does not look" '/^struct filch_call filch_idle_give_up/,/^}/s/if \(freed\)/if (0)/'
mutant idle idle "nobody stands down" 's/else if \(idle->excess\.first && held/else if (0 \&\& held/'
mutant idle idle "who blocks again stays in excess" '/one who sleeps/,/take_off/s/take_off\(&idle->excess, self\);/;/'
mutant idle idle "a call does not count itself" '/take_off\(&idle->sleepers, called\);/,/}/s/idle->searching\+\+;//'
mutant idle idle "counts are not published" 's/filch_u64_store_release\(&idle->counts, word\);/(void)word;/'
mutant idle idle "who retires has been called" 's/place\(self\) == FILCH_SLEEPING && idle->threads > keep/idle->threads > keep/'
mutant idle idle "a thread that does not come stays counted" '/^void filch_idle_start_failed/,/^}/s/idle->searching--;//'
mutant idle idle "nobody looks when a thread does not come" 's/^    look\(idle, 1, false\);.*//'
mutant idle idle "too many search" 's/may = idle->searching < idle->max_searching;//;s/if \(read\(idle\)\.searching >= idle->max_searching\)/if (0)/'
mutant idle runtime "nobody is unparked" 's/^        filch_parker_unpark\(&called->parker\);/        ;/'
mutant injector injector "no lock" 's/filch_mutex_(un)?lock\(&injector->lock\);//'
mutant injector injector "the oldest is never served" 's/injector->takes % FILCH_FAIR \?/1 ?/'
mutant injector injector "numbers of runs do not wrap" 's/\(int32_t\)\(injector->lanes\[at\]\.first->run - injector->lanes\[best\]\.first->run\) < 0/injector->lanes[at].first->run < injector->lanes[best].first->run/'
mutant injector injector "a batch from any lane" 's/injector->used > 0 && injector->lanes\[injector->used - 1\]\.priority == 0/injector->used > 0/'
mutant injector injector "a batch is not bounded" 's/share > FILCH_BATCH - 1/share > FILCH_BATCH/;s/share = FILCH_BATCH - 1/share = FILCH_BATCH - 2/'
mutant injector injector "the length is not told" 's/filch_u32_store_release\(&injector->length, .*//'
mutant injector injector "an urgent task is not told" 's/filch_u32_store_release\(&injector->urgent, .*/;/'
mutant injector injector "a new run is not counted" 's/^        injector->runs\+\+;/        ;/'
mutant latch latch "nobody is woken" 's/filch_waiters_wake\(latch\);/;/'
mutant latch latch "a waiter does not look again" 's/if \(!\(filch_u32_fetch_or_acq_rel\(&latch->word, WAITED\) & SET\)\)/filch_u32_fetch_or_acq_rel(\&latch->word, WAITED);/'
mutant latch latch "set is a store" 's/if \(filch_u32_fetch_or_acq_rel\(&latch->word, SET\) & WAITED\)/uint32_t old = filch_u32_load_acquire(\&latch->word); filch_u32_store_release(\&latch->word, old | SET); if (old \& WAITED)/'
echo "$killed passed, $alive failed"
[ $alive -eq 0 ]
