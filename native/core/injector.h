/* The injector: the queue of a pool, for tasks from outside, tasks with a priority, and what full deques give away.

   Lanes by priority, larger first, each first in first out. One lock, whose sections call nothing but malloc and
   free, so that a signal handler or a destructor of Python's can submit whenever it runs. The order is that of the
   pure kernel: native/README.md, "Overflow, batches and priorities". */
#ifndef FILCH_INJECTOR_H
#define FILCH_INJECTOR_H

#include "task.h"

/* Tasks taken at once at most (R4). */
#define FILCH_BATCH 128
/* Every so many takes serve the lane whose head has waited longest (R5). */
#define FILCH_FAIR 61

struct filch_lane {
    int64_t priority;
    struct filch_task *first, *last;
    uint32_t count;
};

struct filch_injector {
    /* How many wait, and how many of them above priority 0. Stored under the lock; read by anybody. */
    filch_atomic_u32 length, urgent;
    char apart[FILCH_LINE - 2 * sizeof(filch_atomic_u32)];
    struct filch_mutex lock;  /* of everything below */
    struct filch_lane *lanes; /* ascending priorities; none is empty */
    uint32_t used, room;
    uint32_t runs;  /* a run is what is pushed into one lane before another one has its turn */
    int64_t newest; /* the priority of the last push */
    uint64_t takes;
};

/* False when there is no memory. */
bool filch_injector_init(struct filch_injector *injector);

/* Nobody uses it any more; what is in it is the caller's. */
void filch_injector_destroy(struct filch_injector *injector);

/* Put `count` tasks at the end of a lane, in one step. False, and nothing is done, when there is no memory: never for
   priority 0. */
bool filch_injector_push(struct filch_injector *injector, struct filch_task *const *tasks, uint32_t count,
                         int64_t priority);

/* Take the head of the highest lane, or in one take of FILCH_FAIR the task that has waited longest; then, if priority 0
   is the highest that waits, a batch of it: in all at most length / workers + 1, and FILCH_BATCH. How many; they are to
   be run in order. */
uint32_t filch_injector_take(struct filch_injector *injector, uint32_t workers, struct filch_task *tasks[FILCH_BATCH]);

/* Take tasks that are no longer pending off the heads of the lanes: a chain by `next`, for the caller to let go of
   without the lock. */
struct filch_task *filch_injector_sweep(struct filch_injector *injector);

/* Call `visit` for each task, by falling priority and in order. Under the lock: it must not run Python, nor call the
   injector. */
void filch_injector_visit(struct filch_injector *injector, void (*visit)(struct filch_task *, void *), void *context);

/* How many wait; after a full fence, every push whose thread fenced before is in it. */
static inline uint32_t filch_injector_length(const struct filch_injector *injector)
{
    /* Acquire: pairs with the store under the lock, though racy on purpose: the lock decides. */
    return filch_u32_load_acquire(&injector->length);
}

/* Does something above priority 0 wait? */
static inline bool filch_injector_is_urgent(const struct filch_injector *injector)
{
    return filch_u32_load_acquire(&injector->urgent) > 0; /* as for the length */
}

#endif
