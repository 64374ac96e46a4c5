/* The life of a task's state word. */
#include "task.h"

#include "waiters.h"

/* May a task go from `from` to `to`? */
static bool is_step(uint32_t from, uint32_t to)
{
    switch (from) {
    case FILCH_PENDING:
        return to != FILCH_PENDING; /* to FINISHED by set_result() of a future made by hand */
    case FILCH_RUNNING:
        return to == FILCH_FINISHED || to == FILCH_EXPIRED;
    case FILCH_CANCELLED:
        return to == FILCH_CANCELLED_AND_NOTIFIED;
    default:
        return false;
    }
}

void filch_task_init(struct filch_task *task)
{
    task->next = NULL;
    filch_u32_init(&task->state, FILCH_PENDING);
    task->run = 0;
}

uint32_t filch_task_word(const struct filch_task *task)
{
    /* Acquire: pairs with the compare-and-swap of `settle`, so that the outcome is visible with the state. */
    return filch_u32_load_acquire(&task->state);
}

bool filch_task_claim(struct filch_task *task)
{
    /* Relaxed: only a guess, which the compare-and-swap checks. */
    uint32_t word = filch_u32_load_relaxed(&task->state);
    while ((word & FILCH_STATE) == FILCH_PENDING)
        /* Acquire: pairs with the release in every earlier change of the word, so that this thread sees what a bit
           tells of. Who queued the task has published the rest by the queue. */
        if (filch_u32_cas_acq_rel(&task->state, &word, word | FILCH_RUNNING))
            return true;
    return false;
}

enum filch_settled filch_task_settle(struct filch_task *task, uint32_t from, uint32_t to, bool holding, uint32_t *word)
{
    assert(is_step(from, to));
    /* Acquire: pairs with `mark`, so that after FILCH_HELD the caller sees the condition that the bit tells of. */
    *word = filch_u32_load_acquire(&task->state);
    do {
        if ((*word & FILCH_STATE) != from)
            return FILCH_LOST;
        if (*word & FILCH_CONDITION && !holding)
            return FILCH_HELD;
        /* The swap is of the whole word: a bit that came since the look makes it fail, and is seen in the next round.
           Release: publishes the outcome to who reads the state (`filch_task_word`, `filch_task_mark`).
           Acquire: pairs with `mark`, so that what the bits tell of is visible here. */
    } while (!filch_u32_cas_acq_rel(&task->state, word, (*word & ~FILCH_STATE) | to));
    if (*word & FILCH_SLEEPERS)
        filch_waiters_wake(task); /* by its address: who saw the end first may have freed it */
    return FILCH_MOVED;
}

uint32_t filch_task_mark(struct filch_task *task, uint32_t bit)
{
    /* Release: pairs with `settle`, publishes what the bit tells of. Acquire: if the task is done, its outcome is
       visible. One read-modify-write, so that it comes wholly before or wholly after the end. */
    return filch_u32_fetch_or_acq_rel(&task->state, bit);
}

enum filch_parked filch_task_wait(struct filch_task *task, struct filch_parker *parker, uint64_t deadline)
{
    struct filch_waiter waiter;
    enum filch_parked reason = FILCH_TOKEN;
    if (filch_word_is_done(filch_task_word(task)))
        return FILCH_TOKEN;
    filch_waiter_enter(&waiter, task, parker);
    if (!filch_word_is_done(filch_task_mark(task, FILCH_SLEEPERS)))
        reason = filch_parker_park(parker, deadline);
    filch_waiter_leave(&waiter);
    if (filch_word_is_done(filch_task_word(task)))
        return FILCH_TOKEN;
    return reason == FILCH_TOKEN ? FILCH_DISTURBED : reason;
}
