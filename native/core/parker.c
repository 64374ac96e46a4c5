/* The parker: three states and a futex, or a condition where there is none. */
#include "parker.h"

#include <errno.h>

enum { EMPTY, TOKEN, PARKED };

static inline struct timespec instant(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
}

#if FILCH_FUTEX

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static void start_bell(struct filch_parker *parker)
{
    (void)parker;
}

static void stop_bell(struct filch_parker *parker)
{
    (void)parker;
}

/* Sleep while `state` is PARKED. Returns for no reason at times, and then says FILCH_TOKEN. */
static enum filch_parked doze(struct filch_parker *parker, uint64_t deadline)
{
    struct timespec until = instant(deadline);
    /* FUTEX_WAIT_BITSET takes an instant of the monotonic clock where FUTEX_WAIT takes a duration. */
    long failed = syscall(SYS_futex, (void *)&parker->state, FUTEX_WAIT_BITSET_PRIVATE, PARKED,
                          deadline == FILCH_FOREVER ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
    if (failed && errno == ETIMEDOUT)
        return FILCH_TIMEOUT;
    return failed && errno == EINTR ? FILCH_DISTURBED : FILCH_TOKEN;
}

static void ring(struct filch_parker *parker)
{
    /* If the owner is gone by now, this wakes nobody, or somebody who looks again: the address is all that is used. */
    syscall(SYS_futex, (void *)&parker->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#else

static void start_bell(struct filch_parker *parker)
{
    pthread_condattr_t attributes;
    filch_mutex_init(&parker->lock);
    pthread_condattr_init(&attributes);
#ifndef __APPLE__
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(&parker->bell, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void stop_bell(struct filch_parker *parker)
{
    pthread_cond_destroy(&parker->bell);
    filch_mutex_destroy(&parker->lock);
}

/* Wait at the bell, with the lock held, until rung or until the deadline. */
static int await_bell(struct filch_parker *parker, uint64_t deadline)
{
    if (deadline == FILCH_FOREVER)
        return pthread_cond_wait(&parker->bell, &parker->lock.raw);
#ifdef __APPLE__
    uint64_t now = filch_now_ns();
    uint64_t left = deadline > now ? deadline - now : 0;
    struct timespec span = instant(left);
    return pthread_cond_timedwait_relative_np(&parker->bell, &parker->lock.raw, &span);
#else
    struct timespec until = instant(deadline);
    return pthread_cond_timedwait(&parker->bell, &parker->lock.raw, &until);
#endif
}

static enum filch_parked doze(struct filch_parker *parker, uint64_t deadline)
{
    enum filch_parked reason = FILCH_TOKEN;
    filch_mutex_lock(&parker->lock);
    /* Relaxed: under the lock, with which `ring` comes after it changed the state. */
    if (filch_u32_load_relaxed(&parker->state) == PARKED) {
        filch_interpose(); /* here the bell must not ring */
        if (await_bell(parker, deadline) == ETIMEDOUT)
            reason = FILCH_TIMEOUT;
    }
    filch_mutex_unlock(&parker->lock);
    return reason;
}

static void ring(struct filch_parker *parker)
{
    /* The lock is what keeps the ring out of the gap between the owner's look at the state and its sleep. */
    filch_mutex_lock(&parker->lock);
    pthread_cond_signal(&parker->bell);
    filch_mutex_unlock(&parker->lock);
}

#endif

void filch_parker_init(struct filch_parker *parker)
{
    filch_u32_init(&parker->state, EMPTY);
    start_bell(parker);
}

void filch_parker_destroy(struct filch_parker *parker)
{
    stop_bell(parker);
}

enum filch_parked filch_parker_park(struct filch_parker *parker, uint64_t deadline)
{
    uint32_t seen = EMPTY;
    /* Acquire: pairs with the exchange of `unpark`, here and below, so that the token carries what came before it. */
    if (!filch_u32_cas_acq_rel(&parker->state, &seen, PARKED)) {
        assert(seen == TOKEN); /* two owners, else */
        filch_u32_exchange_acq_rel(&parker->state, EMPTY);
        return FILCH_TOKEN;
    }
    for (;;) {
        enum filch_parked reason = doze(parker, deadline);
        seen = TOKEN;
        if (filch_u32_cas_acq_rel(&parker->state, &seen, EMPTY))
            return FILCH_TOKEN;
        if (reason != FILCH_TOKEN) {
            /* An exchange and not a store: a token may come at this moment, and is taken with it. */
            if (filch_u32_exchange_acq_rel(&parker->state, EMPTY) == TOKEN)
                return FILCH_TOKEN;
            return reason;
        }
    }
}

static uint64_t watch_ns;
static uint32_t watch_threads;
static filch_atomic_u32 watchers;

void filch_watch_limit(uint64_t ns, uint32_t threads)
{
    watch_ns = ns;
    watch_threads = threads;
    filch_u32_init(&watchers, 0);
}

bool filch_parker_watch(struct filch_parker *parker, uint64_t deadline, struct filch_patience *patience)
{
    bool found = false;
    patience->since = filch_now_ns();
    if (patience->ns == 0)
        patience->ns = watch_ns;
    uint64_t until = patience->since + patience->ns;
    if (filch_u32_fetch_add_acq_rel(&watchers, 1) < watch_threads)
        do {
            for (int i = 0; i < 8; i++)
                filch_relax();
            found = filch_u32_load_relaxed(&parker->state) == TOKEN; /* `park` reads what comes with it */
        } while (!found && filch_now_ns() < (until < deadline ? until : deadline));
    filch_u32_fetch_add_acq_rel(&watchers, UINT32_MAX);
    if (found)
        patience->ns = watch_ns;
    return found;
}

void filch_patience_learn(struct filch_patience *patience)
{
    if (filch_now_ns() - patience->since <= watch_ns)
        patience->ns = watch_ns; /* with more patience it would have come */
    else if (patience->ns > watch_ns / 16)
        patience->ns /= 2;
}

void filch_parker_unpark(struct filch_parker *parker)
{
    /* Release: pairs with the acquire of `park`. A read-modify-write even where a token lies already, so that this
       thread's writes are published by the token that the owner takes next. */
    if (filch_u32_exchange_acq_rel(&parker->state, TOKEN) == PARKED)
        ring(parker);
}
