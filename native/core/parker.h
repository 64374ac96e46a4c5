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

/* Anybody. Leave a token. The parker must live until this returns; the core's parkers are part of records that live as
   long as what they sleep in. */
void filch_parker_unpark(struct filch_parker *parker);

#endif
