/* Sleep and wake: native/README.md, "Sleep and wake with fences"; the code is core/idle.c.

   Tasks meet: each ends only when WORKERS of them run, so a worker that is not woken is a deadlock even if others are
   awake. Memory is weaker than the order of the program: a push, and the copy of the counts, may reach memory after
   later loads of the same thread, until its fence. What is changed under the lock is seen by the next who takes it.

   Broken twins: NO_RECHECK, NO_SUBMITTER_FENCE, NO_SLEEPER_FENCE, LEAVES_LATE (gives up searching after the last look),
   NO_CHAIN (who finds work calls nobody). */

#define WORKERS 2
#define SUBMITTERS 2
#define ROUNDS 2
#define MOST_SEARCH 1

byte work;                 /* queued tasks, as memory shows them */
byte pushing[SUBMITTERS];  /* pushed, but not in memory yet */
byte met;                  /* tasks that have begun */

/* Under the lock, which is what atomic sections stand for. */
byte free, searching;
bool asleep[WORKERS], is_searching[WORKERS];

/* The copy: in memory, and who has stored a newer one that memory does not show yet. All that hold the lock publish, so
   the newest copy is what the variables above say. */
byte free_copy, searching_copy;
byte late = 255;

#define me_as_submitter (WORKERS + number)
inline flush_copy() { free_copy = free; searching_copy = searching; late = 255 }
/* Whoever takes the lock sees what was stored under it. */
inline lock() { if :: late != 255 -> flush_copy() :: else fi }
inline publish(me) { late = me }
inline fence(me) { atomic { if :: late == me -> flush_copy() :: else fi } }

/* The look at the copy, then the call under the lock. A thread sees its own store at once. */
inline call_one(me) {
    atomic {
        if
        :: late == me -> needed = free > 0 && searching == 0
        :: else -> needed = free_copy > 0 && searching_copy == 0
        fi
    }
    if
    :: needed ->
        atomic {
            lock();
            if
            :: free > 0 && searching == 0 && asleep[0] -> called = 0
            :: free > 0 && searching == 0 && asleep[1] -> called = 1
            :: else -> called = 255
            fi;
            if
            :: called != 255 ->
                asleep[called] = false; is_searching[called] = true; searching++; free--
            :: else
            fi;
            publish(me);
            called = 0; needed = false
        }
    :: else
    fi
}

active [SUBMITTERS] proctype submitter() {
    byte number = _pid, round, called;
    bool needed;
    do
    :: round < ROUNDS ->
        round++;
        pushing[number]++;
#ifndef NO_SUBMITTER_FENCE
        atomic { work = work + pushing[number]; pushing[number] = 0 }
#endif
        call_one(me_as_submitter)
    :: else -> break
    od
}

active [WORKERS] proctype worker() {
    byte number = _pid - SUBMITTERS, called, mine;
    bool needed, got, last, sees;
loop:
    atomic {
        got = work > 0;
        if :: got -> work-- :: else fi
    }
    if
    :: !got && !is_searching[number] ->
        atomic {
            lock();
            if :: searching < MOST_SEARCH -> searching++; is_searching[number] = true :: else fi;
            publish(number)
        }
        if :: is_searching[number] -> goto loop :: else fi
    :: else
    fi;
    if
    :: got ->
        atomic {
            last = false;
            if
            :: is_searching[number] ->
                lock(); searching--; is_searching[number] = false; last = searching == 0; publish(number)
            :: else
            fi
        }
#ifndef NO_CHAIN
        if
        :: last ->
            fence(number);
            if :: work > 0 -> call_one(number) :: else fi
        :: else
        fi;
#endif
        atomic { met++; mine = ((met + WORKERS - 1) / WORKERS) * WORKERS; got = false; last = false }
        met >= mine;
        mine = 0;
        goto loop
    :: else
    fi;
    atomic {
        lock();
#ifndef LEAVES_LATE
        if :: is_searching[number] -> searching--; is_searching[number] = false :: else fi;
#endif
        free++; asleep[number] = true;
        publish(number)
    }
#ifndef NO_SLEEPER_FENCE
    fence(number);
#endif
#ifndef NO_RECHECK
    sees = work > 0;
    atomic {
        if
        :: sees ->
            lock();
            if
            :: asleep[number] && free > 0 && searching == 0 ->
                asleep[number] = false; is_searching[number] = true; searching++; free--
            :: else
            fi;
            publish(number); sees = false
        :: else
        fi
    }
#endif
#ifdef LEAVES_LATE
    atomic {
        if
        :: asleep[number] && is_searching[number] ->
            lock(); searching--; is_searching[number] = false; publish(number)
        :: else
        fi
    }
#endif
end_park:
    !asleep[number];
    goto loop
}

/* What was stored reaches memory in the end. */
active proctype memory() {
end:
    do
    :: atomic { late != 255 -> flush_copy() }
    :: atomic { pushing[0] > 0 -> work = work + pushing[0]; pushing[0] = 0 }
    :: atomic { pushing[1] > 0 -> work = work + pushing[1]; pushing[1] = 0 }
    od
}

/* When nothing moves any more, everything has run and everybody sleeps. */
active proctype witness() {
    timeout -> assert(work == 0 && met == SUBMITTERS * ROUNDS && searching == 0 && free == WORKERS)
}
