/* Who is awake: the processors that nobody holds, the workers that sleep, search, or run in excess, and whom to wake.

   Lists and counts change together, under one lock; a copy of the counts in one word lets a submitter see without the
   lock that nobody need be woken. The protocols: native/README.md, "Sleep and wake with fences" and "Hand-off with
   fences". */
#ifndef FILCH_IDLE_H
#define FILCH_IDLE_H

#include "parker.h"

/* A processor is a number below `processors`; this one means none. */
#define FILCH_NO_PROCESSOR UINT32_MAX

enum filch_place {
    FILCH_ACTIVE,    /* looks in its own deque, or runs a task; with a processor, or without one about to rest */
    FILCH_SEARCHING, /* has a processor, and no work; or was called, or is being started, with a processor */
    FILCH_SLEEPING,  /* in the list of sleepers, without a processor */
    FILCH_BLOCKED,   /* its task waits outside the pool, without a processor */
    FILCH_EXCESS,    /* its task came back from a block and found no processor */
    FILCH_ENDED      /* its thread is to end */
};

/* A worker, as far as sleep goes. It lives as long as the `filch_idle`: who calls a sleeper unparks it after the
   lock. */
struct filch_sleeper {
    struct filch_parker parker;       /* to park: its worker */
    filch_atomic_u32 place;           /* written under the lock; its worker reads it without */
    filch_atomic_u32 processor;       /* written under the lock; its worker reads it without */
    struct filch_sleeper *next, *prev; /* under the lock: in the one list that `place` names */
};

/* What is to be done after a change. */
struct filch_call {
    bool start;         /* start a thread, which arrives with `processor`; or tell that it failed */
    uint32_t processor; /* only with `start` */
};

struct filch_list {
    struct filch_sleeper *first, *last;
    uint32_t count;
};

struct filch_idle {
    filch_atomic_u64 counts; /* the copy: free, searching, sleeping, excess; stored under the lock, read by anybody */
    char apart[FILCH_LINE - sizeof(filch_atomic_u64)];
    struct filch_mutex lock; /* of everything below but the constants */
    uint32_t *free;          /* a stack of processors that nobody holds */
    uint32_t free_count;
    struct filch_list sleepers; /* the last one has slept shortest */
    struct filch_list excess;   /* the first one has waited longest */
    uint32_t searching;
    uint32_t threads;
    uint64_t calls; /* how many have been called, started, or have called themselves */
    bool ended;     /* by `filch_idle_end` */
    uint32_t processors, max_threads, max_searching; /* constants */
    /* Is there work that any worker with a processor may take? Called after a full fence, without the lock; it reads
       the lengths of all queues, and errs on the side of yes. Constants. */
    bool (*visible)(void *context);
    void *context;
};

/* False when there is no memory. All processors are free, and there is no thread. */
bool filch_idle_init(struct filch_idle *idle, uint32_t processors, uint32_t max_threads, bool (*visible)(void *),
                     void *context);
void filch_idle_destroy(struct filch_idle *idle);

/* A new worker's record: active, without a processor. */
void filch_sleeper_init(struct filch_sleeper *sleeper);
void filch_sleeper_destroy(struct filch_sleeper *sleeper);

/* Its worker only: the processor that it holds now. One in excess may be given one at any moment. */
uint32_t filch_sleeper_processor(const struct filch_sleeper *self);

/* Anybody, after queueing work, of which `waiting` pieces are there, more or less, and at least 1: call a worker if
   one is needed. */
struct filch_call filch_idle_notify(struct filch_idle *idle, uint32_t waiting);

/* The thread that `start` asked for is here, and begins by searching; or there was none to be had. */
void filch_idle_arrive(struct filch_idle *idle, struct filch_sleeper *self, uint32_t processor);
void filch_idle_start_failed(struct filch_idle *idle, uint32_t processor);

/* Before each dispatch: pay back what is in excess. True: there is a processor to go on with. False: rest. */
bool filch_idle_dispatch(struct filch_idle *idle, struct filch_sleeper *self);

/* The own deque is empty: may this worker search the others'? False when enough do. True, too, for one who does. */
bool filch_idle_search(struct filch_idle *idle, struct filch_sleeper *self);

/* A searching worker has found work: who was the last to search calls the next, if more is visible. Without effect on
   one that does not search. */
struct filch_call filch_idle_found(struct filch_idle *idle, struct filch_sleeper *self, uint32_t waiting);

/* There is nothing to do: give the processor up, announce sleep, look once more. True: park. False: search again. */
bool filch_idle_rest(struct filch_idle *idle, struct filch_sleeper *self);

/* Sleep until called. False: the deadline has passed, and the worker still sleeps. */
bool filch_idle_park(struct filch_idle *idle, struct filch_sleeper *self, uint64_t deadline);

/* End a worker that sleeps and whose patience is over, if there are more threads than `keep`. False: it was called. */
bool filch_idle_retire(struct filch_idle *idle, struct filch_sleeper *self, uint32_t keep);

/* End everybody who sleeps, and whoever would: `rest` then ends its worker. The caller knows that no work will come. */
void filch_idle_end(struct filch_idle *idle);

/* Around a block: give the processor away, and take one back, or go on in excess. */
struct filch_call filch_idle_give_up(struct filch_idle *idle, struct filch_sleeper *self, uint32_t waiting);
void filch_idle_take_back(struct filch_idle *idle, struct filch_sleeper *self);

/* Were all workers asleep, with nothing visible, at some moment during the call? */
bool filch_idle_is_quiet(struct filch_idle *idle);

#endif
