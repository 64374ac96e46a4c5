/* Threads, the core's one kind of lock, and the monotonic clock; all of it POSIX so far.

   Include this (or a header that does) before any system header: it asks libc for what -std=c11 hides. */
#ifndef FILCH_THREAD_H
#define FILCH_THREAD_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "atomics.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>

/* A deadline that never comes, in nanoseconds of `filch_now_ns`. */
#define FILCH_FOREVER UINT64_MAX

/* Nanoseconds of the monotonic clock: only differences mean something. */
static inline uint64_t filch_now_ns(void)
{
    struct timespec now;
    int failed = clock_gettime(CLOCK_MONOTONIC, &now);
    assert(!failed);
    (void)failed;
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The deadline `ns` nanoseconds from now. Too far away for the clock is for ever. */
static inline uint64_t filch_deadline_in(uint64_t ns)
{
    uint64_t now = filch_now_ns();
    return ns < FILCH_FOREVER - now ? now + ns : FILCH_FOREVER;
}

/* Tell the processor that this is a loop that waits. */
static inline void filch_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* A lock that is not re-entrant, and need not be: a section of the core calls nothing that could run Python, so a
   signal handler of Python's or a destructor, which run between two bytecodes or in a reference's drop, never come in
   its middle. Nobody sleeps, and nobody waits for the interpreter's lock, in a section. */
struct filch_mutex {
    pthread_mutex_t raw;
};

static inline void filch_mutex_init(struct filch_mutex *mutex)
{
    int failed = pthread_mutex_init(&mutex->raw, NULL);
    assert(!failed);
    (void)failed;
}

static inline void filch_mutex_destroy(struct filch_mutex *mutex)
{
    int failed = pthread_mutex_destroy(&mutex->raw);
    assert(!failed); /* EBUSY: somebody is in a section of what is being destroyed */
    (void)failed;
}

static inline void filch_mutex_lock(struct filch_mutex *mutex)
{
    filch_interpose();
    int failed = pthread_mutex_lock(&mutex->raw);
    assert(!failed);
    (void)failed;
}

static inline void filch_mutex_unlock(struct filch_mutex *mutex)
{
    int failed = pthread_mutex_unlock(&mutex->raw);
    assert(!failed);
    (void)failed;
    filch_interpose();
}

struct filch_thread {
    pthread_t raw;
};

/* Start a thread; 0, or the error number if there is none to be had. */
static inline int filch_thread_start(struct filch_thread *thread, void *(*body)(void *), void *argument)
{
    return pthread_create(&thread->raw, NULL, body, argument);
}

static inline void filch_thread_join(struct filch_thread *thread)
{
    int failed = pthread_join(thread->raw, NULL);
    assert(!failed);
    (void)failed;
}

static inline void filch_thread_yield(void)
{
    sched_yield();
}

#endif
