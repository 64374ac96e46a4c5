/* Hand-off and excess: native/README.md, "Hand-off with fences"; the code is core/idle.c.

   One processor, three workers. The first task waits for the second, as a nested wait does, so its processor has to be
   handed on; it comes back while the others run, in excess, and blocks once more or ends. Memory is as in
   sleep_wake.pml.

   Broken twins: NO_LOOK (gives the processor up and looks at no queue), NO_FENCE (looks before memory shows that it is
   free), NO_STAND_DOWN (excess is not paid back), STAYS_IN_EXCESS (blocks again, and is given a processor asleep). */

#define WORKERS 3
#define TASKS 4
#define NONE 255

byte queued;        /* tasks 0, 1, ... in order: the next is `taken` */
byte pushing;       /* pushed, but not in memory yet */
byte taken, ended;
bool done[TASKS];

byte free = 1, searching;
bool holds[WORKERS], asleep[WORKERS] = true, excess[WORKERS], is_searching[WORKERS], blocked[WORKERS];
byte begun[WORKERS]; /* since somebody came to be in excess */
byte free_copy = 1, searching_copy;
byte late = NONE;

#define any_excess (excess[0] || excess[1] || excess[2])
#define held (holds[0] + holds[1] + holds[2])
#define me_as_submitter WORKERS
inline flush_copy() { free_copy = free; searching_copy = searching; late = NONE }
inline lock() { if :: late != NONE -> flush_copy() :: else fi }
inline publish(me) { late = me; assert(free + held == 1); assert(!(free && any_excess)) }
inline fence(me) { atomic { if :: late == me -> flush_copy() :: else fi } }

/* Under the lock: one in excess gets the processor at once, or it is free. */
inline let_go() {
    if
    :: excess[0] -> excess[0] = false; holds[0] = true
    :: !excess[0] && excess[1] -> excess[1] = false; holds[1] = true
    :: !excess[0] && !excess[1] && excess[2] -> excess[2] = false; holds[2] = true
    :: else -> free++
    fi
}

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
            called = NONE;
            if
            :: free > 0 && searching == 0 ->
                if :: asleep[2] -> called = 2 :: else fi;
                if :: asleep[1] -> called = 1 :: else fi;
                if :: asleep[0] -> called = 0 :: else fi
            :: else
            fi;
            if
            :: called != NONE ->
                asleep[called] = false; is_searching[called] = true; holds[called] = true; searching++; free--
            :: else
            fi;
            publish(me);
            called = 0; needed = false
        }
    :: else
    fi
}

active proctype submitter() {
    byte round, called;
    bool needed;
    do
    :: round < TASKS ->
        round++;
        pushing++;
        atomic { queued = queued + pushing; pushing = 0 } /* its fence */
        call_one(me_as_submitter)
    :: else -> break
    od
}

/* Give the processor away, wait for `what`, take one back. */
inline block(what) {
    atomic {
        lock();
        freed = holds[number];
#ifndef STAYS_IN_EXCESS
        excess[number] = false;
#endif
        if :: freed -> holds[number] = false; let_go() :: else fi;
        blocked[number] = true;
        publish(number)
    }
#ifndef NO_LOOK
    if
    :: freed ->
#ifndef NO_FENCE
        fence(number);
#endif
        if :: queued > 0 -> call_one(number) :: else fi
    :: else
    fi;
#endif
    what;
    atomic {
        lock();
        blocked[number] = false;
        assert(!holds[number]);
        if
        :: free > 0 -> free--; holds[number] = true
        :: else -> excess[number] = true; begun[0] = 0; begun[1] = 0; begun[2] = 0
        fi;
        publish(number);
        freed = false
    }
}

active [WORKERS] proctype worker() {
    byte number = _pid - 1, called, task;
    bool needed, last, sees, freed, got;
    goto park;
loop:
    atomic { /* dispatch */
        lock();
        if
        :: excess[number] -> excess[number] = false
#ifndef NO_STAND_DOWN
        :: !excess[number] && any_excess && holds[number] -> holds[number] = false; let_go()
#endif
        :: else
        fi;
        publish(number)
    }
    if
    :: holds[number] ->
        atomic {
            got = queued > 0;
            if
            :: got ->
                queued--; task = taken; taken++;
                begun[number]++;
                /* The look at the excess is not one step with the beginning: one task may slip through, no more. */
                assert(!any_excess || begun[number] <= 1)
            :: else
            fi
        }
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
            if
            :: last -> fence(number); if :: queued > 0 -> call_one(number) :: else fi
            :: else
            fi;
            last = false; got = false;
            if
            :: task == 0 -> block(done[1]); if :: block(done[2]) :: true fi
            :: else
            fi;
            done[task] = true; ended++; task = 0;
            goto loop
        :: else
        fi
    :: else
    fi;
    atomic { /* rest */
        lock();
        if :: is_searching[number] -> searching--; is_searching[number] = false :: else fi;
        if :: holds[number] -> holds[number] = false; let_go() :: else fi;
        asleep[number] = true;
        publish(number)
    }
    fence(number);
    sees = queued > 0;
    atomic {
        if
        :: sees ->
            lock();
            if
            :: asleep[number] && free > 0 && searching == 0 ->
                asleep[number] = false; is_searching[number] = true; holds[number] = true; searching++; free--
            :: else
            fi;
            publish(number); sees = false
        :: else
        fi
    }
park:
end_park:
    !asleep[number];
    goto loop
}

active proctype memory() {
end:
    do
    :: atomic { late != NONE -> flush_copy() }
    :: atomic { pushing > 0 -> queued = queued + pushing; pushing = 0 }
    od
}

active proctype witness() {
    timeout -> assert(queued == 0 && ended == TASKS && free == 1 && searching == 0 && !any_excess)
}
