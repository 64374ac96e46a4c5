/* See injector.h. A lane is a list through the tasks themselves, so a push needs memory for a new priority alone. */
#include "injector.h"

#include <stdlib.h>
#include <string.h>

/* Under the lock, from here to the public functions. */

static uint32_t old(const filch_atomic_u32 *count)
{
    return filch_u32_load_relaxed(count); /* relaxed: changed under the lock alone */
}

/* Change the counts that are read without the lock. Release suffices: who queues work fences before it looks whom to
   wake. */
static void recount(struct filch_injector *injector, int64_t priority, uint32_t change)
{
    filch_u32_store_release(&injector->length, old(&injector->length) + change);
    if (priority > 0)
        filch_u32_store_release(&injector->urgent, old(&injector->urgent) + change);
}

/* Where the lane of a priority is, or would have to be. */
static uint32_t find(const struct filch_injector *injector, int64_t priority)
{
    uint32_t low = 0, high = injector->used;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (injector->lanes[middle].priority < priority)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Make a lane at `at`; false when there is no memory. One place is kept for priority 0. */
static bool open_lane(struct filch_injector *injector, uint32_t at, int64_t priority)
{
    uint32_t zero = find(injector, 0);
    bool has_zero = zero < injector->used && injector->lanes[zero].priority == 0;
    uint32_t needed = injector->used + 1 + (priority != 0 && !has_zero);
    if (needed > injector->room) {
        struct filch_lane *more = realloc(injector->lanes, 2 * needed * sizeof *more);
        if (!more)
            return false;
        injector->lanes = more;
        injector->room = 2 * needed;
    }
    memmove(&injector->lanes[at + 1], &injector->lanes[at], (injector->used - at) * sizeof *injector->lanes);
    injector->lanes[at] = (struct filch_lane){.priority = priority};
    injector->used++;
    return true;
}

static struct filch_task *take_head(struct filch_injector *injector, uint32_t at)
{
    struct filch_lane *lane = &injector->lanes[at];
    struct filch_task *task = lane->first;
    lane->first = task->next;
    recount(injector, lane->priority, UINT32_MAX); /* one less */
    if (--lane->count == 0) {
        injector->used--;
        memmove(lane, lane + 1, (injector->used - at) * sizeof *lane);
    }
    task->next = NULL;
    return task;
}

/* The lane whose head has waited longest. Two heads are never of one run, and runs are numbered in order; the
   difference is read as signed, since numbers wrap. */
static uint32_t oldest(const struct filch_injector *injector)
{
    uint32_t best = 0;
    for (uint32_t at = 1; at < injector->used; at++)
        if ((int32_t)(injector->lanes[at].first->run - injector->lanes[best].first->run) < 0)
            best = at;
    return best;
}

bool filch_injector_init(struct filch_injector *injector)
{
    *injector = (struct filch_injector){.room = 4};
    injector->lanes = malloc(injector->room * sizeof *injector->lanes);
    if (!injector->lanes)
        return false;
    filch_u32_init(&injector->length, 0);
    filch_u32_init(&injector->urgent, 0);
    filch_mutex_init(&injector->lock);
    return true;
}

void filch_injector_destroy(struct filch_injector *injector)
{
    filch_mutex_destroy(&injector->lock);
    free(injector->lanes);
}

bool filch_injector_push(struct filch_injector *injector, struct filch_task *const *tasks, uint32_t count,
                         int64_t priority)
{
    uint32_t at;
    struct filch_lane *lane;
    assert(count > 0);
    for (uint32_t i = 0; i < count; i++) /* the chain is made before the lock: these tasks are the caller's still */
        tasks[i]->next = i + 1 < count ? tasks[i + 1] : NULL;
    filch_mutex_lock(&injector->lock);
    at = find(injector, priority);
    if ((at == injector->used || injector->lanes[at].priority != priority) && !open_lane(injector, at, priority)) {
        filch_mutex_unlock(&injector->lock);
        return false;
    }
    lane = &injector->lanes[at];
    if (priority != injector->newest) {
        injector->newest = priority;
        injector->runs++;
    }
    for (uint32_t i = 0; i < count; i++)
        tasks[i]->run = injector->runs;
    if (lane->count > 0)
        lane->last->next = tasks[0];
    else
        lane->first = tasks[0];
    lane->last = tasks[count - 1];
    lane->count += count;
    recount(injector, priority, count);
    filch_mutex_unlock(&injector->lock);
    return true;
}

uint32_t filch_injector_take(struct filch_injector *injector, uint32_t workers, struct filch_task *tasks[FILCH_BATCH])
{
    uint32_t taken = 0, share = 0, zero;
    filch_mutex_lock(&injector->lock);
    if (injector->used > 0) {
        zero = find(injector, 0);
        if (zero < injector->used && injector->lanes[zero].priority == 0)
            share = injector->lanes[zero].count / workers;
        if (share > FILCH_BATCH - 1)
            share = FILCH_BATCH - 1;
        injector->takes++;
        tasks[taken++] = take_head(injector, injector->takes % FILCH_FAIR ? injector->used - 1 : oldest(injector));
        /* No other lane in batches: what is taken is overtaken by what is above 0 alone. */
        while (share-- > 0 && injector->used > 0 && injector->lanes[injector->used - 1].priority == 0)
            tasks[taken++] = take_head(injector, injector->used - 1);
    }
    filch_mutex_unlock(&injector->lock);
    return taken;
}

struct filch_task *filch_injector_sweep(struct filch_injector *injector)
{
    struct filch_task *swept = NULL;
    filch_mutex_lock(&injector->lock);
    for (uint32_t at = injector->used; at-- > 0;)
        for (uint32_t left = injector->lanes[at].count; left > 0; left--) {
            struct filch_task *head = injector->lanes[at].first;
            if ((filch_task_word(head) & FILCH_STATE) == FILCH_PENDING)
                break;
            head = take_head(injector, at); /* with the last one the lane goes; `left` knows */
            head->next = swept;
            swept = head;
        }
    filch_mutex_unlock(&injector->lock);
    return swept;
}

void filch_injector_visit(struct filch_injector *injector, void (*visit)(struct filch_task *, void *), void *context)
{
    filch_mutex_lock(&injector->lock);
    for (uint32_t at = injector->used; at-- > 0;)
        for (struct filch_task *task = injector->lanes[at].first; task; task = task->next)
            visit(task, context);
    filch_mutex_unlock(&injector->lock);
}
