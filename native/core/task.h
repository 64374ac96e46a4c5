/* The header of a task: its state word, claimed and finished by compare-and-swap. What a task calls, and with what
   outcome it ends, is the embedder's, who puts this header into a struct of its own.

   The protocol, with the rules for the embedder's fields: native/README.md, "Task states without a lock". */
#ifndef FILCH_TASK_H
#define FILCH_TASK_H

#include "parker.h"

/* The states, in the low bits of the word. */
enum {
    FILCH_PENDING,               /* not started; the arguments belong to whoever leaves this state */
    FILCH_RUNNING,               /* one worker has it, and writes the outcome before it leaves this state */
    FILCH_FINISHED,              /* the outcome is the worker's */
    FILCH_EXPIRED,               /* the outcome is the clock's; to Python it is finished too */
    FILCH_CANCELLED,             /* only a future made by hand stays in it */
    FILCH_CANCELLED_AND_NOTIFIED /* the end of a cancelled task */
};
#define FILCH_STATE 7u /* the mask */

/* The bits beside the state: who is to be told. They are set while the task has no end, and never cleared. */
enum {
    FILCH_CONDITION = 8,  /* a condition exists: the end comes under it */
    FILCH_SLEEPERS = 16,  /* threads sleep for the end: `filch_task_settle` wakes them */
    FILCH_LISTENERS = 32, /* callbacks: whoever settles calls them */
    FILCH_INTERRUPTED = 64 /* it was asked to stop */
};

struct filch_task {
    struct filch_task *next; /* by whoever holds the task: the injector under its lock, else the one who took it */
    filch_atomic_u32 state;  /* by anybody, with read-modify-writes */
    uint32_t run;            /* the injector's, under its lock */
};

enum filch_settled {
    FILCH_MOVED, /* this call has changed the state */
    FILCH_LOST,  /* somebody else had left the old state before */
    FILCH_HELD   /* nothing was changed: there is a condition, to be taken first */
};

void filch_task_init(struct filch_task *task);

/* The word: a state and bits. What came before that state is visible. */
uint32_t filch_task_word(const struct filch_task *task);

static inline bool filch_word_is_done(uint32_t word)
{
    return (word & FILCH_STATE) > FILCH_RUNNING;
}

/* PENDING -> RUNNING: the one who gets true runs it, and owns its arguments. */
bool filch_task_claim(struct filch_task *task);

/* From one state to a later one, and wake those who sleep for the end. Without `holding`, only as long as there is no
   condition; with it, the caller holds the condition. After FILCH_MOVED, `*word` is what the word was at that moment:
   FILCH_LISTENERS in it says whether there are callbacks to call. */
enum filch_settled filch_task_settle(struct filch_task *task, uint32_t from, uint32_t to, bool holding, uint32_t *word);

/* Set a bit, after the thing that it tells of was made. The word as it was before: if that is done, the end did not see
   the bit. */
uint32_t filch_task_mark(struct filch_task *task, uint32_t bit);

/* Sleep until the task is done or the deadline has passed. With FILCH_TOKEN it is done; FILCH_DISTURBED as the
   parker's, or somebody unparked the thread for another reason: the caller may have been asked to stop. */
enum filch_parked filch_task_wait(struct filch_task *task, struct filch_parker *parker, uint64_t deadline);

#endif
