/* Task states without a lock: native/README.md; the code is core/task.c.

   A worker, a canceller and a clock compete for the end of a task, while a condition is made and waited in, as by the
   standard library's wait(), and while somebody sleeps for the end.

   Broken twins: BLIND_END (stores the new word without comparing), BLIND_MARK (loads the word, then stores it with the
   bit), NO_SECOND_LOOK (sleeps without the look that comes with the mark), OUTSIDE (ends without the condition). */

#define PENDING 0
#define RUNNING 1
#define FINISHED 2
#define EXPIRED 3
#define CANCELLED 4
#define STATE 7
#define CONDITION 8
#define SLEEPERS 16
#define state_of(w) ((w) & STATE)
#define is_done(w) (state_of(w) > RUNNING)

byte word;
byte ends, runs;
bool condition_held;     /* the condition's lock */
bool noticed, was_done, looked; /* the waiter in the condition */
bool enlisted, token;    /* the sleeper in the table of waiters */

/* Under the condition, if there is one: `moved` says whether this call has ended the task. */
inline settle(from, to) {
    moved = false;
    holding = false;
    do
    :: seen = word;
        if
        :: state_of(seen) != from -> break
#ifdef OUTSIDE
        :: state_of(seen) == from ->
#else
        :: state_of(seen) == from && (seen & CONDITION) && !holding ->
            atomic { !condition_held -> condition_held = true; holding = true }
        :: state_of(seen) == from && (!(seen & CONDITION) || holding) ->
#endif
#ifdef BLIND_END
            word = (seen & ~STATE) | to; moved = true; break
#else
            atomic {
                if
                :: word == seen -> word = (seen & ~STATE) | to; moved = true
                :: else
                fi
            }
            if :: moved -> break :: else fi
#endif
        fi
    od;
    if
    :: moved ->
        ends++;
        if :: seen & SLEEPERS -> atomic { if :: enlisted -> enlisted = false; token = true :: else fi } :: else fi;
#ifdef OUTSIDE
        if
        :: seen & CONDITION -> atomic { !condition_held -> condition_held = true; holding = true }
        :: else
        fi;
#endif
        if :: holding && (seen & CONDITION) -> noticed = true :: else fi
    :: else
    fi;
    if :: holding -> condition_held = false :: else fi
}

inline mark(bit_to_set) {
#ifdef BLIND_MARK
    before = word;
    word = before | bit_to_set
#else
    atomic { before = word; word = word | bit_to_set }
#endif
}

active proctype worker() {
    byte seen;
    bool moved, holding, mine;
    do
    :: seen = word;
        if
        :: state_of(seen) != PENDING -> break
        :: else ->
            atomic { if :: word == seen -> word = seen | RUNNING; mine = true; runs++ :: else fi }
            if :: mine -> break :: else fi
        fi
    od;
    if :: mine -> settle(RUNNING, FINISHED) :: else fi
}

active proctype canceller() {
    byte seen;
    bool moved, holding;
    settle(PENDING, CANCELLED)
}

active proctype clock() {
    byte seen;
    bool moved, holding;
    if :: true -> settle(PENDING, EXPIRED) :: true fi;
    if :: true -> settle(RUNNING, EXPIRED) :: true fi
}

active proctype maker() {
    byte before;
    mark(CONDITION);
    atomic { !condition_held -> condition_held = true }
    was_done = is_done(word);
    noticed = false; /* the waiter is installed here */
    looked = true;
    condition_held = false
}

active proctype sleeper() {
    byte before;
    enlisted = true;
    mark(SLEEPERS);
#ifdef NO_SECOND_LOOK
    before = PENDING;
#endif
    if
    :: is_done(before)
    :: else -> token
    fi;
    assert(is_done(word))
}

active proctype witness() {
    timeout ->
        assert(ends == 1 && is_done(word) && runs <= 1);
        assert(looked && noticed == !was_done)
}
