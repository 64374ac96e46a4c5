/* See idle.h. The rule from which the steps follow: whoever makes `free` more than 0 while nobody searches, or leaves
   the searchers, does it first, then a full fence, then looks at every source, and calls somebody if there is work.
   Whoever queues work does that first, then a full fence, then looks at the counts. So one of them sees the other. */
#include "idle.h"

#include <stdlib.h>

struct counts {
    uint16_t free, searching, sleeping, excess;
};

static struct counts unpack(uint64_t word)
{
    return (struct counts){(uint16_t)word, (uint16_t)(word >> 16), (uint16_t)(word >> 32), (uint16_t)(word >> 48)};
}

/* Copies the counts. Under the lock, as the last step of each section that changed one. */
static void publish(struct filch_idle *idle)
{
    uint64_t word = (uint64_t)idle->free_count | (uint64_t)idle->searching << 16 |
                    (uint64_t)idle->sleepers.count << 32 | (uint64_t)idle->excess.count << 48;
    assert(idle->free_count <= idle->processors);
    assert(idle->sleepers.count + idle->searching <= idle->threads);
    /* Release suffices: what has to come after it comes after a full fence. Pairs with the acquire of `read`. */
    filch_u64_store_release(&idle->counts, word);
    filch_mutex_unlock(&idle->lock);
}

static struct counts read(const struct filch_idle *idle)
{
    return unpack(filch_u64_load_acquire(&idle->counts));
}

static void append(struct filch_list *list, struct filch_sleeper *sleeper)
{
    sleeper->prev = list->last;
    sleeper->next = NULL;
    *(list->last ? &list->last->next : &list->first) = sleeper;
    list->last = sleeper;
    list->count++;
}

static void take_off(struct filch_list *list, struct filch_sleeper *sleeper)
{
    *(sleeper->prev ? &sleeper->prev->next : &list->first) = sleeper->next;
    *(sleeper->next ? &sleeper->next->prev : &list->last) = sleeper->prev;
    sleeper->next = sleeper->prev = NULL;
    list->count--;
}

/* Under the lock. Relaxed: it was written under the lock, or is this thread's own. */
static enum filch_place place(const struct filch_sleeper *sleeper)
{
    return (enum filch_place)filch_u32_load_relaxed(&sleeper->place);
}

/* Under the lock. Release: pairs with the acquire in `filch_idle_park` and `filch_sleeper_processor`, so that a worker
   that is given a processor sees what its last holder did with the deque. */
static void set(struct filch_sleeper *sleeper, enum filch_place place, uint32_t processor)
{
    filch_u32_store_release(&sleeper->processor, processor);
    filch_u32_store_release(&sleeper->place, place);
}

/* Under the lock: a processor that its holder lets go. One in excess gets it at once, so while any is free none is in
   excess. */
static void let_go(struct filch_idle *idle, uint32_t processor)
{
    struct filch_sleeper *creditor = idle->excess.first;
    if (processor == FILCH_NO_PROCESSOR)
        return;
    if (creditor) {
        take_off(&idle->excess, creditor);
        set(creditor, FILCH_ACTIVE, processor);
    } else {
        idle->free[idle->free_count++] = processor;
    }
}

/* Under the lock: the processor that `sleeper` holds. Relaxed: it was written under the lock. */
static uint32_t held(const struct filch_sleeper *sleeper)
{
    return filch_u32_load_relaxed(&sleeper->processor);
}

bool filch_idle_init(struct filch_idle *idle, uint32_t processors, uint32_t max_threads, bool (*visible)(void *),
                     void *context)
{
    assert(processors > 0 && processors <= UINT16_MAX && max_threads <= UINT16_MAX);
    *idle = (struct filch_idle){.processors = processors, .max_threads = max_threads};
    idle->max_searching = processors / 2 ? processors / 2 : 1; /* R6 */
    idle->visible = visible;
    idle->context = context;
    idle->free = malloc(processors * sizeof *idle->free);
    if (!idle->free)
        return false;
    filch_mutex_init(&idle->lock);
    filch_u64_init(&idle->counts, 0);
    filch_mutex_lock(&idle->lock);
    while (processors > 0)
        let_go(idle, --processors);
    publish(idle);
    return true;
}

void filch_idle_destroy(struct filch_idle *idle)
{
    filch_mutex_destroy(&idle->lock);
    free(idle->free);
}

void filch_sleeper_init(struct filch_sleeper *sleeper)
{
    filch_parker_init(&sleeper->parker);
    filch_u32_init(&sleeper->place, FILCH_ACTIVE);
    filch_u32_init(&sleeper->processor, FILCH_NO_PROCESSOR);
    sleeper->next = sleeper->prev = NULL;
}

void filch_sleeper_destroy(struct filch_sleeper *sleeper)
{
    filch_parker_destroy(&sleeper->parker);
}

uint32_t filch_sleeper_processor(const struct filch_sleeper *self)
{
    return filch_u32_load_acquire(&self->processor); /* pairs with `set` */
}

