/* A thread's place to sleep: one token, which whoever unparks leaves and the owner takes.

   A token is a hint. Whoever parks looks at the word it sleeps for after every return, so a token that came for
   something that is over does no harm. Tokens do not add up. */
#ifndef FILCH_PARKER_H
#define FILCH_PARKER_H

#include "thread.h"

/* Without a futex: a mutex and a condition. -DFILCH_NO_FUTEX has that on Linux too, for the tests. */
#if defined(__linux__) && !defined(FILCH_NO_FUTEX)
#define FILCH_FUTEX 1
#else
#define FILCH_FUTEX 0
#endif

enum filch_parked {
    FILCH_TOKEN,      /* there was a token, and it is taken */
    FILCH_TIMEOUT,    /* the deadline has passed, and there was no token */
    FILCH_DISTURBED /* a signal came, and there was no token; only with a futex */
};

struct filch_parker {
    filch_atomic_u32 state; /* empty, token, parked: by anybody, with read-modify-writes */
#if !FILCH_FUTEX
    struct filch_mutex lock; /* held from the look at `state` to the sleep, and to signal */
    pthread_cond_t bell;
#endif
};

void filch_parker_init(struct filch_parker *parker);

/* Nobody may unpark it any more: see `filch_parker_unpark`. */
void filch_parker_destroy(struct filch_parker *parker);

/* Owner only. Sleep until there is a token or `filch_now_ns()` is past `deadline`; with a deadline that has passed,
   take the token if there is one. What the thread that left the token did before is visible after FILCH_TOKEN. */
enum filch_parked filch_parker_park(struct filch_parker *parker, uint64_t deadline);

/* How long a thread watches before it parks, learned from how long its waits have been. Owner only. */
struct filch_patience {
    uint64_t ns, since;
};

/* For all threads: watch for `ns` nanoseconds at most, and `threads` of them at a time; 0 is not at all, and what is set
   at first. Also makes those forgotten who watch, as in a forked child, where they are not. */
void filch_watch_limit(uint64_t ns, uint32_t threads);

/* Owner only, before `park`. Look for a token, awake, as long as is worth while; true if there is one, which `park` will
   take. A sleep and a wake-up take longer than many waits. */
bool filch_parker_watch(struct filch_parker *parker, uint64_t deadline, struct filch_patience *patience);

/* After the `park` that came after a `watch` in vain: learn from how long it was. */
void filch_patience_learn(struct filch_patience *patience);

/* Anybody. Leave a token. The parker must live until this returns; the core's parkers are part of records that live as
   long as what they sleep in. */
void filch_parker_unpark(struct filch_parker *parker);

#endif
