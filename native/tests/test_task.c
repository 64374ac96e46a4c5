/* The state word of a task: each state is left once, and the end is seen by whoever waits, listens or makes a
   condition. */
#include "harness.h"

#include "../core/task.h"
#include "../core/waiters.h"

#include <string.h>

#define THREADS 4

/* A future in small: what an embedder has around the header. */
struct future {
    struct filch_task task;
    uint64_t outcome, verdict; /* the worker's and the clock's; plain on purpose: the state has to publish them */
    struct filch_mutex *condition; /* made late, if at all; never unmade */
    struct filch_mutex lock;       /* of the condition that may be made */
    bool noticed;                  /* what a waiter in the condition got; under `lock` */
    filch_atomic_u32 callbacks, called;
};

static struct future future;
static struct filch_parker parkers[THREADS];
static filch_atomic_u32 arrived, ends, claims;
static filch_atomic_u32 rounds_done[THREADS];
static uint64_t rounds;

static void renew(void)
{
    filch_task_init(&future.task);
    future.outcome = future.verdict = 0;
    future.condition = NULL;
    future.noticed = false;
    filch_u32_init(&future.callbacks, 0);
    filch_u32_init(&future.called, 0);
    filch_u32_init(&ends, 0);
    filch_u32_init(&claims, 0);
}

static uint32_t state(void)
{
    return filch_task_word(&future.task) & FILCH_STATE;
}

/* All threads meet; the last one to come runs `between`. */
static void meet(void (*between)(void))
{
    static filch_atomic_u32 round;
    uint32_t now = filch_u32_load_acquire(&round);
    if (filch_u32_fetch_add_acq_rel(&arrived, 1) + 1 == THREADS) {
        between();
        filch_u32_store_release(&arrived, 0);
        filch_u32_fetch_add_acq_rel(&round, 1);
    }
    while (filch_u32_load_acquire(&round) == now)
        filch_thread_yield();
}

static void settle_as_embedder(uint32_t from, uint32_t to)
{
    uint32_t word;
    enum filch_settled settled = filch_task_settle(&future.task, from, to, false, &word);
    if (settled == FILCH_HELD) {
        struct filch_mutex *condition = future.condition; /* the bit says that it is there */
        filch_mutex_lock(condition);
        settled = filch_task_settle(&future.task, from, to, true, &word);
        if (settled == FILCH_MOVED)
            future.noticed = true;
        filch_mutex_unlock(condition);
    }
    if (settled == FILCH_MOVED) {
        filch_u32_fetch_add_acq_rel(&ends, 1);
        if (word & FILCH_LISTENERS)
            filch_u32_fetch_add_acq_rel(&future.called, filch_u32_exchange_acq_rel(&future.callbacks, 0));
    }
}

static void smoke(void)
{
    uint32_t word;
    renew();
    CHECK(state() == FILCH_PENDING && !filch_word_is_done(filch_task_word(&future.task)));
    CHECK(filch_task_claim(&future.task) && !filch_task_claim(&future.task));
    CHECK(filch_task_settle(&future.task, FILCH_PENDING, FILCH_CANCELLED, false, &word) == FILCH_LOST);
    CHECK(filch_task_settle(&future.task, FILCH_RUNNING, FILCH_FINISHED, false, &word) == FILCH_MOVED);
    CHECK(filch_task_settle(&future.task, FILCH_RUNNING, FILCH_EXPIRED, false, &word) == FILCH_LOST);
    CHECK(filch_word_is_done(filch_task_word(&future.task)));
}

static void by_hand(void)
{
    uint32_t word;
    renew();
    CHECK(filch_task_settle(&future.task, FILCH_PENDING, FILCH_CANCELLED, false, &word) == FILCH_MOVED);
    CHECK(!filch_task_claim(&future.task));
    CHECK(filch_task_settle(&future.task, FILCH_CANCELLED, FILCH_CANCELLED_AND_NOTIFIED, false, &word) == FILCH_MOVED);
    CHECK(filch_task_settle(&future.task, FILCH_CANCELLED, FILCH_CANCELLED_AND_NOTIFIED, false, &word) == FILCH_LOST);
}