/* Is somebody to be called? One who sleeps, if nobody searches. A thread takes long to come: without sleepers, as
   many are started as there is work. */
static bool is_short(struct counts counts, uint32_t waiting)
{
    return counts.free > 0 && (counts.searching == 0 || (counts.sleeping == 0 && counts.searching < waiting));
}

/* Call the newest sleeper, whose caches are warmest, or ask for a thread. After a full fence. */
static struct filch_call call_one(struct filch_idle *idle, uint32_t waiting, bool may_start)
{
    struct filch_call call = {false, FILCH_NO_PROCESSOR};
    struct filch_sleeper *called;
    /* Racy on purpose: whoever changes the counts so that this would have been true looks for work after a fence. */
    if (!is_short(read(idle), waiting))
        return call;
    filch_mutex_lock(&idle->lock);
    called = idle->sleepers.last;
    if (idle->free_count > 0 && called && idle->searching == 0) {
        take_off(&idle->sleepers, called);
        set(called, FILCH_SEARCHING, idle->free[--idle->free_count]);
        idle->searching++;
        idle->calls++;
    } else {
        if (idle->free_count > 0 && !called && may_start && !idle->ended && idle->threads < idle->max_threads &&
            (idle->searching == 0 || idle->searching < waiting)) {
            idle->threads++;
            idle->searching++;
            idle->calls++;
            call = (struct filch_call){true, idle->free[--idle->free_count]};
        }
        called = NULL;
    }
    publish(idle);
    if (called)
        filch_parker_unpark(&called->parker);
    return call;
}

struct filch_call filch_idle_notify(struct filch_idle *idle, uint32_t waiting)
{
    /* The submitter's fence: between its push and its look at the counts. Pairs with those of `rest` and `look`. */
    filch_fence_full();
    return call_one(idle, waiting, true);
}

/* After leaving the searchers, or freeing a processor: look at every source, and call somebody if there is work. */
static struct filch_call look(struct filch_idle *idle, uint32_t waiting, bool may_start)
{
    /* Between what was published and the look. Pairs with the submitter's in `notify`. */
    filch_fence_full();
    if (idle->visible(idle->context))
        return call_one(idle, waiting, may_start);
    return (struct filch_call){false, FILCH_NO_PROCESSOR};
}

void filch_idle_arrive(struct filch_idle *idle, struct filch_sleeper *self, uint32_t processor)
{
    filch_mutex_lock(&idle->lock);
    set(self, FILCH_SEARCHING, processor);
    filch_mutex_unlock(&idle->lock);
}

void filch_idle_start_failed(struct filch_idle *idle, uint32_t processor)
{
    filch_mutex_lock(&idle->lock);
    idle->threads--;
    idle->searching--;
    let_go(idle, processor);
    publish(idle);
    look(idle, 1, false); /* no thread again, or this would go on for ever */
}

bool filch_idle_dispatch(struct filch_idle *idle, struct filch_sleeper *self)
{
    bool goes_on;
    /* Racy on purpose: excess that comes after the look is paid back at somebody's next dispatch. */
    if (read(idle).excess == 0 && filch_sleeper_processor(self) != FILCH_NO_PROCESSOR)
        return true;
    filch_mutex_lock(&idle->lock);
    if (place(self) == FILCH_EXCESS) {
        take_off(&idle->excess, self);
        set(self, FILCH_ACTIVE, FILCH_NO_PROCESSOR);
    } else if (idle->excess.first && held(self) != FILCH_NO_PROCESSOR) {
        let_go(idle, held(self));
        set(self, place(self), FILCH_NO_PROCESSOR);
    }
    goes_on = held(self) != FILCH_NO_PROCESSOR;
    publish(idle);
    return goes_on;
}

bool filch_idle_search(struct filch_idle *idle, struct filch_sleeper *self)
{
    bool may = true;
    if (filch_u32_load_relaxed(&self->place) == FILCH_SEARCHING) /* relaxed: nobody else moves it out of that place */
        return true;
    /* Racy on purpose: who is refused rests, and looks at every source on the way. */
    if (read(idle).searching >= idle->max_searching)
        return false;
    filch_mutex_lock(&idle->lock);
    may = idle->searching < idle->max_searching;
    if (may) {
        idle->searching++;
        filch_u32_store_release(&self->place, FILCH_SEARCHING); /* as in `set` */
    }
    publish(idle);
    return may;
}

struct filch_call filch_idle_found(struct filch_idle *idle, struct filch_sleeper *self, uint32_t waiting)
{
    bool last;
    if (filch_u32_load_relaxed(&self->place) != FILCH_SEARCHING) /* relaxed: as in `search` */
        return (struct filch_call){false, FILCH_NO_PROCESSOR};
    filch_mutex_lock(&idle->lock);
    last = --idle->searching == 0;
    filch_u32_store_release(&self->place, FILCH_ACTIVE); /* as in `set` */
    publish(idle);
    if (last || waiting > 1)
        return look(idle, waiting, true);
    return (struct filch_call){false, FILCH_NO_PROCESSOR};
}

