/* The table of waiting threads: rows by a hash of the key, each with a lock of its own. */
#include "waiters.h"

#define ROWS 64 /* a power of two; more than the threads that are likely to wait or wake at one moment */

struct row {
    struct filch_mutex lock;
    struct filch_waiter *first; /* under the lock */
    char apart[FILCH_LINE];
};

#define LOCK {PTHREAD_MUTEX_INITIALIZER}
#define ROW {LOCK, NULL, {0}}
#define ROWS_8 ROW, ROW, ROW, ROW, ROW, ROW, ROW, ROW
static struct row rows[ROWS] = {ROWS_8, ROWS_8, ROWS_8, ROWS_8, ROWS_8, ROWS_8, ROWS_8, ROWS_8};

static struct row *row_of(const void *key)
{
    /* Fibonacci hashing; the low bits of an address say little. */
    return &rows[((uint64_t)(uintptr_t)key >> 4) * 0x9e3779b97f4a7c15u >> 58];
}

/* Under the row's lock. */
static void take_off(struct filch_waiter *waiter)
{
    *waiter->link = waiter->next;
    if (waiter->next)
        waiter->next->link = waiter->link;
    waiter->link = NULL;
}

void filch_waiter_enter(struct filch_waiter *waiter, const void *key, struct filch_parker *parker)
{
    struct row *row = row_of(key);
    waiter->key = key;
    waiter->parker = parker;
    filch_mutex_lock(&row->lock);
    waiter->next = row->first;
    waiter->link = &row->first;
    if (waiter->next)
        waiter->next->link = &waiter->next;
    row->first = waiter;
    filch_mutex_unlock(&row->lock);
}

void filch_waiter_leave(struct filch_waiter *waiter)
{
    /* The lock even for one who was woken: the waker may hold it still, with the parker in its hand. */
    struct row *row = row_of(waiter->key);
    filch_mutex_lock(&row->lock);
    if (waiter->link)
        take_off(waiter);
    filch_mutex_unlock(&row->lock);
}

void filch_waiters_wake(const void *key)
{
    struct row *row = row_of(key);
    filch_mutex_lock(&row->lock);
    for (struct filch_waiter *waiter = row->first, *next; waiter; waiter = next) {
        next = waiter->next;
        if (waiter->key == key) {
            take_off(waiter);
            filch_parker_unpark(waiter->parker);
        }
    }
    filch_mutex_unlock(&row->lock);
}

void filch_waiters_before_fork(void)
{
    for (unsigned i = 0; i < ROWS; i++) /* in order; nobody else holds two */
        filch_mutex_lock(&rows[i].lock);
}

void filch_waiters_after_fork_in_parent(void)
{
    for (unsigned i = 0; i < ROWS; i++)
        filch_mutex_unlock(&rows[i].lock);
}

void filch_waiters_after_fork_in_child(void)
{
    for (unsigned i = 0; i < ROWS; i++) {
        rows[i].first = NULL; /* they wait on the stacks of threads that are not here */
        filch_mutex_unlock(&rows[i].lock); /* ours: the thread that forked took it */
    }
}
