/* The latch: set once, seen by all, and gone as soon as its waiters have seen it. */
#include "harness.h"

#include "../core/latch.h"

#define THREADS 4

static struct filch_parker parkers[THREADS];
static uint64_t cargo; /* plain on purpose: the latch has to publish it */
static filch_atomic_u64 where; /* of the latch of this round, on the waiter's stack */
static struct filch_latch doors[2000];

static void smoke(void)
{
    struct filch_latch latch;
    filch_latch_init(&latch);
    CHECK(!filch_latch_is_set(&latch));
    filch_latch_set(&latch);
    filch_latch_set(&latch);
    CHECK(filch_latch_is_set(&latch) && filch_latch_wait(&latch, &parkers[0], FILCH_FOREVER) == FILCH_TOKEN);
}

static void empty(void)
{
    struct filch_latch latch;
    filch_latch_init(&latch);
    CHECK(filch_latch_wait(&latch, &parkers[0], 0) == FILCH_TIMEOUT);
    filch_parker_unpark(&parkers[0]);
    CHECK(filch_latch_wait(&latch, &parkers[0], FILCH_FOREVER) == FILCH_DISTURBED);
    filch_latch_set(&latch);
    CHECK(filch_latch_wait(&latch, &parkers[0], 0) == FILCH_TOKEN);
}

static void wait_for(struct filch_latch *latch, unsigned number)
{
    while (filch_latch_wait(latch, &parkers[number], harness_below(2) ? FILCH_FOREVER : filch_deadline_in(5000)) !=
           FILCH_TOKEN)
        ;
}

/* The latch lies on the waiter's stack and is overwritten once it is set: a setter that touches it later is seen. */
static void short_lived(unsigned number)
{
    for (uint64_t i = harness_steps(3000); i > 0; i--) {
        if (number == 0) {
            struct filch_latch latch;
            filch_latch_init(&latch);
            filch_u64_store_release(&where, (uint64_t)(uintptr_t)&latch);
            wait_for(&latch, 0);
            CHECK(cargo == i);
            *(volatile uint32_t *)&latch = 0;
        } else {
            uint64_t latch;
            while (!(latch = filch_u64_exchange_acq_rel(&where, 0)))
                filch_thread_yield();
            cargo = i;
            filch_latch_set((struct filch_latch *)(uintptr_t)latch);
        }
    }
}

static void spsc(void)
{
    harness_together(2, short_lived);
}

/* Everybody waits for the last door first, while thread 0 opens them from the first on. */
static void doors_in_turn(unsigned number)
{
    uint64_t count = harness_steps(2000) < 2000 ? harness_steps(2000) : 2000;
    for (uint64_t i = 0; i < count; i++)
        if (number == 0)
            filch_latch_set(&doors[i]);
        else
            wait_for(&doors[number & 1 ? i : count - 1 - i], number);
}

static void stampede(void)
{
    for (unsigned i = 0; i < 2000; i++)
        filch_latch_init(&doors[i]);
    harness_together(THREADS, doors_in_turn);
}

int main(void)
{
    harness_start("latch");
    for (unsigned i = 0; i < THREADS; i++)
        filch_parker_init(&parkers[i]);
    CASE(smoke);
    CASE(empty);
    CASE(spsc);
    CASE(stampede);
    for (unsigned i = 0; i < THREADS; i++)
        filch_parker_destroy(&parkers[i]);
    return 0;
}