bool filch_idle_rest(struct filch_idle *idle, struct filch_sleeper *self)
{
    bool again = false;
    filch_mutex_lock(&idle->lock);
    if (place(self) == FILCH_SEARCHING)
        idle->searching--;
    assert(place(self) != FILCH_EXCESS); /* `dispatch` comes first */
    let_go(idle, held(self));
    if (idle->ended) {
        idle->threads--;
        set(self, FILCH_ENDED, FILCH_NO_PROCESSOR);
        publish(idle);
        return true;
    }
    set(self, FILCH_SLEEPING, FILCH_NO_PROCESSOR);
    append(&idle->sleepers, self);
    publish(idle);
    /* Between the announcement and the last look. Pairs with the submitter's in `notify`. */
    filch_fence_full();
    if (!idle->visible(idle->context))
        return true;
    filch_mutex_lock(&idle->lock);
    /* If it was called meanwhile it has a processor, and a token that will end some later sleep at once: harmless. */
    again = place(self) == FILCH_SEARCHING;
    if (place(self) == FILCH_SLEEPING && idle->free_count > 0 && idle->searching == 0) {
        again = true;
        take_off(&idle->sleepers, self);
        set(self, FILCH_SEARCHING, idle->free[--idle->free_count]);
        idle->searching++;
        idle->calls++;
    }
    publish(idle);
    return !again;
}

bool filch_idle_park(struct filch_idle *idle, struct filch_sleeper *self, uint64_t deadline)
{
    (void)idle;
    /* Acquire: pairs with `set`. Tokens are hints: the place decides. */
    while (filch_u32_load_acquire(&self->place) == FILCH_SLEEPING)
        if (filch_parker_park(&self->parker, deadline) == FILCH_TIMEOUT)
            return filch_u32_load_acquire(&self->place) != FILCH_SLEEPING;
    return true;
}

bool filch_idle_retire(struct filch_idle *idle, struct filch_sleeper *self, uint32_t keep)
{
    bool ends;
    filch_mutex_lock(&idle->lock);
    ends = place(self) == FILCH_SLEEPING && idle->threads > keep;
    if (ends) {
        take_off(&idle->sleepers, self);
        idle->threads--;
        set(self, FILCH_ENDED, FILCH_NO_PROCESSOR);
    }
    publish(idle);
    return ends;
}

void filch_idle_end(struct filch_idle *idle)
{
    struct filch_sleeper *each, *next, *ended;
    filch_mutex_lock(&idle->lock);
    idle->ended = true;
    ended = idle->sleepers.first;
    for (each = ended; each; each = each->next) {
        set(each, FILCH_ENDED, FILCH_NO_PROCESSOR);
        idle->threads--;
    }
    idle->sleepers = (struct filch_list){NULL, NULL, 0};
    publish(idle);
    /* Off the list, and in place ENDED, so nobody else touches their links. */
    for (each = ended; each; each = next) {
        next = each->next;
        filch_parker_unpark(&each->parker);
    }
}

struct filch_call filch_idle_give_up(struct filch_idle *idle, struct filch_sleeper *self, uint32_t waiting)
{
    bool freed;
    filch_mutex_lock(&idle->lock);
    assert(place(self) == FILCH_ACTIVE || place(self) == FILCH_EXCESS);
    if (place(self) == FILCH_EXCESS) /* or somebody would give a processor to one who sleeps */
        take_off(&idle->excess, self);
    freed = held(self) != FILCH_NO_PROCESSOR;
    let_go(idle, held(self));
    set(self, FILCH_BLOCKED, FILCH_NO_PROCESSOR);
    publish(idle);
    if (freed)
        return look(idle, waiting, true);
    return (struct filch_call){false, FILCH_NO_PROCESSOR};
}

void filch_idle_take_back(struct filch_idle *idle, struct filch_sleeper *self)
{
    filch_mutex_lock(&idle->lock);
    assert(place(self) == FILCH_BLOCKED);
    if (idle->free_count > 0) {
        set(self, FILCH_ACTIVE, idle->free[--idle->free_count]);
    } else {
        set(self, FILCH_EXCESS, FILCH_NO_PROCESSOR);
        append(&idle->excess, self);
    }
    publish(idle);
}

bool filch_idle_is_quiet(struct filch_idle *idle)
{
    bool asleep, quiet;
    uint64_t calls;
    filch_mutex_lock(&idle->lock);
    asleep = idle->sleepers.count == idle->threads;
    calls = idle->calls;
    filch_mutex_unlock(&idle->lock);
    /* The look comes after the count. Pairs with the submitter's in `notify`. */
    filch_fence_full();
    quiet = asleep && !idle->visible(idle->context);
    filch_mutex_lock(&idle->lock);
    /* If nobody was called since, all slept when nothing was visible. */
    quiet = quiet && idle->calls == calls && idle->sleepers.count == idle->threads;
    filch_mutex_unlock(&idle->lock);
    return quiet;
}