static void bits(void)
{
    uint32_t word;
    renew();
    CHECK(filch_task_mark(&future.task, FILCH_LISTENERS) == FILCH_PENDING);
    CHECK(filch_task_claim(&future.task));
    CHECK(filch_task_mark(&future.task, FILCH_CONDITION) == (FILCH_RUNNING | FILCH_LISTENERS));
    CHECK(filch_task_settle(&future.task, FILCH_RUNNING, FILCH_FINISHED, false, &word) == FILCH_HELD);
    CHECK(state() == FILCH_RUNNING);
    CHECK(filch_task_settle(&future.task, FILCH_RUNNING, FILCH_FINISHED, true, &word) == FILCH_MOVED);
    CHECK(word == (FILCH_RUNNING | FILCH_LISTENERS | FILCH_CONDITION));
    CHECK(filch_word_is_done(filch_task_mark(&future.task, FILCH_SLEEPERS)));
}

static void empty(void)
{
    uint32_t word;
    renew();
    CHECK(filch_task_wait(&future.task, &parkers[0], 0) == FILCH_TIMEOUT);
    CHECK(filch_task_wait(&future.task, &parkers[0], filch_deadline_in(1000000)) == FILCH_TIMEOUT);
    filch_parker_unpark(&parkers[0]);
    CHECK(filch_task_wait(&future.task, &parkers[0], FILCH_FOREVER) == FILCH_DISTURBED);
    CHECK(filch_task_settle(&future.task, FILCH_PENDING, FILCH_FINISHED, false, &word) == FILCH_MOVED);
    CHECK(filch_task_wait(&future.task, &parkers[0], FILCH_FOREVER) == FILCH_TOKEN);
}

static void one_end(void)
{
    CHECK(filch_u32_load_acquire(&ends) == 1);
    CHECK(filch_u32_load_acquire(&claims) <= 1);
    CHECK(filch_word_is_done(filch_task_word(&future.task)));
    renew();
}

/* A worker, a second worker, a canceller and a clock at one task: one claim at most, and exactly one end. */
static void compete(unsigned number)
{
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t delay = harness_below(64);
        while (delay--)
            (void)filch_task_word(&future.task);
        if (number < 2 && filch_task_claim(&future.task)) {
            filch_u32_fetch_add_acq_rel(&claims, 1);
            future.outcome = 7 + i;
            settle_as_embedder(FILCH_RUNNING, FILCH_FINISHED);
        } else if (number == 2) {
            settle_as_embedder(FILCH_PENDING, FILCH_CANCELLED_AND_NOTIFIED);
        } else if (number == 3) {
            future.verdict = 9 + i;
            settle_as_embedder(FILCH_PENDING, FILCH_EXPIRED);
            settle_as_embedder(FILCH_RUNNING, FILCH_EXPIRED);
        }
        CHECK(number != 3 || filch_word_is_done(filch_task_word(&future.task)));
        if (state() == FILCH_FINISHED)
            CHECK(future.outcome == 7 + i);
        if (state() == FILCH_EXPIRED)
            CHECK(future.verdict == 9 + i);
        meet(one_end);
    }
}

static void mpmc(void)
{
    rounds = harness_steps(4000);
    renew();
    harness_together(THREADS, compete);
}

static void nothing(void)
{
}

/* One worker ends the task; three wait for it with and without deadlines. A lost wake-up hangs. */
static void wait_for_it(unsigned number)
{
    for (uint64_t i = 0; i < rounds; i++) {
        if (number == 0) {
            CHECK(filch_task_claim(&future.task));
            for (uint64_t delay = harness_below(100); delay--;)
                filch_interpose();
            future.outcome = i;
            settle_as_embedder(FILCH_RUNNING, FILCH_FINISHED);
        } else {
            while (filch_task_wait(&future.task, &parkers[number],
                                   harness_below(2) ? FILCH_FOREVER : filch_deadline_in(harness_below(20000))) !=
                   FILCH_TOKEN)
                ;
            CHECK(future.outcome == i);
        }
        meet(renew);
    }
    meet(nothing);
}

static void spsc(void)
{
    rounds = harness_steps(2000);
    renew();
    harness_together(THREADS, wait_for_it);
}

/* The rule of the standard library's wait(): holding the condition, read the state and install a waiter. A task that
   was not done then must notify it, and one that was done must not. */
