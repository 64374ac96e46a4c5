/* Who sleeps for what: a table of waiting threads, keyed by the address of what they wait for.

   So a task or a latch needs one bit to say that somebody waits, and no list. The bit is set after `enter` and before
   the look at the word; whoever ends the wait sees the bit in the same word, and wakes. */
#ifndef FILCH_WAITERS_H
#define FILCH_WAITERS_H

#include "parker.h"

/* On the stack of the thread that waits. All fields by it before `enter`, then under the lock of the key's row. */
struct filch_waiter {
    const void *key;
    struct filch_parker *parker;
    struct filch_waiter *next;
    struct filch_waiter **link; /* what points at this one; NULL when it is not in the table */
};

/* Enter the table. */
void filch_waiter_enter(struct filch_waiter *waiter, const void *key, struct filch_parker *parker);

/* Leave the table, woken or not; after it nobody touches the waiter or, on its account, the parker. */
void filch_waiter_leave(struct filch_waiter *waiter);

/* Unpark everybody who waits for `key`, and take them off. */
void filch_waiters_wake(const void *key);

/* Around fork(): all rows are locked, so none is half done in the child; the child forgets those who waited. */
void filch_waiters_before_fork(void);
void filch_waiters_after_fork_in_parent(void);
void filch_waiters_after_fork_in_child(void);

#endif
