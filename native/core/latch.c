/* See latch.h: one word, and the table of waiters. */
#include "latch.h"

#include "waiters.h"

enum { SET = 1, WAITED = 2 };

void filch_latch_init(struct filch_latch *latch)
{
    filch_u32_init(&latch->word, 0);
}

void filch_latch_set(struct filch_latch *latch)
{
    /* Release: pairs with the acquire of `is_set` and of `wait`. One read-modify-write, which comes before a waiter's,
       who then sees that it is set, or after it, and then sees that somebody waits. */
    if (filch_u32_fetch_or_acq_rel(&latch->word, SET) & WAITED)
        filch_waiters_wake(latch); /* by its address */
}

bool filch_latch_is_set(const struct filch_latch *latch)
{
    return filch_u32_load_acquire(&latch->word) & SET; /* pairs with `set` */
}

enum filch_parked filch_latch_wait(struct filch_latch *latch, struct filch_parker *parker, uint64_t deadline)
{
    struct filch_waiter waiter;
    enum filch_parked reason = FILCH_TOKEN;
    if (filch_latch_is_set(latch))
        return FILCH_TOKEN;
    filch_waiter_enter(&waiter, latch, parker);
    /* Acquire: pairs with `set`, if that came first. Release: publishes nothing but the bit. */
    if (!(filch_u32_fetch_or_acq_rel(&latch->word, WAITED) & SET))
        reason = filch_parker_park(parker, deadline);
    filch_waiter_leave(&waiter);
    if (filch_latch_is_set(latch))
        return FILCH_TOKEN;
    return reason == FILCH_TOKEN ? FILCH_DISTURBED : reason;
}