static void look_under_the_condition(unsigned number)
{
    static bool was_done;
    for (uint64_t i = 0; i < rounds; i++) {
        if (number == 0) {
            CHECK(filch_task_claim(&future.task));
            for (uint64_t delay = harness_below(100); delay--;)
                filch_interpose();
            settle_as_embedder(FILCH_RUNNING, FILCH_FINISHED);
        } else if (number == 1) {
            for (uint64_t delay = harness_below(100); delay--;)
                filch_interpose();
            future.condition = &future.lock;
            filch_task_mark(&future.task, FILCH_CONDITION);
            filch_mutex_lock(&future.lock);
            was_done = filch_word_is_done(filch_task_word(&future.task));
            future.noticed = false; /* the waiter is installed */
            filch_mutex_unlock(&future.lock);
        } else {
            filch_u32_fetch_add_acq_rel(&future.callbacks, 1);
            if (filch_word_is_done(filch_task_mark(&future.task, FILCH_LISTENERS)))
                filch_u32_fetch_add_acq_rel(&future.called, filch_u32_exchange_acq_rel(&future.callbacks, 0));
        }
        meet(nothing);
        if (number == 1) {
            CHECK(future.noticed == !was_done);
            CHECK(filch_u32_load_acquire(&future.called) == 2);
            renew();
        }
        meet(nothing);
    }
}

static void late_condition(void)
{
    rounds = harness_steps(4000);
    renew();
    filch_mutex_init(&future.lock);
    harness_together(THREADS, look_under_the_condition);
    filch_mutex_destroy(&future.lock);
}

/* Ten thousand tasks, everybody claims at random: each is run once. */
#define MANY 10000
static struct filch_task many[MANY];
static uint8_t runs[MANY]; /* plain on purpose: one claim, one writer */

static void claim_all(unsigned number)
{
    uint64_t count = harness_steps(MANY) < MANY ? harness_steps(MANY) : MANY;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = number & 1 ? count - 1 - i : i;
        uint32_t word;
        if (filch_task_claim(&many[at])) {
            runs[at]++;
            CHECK(filch_task_settle(&many[at], FILCH_RUNNING, FILCH_FINISHED, false, &word) == FILCH_MOVED);
            filch_u32_fetch_add_acq_rel(&rounds_done[number], 1);
        }
    }
    for (uint64_t i = 0; i < count; i++)
        while (!filch_word_is_done(filch_task_word(&many[i])))
            filch_thread_yield();
    for (uint64_t i = 0; i < count; i++)
        CHECK(runs[i] == 1);
}

static void stampede(void)
{
    memset(runs, 0, sizeof runs);
    for (unsigned i = 0; i < MANY; i++)
        filch_task_init(&many[i]);
    harness_together(THREADS, claim_all);
}

/* The table of waiters: of many who wait for two keys, each wake-up reaches those of its key. */
static filch_atomic_u32 flags[2];

static void wait_by_key(unsigned number)
{
    struct filch_waiter waiter;
    const void *key = &flags[number & 1];
    for (uint64_t i = 1; i <= rounds; i++) {
        if (number < 2) {
            filch_u32_store_release(&flags[number], (uint32_t)i);
            filch_waiters_wake(key);
        } else
            while (filch_u32_load_acquire(&flags[number & 1]) < i) {
                filch_waiter_enter(&waiter, key, &parkers[number]);
                if (filch_u32_load_acquire(&flags[number & 1]) < i)
                    filch_parker_park(&parkers[number], harness_below(4) ? FILCH_FOREVER : filch_deadline_in(1000));
                filch_waiter_leave(&waiter);
            }
        meet(nothing);
    }
}

static void stress(void)
{
    rounds = harness_steps(2000);
    filch_u32_init(&flags[0], 0);
    filch_u32_init(&flags[1], 0);
    harness_together(THREADS, wait_by_key);
}

static void fork_hooks(void)
{
    struct filch_waiter waiter;
    filch_parker_park(&parkers[0], 0); /* tokens of earlier cases */
    filch_waiters_before_fork();
    filch_waiters_after_fork_in_parent();
    filch_waiter_enter(&waiter, &flags[0], &parkers[0]);
    filch_waiters_before_fork();
    filch_waiters_after_fork_in_child(); /* as in a child: whoever waited is forgotten */
    filch_waiters_wake(&flags[0]);
    CHECK(filch_parker_park(&parkers[0], 0) == FILCH_TIMEOUT);
}

int main(void)
{
    harness_start("task");
    for (unsigned i = 0; i < THREADS; i++)
        filch_parker_init(&parkers[i]);
    CASE(smoke);
    CASE(by_hand);
    CASE(bits);
    CASE(empty);
    CASE(spsc);
    CASE(mpmc);
    CASE(late_condition);
    CASE(stampede);
    CASE(stress);
    CASE(fork_hooks);
    for (unsigned i = 0; i < THREADS; i++)
        filch_parker_destroy(&parkers[i]);
    return 0;
}
