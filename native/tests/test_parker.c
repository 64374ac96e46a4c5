/* The parker: tokens, deadlines, signals, and that no token is lost between the look and the sleep. */
#include "harness.h"

#include "../core/parker.h"

#include <signal.h>

#define PLAYERS 4

static struct filch_parker parkers[PLAYERS];
static uint64_t given, taken, cargo; /* `cargo` is plain on purpose: the token has to publish it */
static filch_atomic_u64 balls[PLAYERS];

static void smoke(void)
{
    filch_parker_unpark(&parkers[0]);
    CHECK(filch_parker_park(&parkers[0], FILCH_FOREVER) == FILCH_TOKEN);
}

static void empty(void)
{
    CHECK(filch_parker_park(&parkers[0], 0) == FILCH_TIMEOUT);
    uint64_t deadline = filch_deadline_in(2000000);
    CHECK(filch_parker_park(&parkers[0], deadline) == FILCH_TIMEOUT);
    CHECK(filch_now_ns() >= deadline);
}

static void tokens_do_not_add_up(void)
{
    filch_parker_unpark(&parkers[0]);
    filch_parker_unpark(&parkers[0]);
    CHECK(filch_parker_park(&parkers[0], 0) == FILCH_TOKEN);
    CHECK(filch_parker_park(&parkers[0], 0) == FILCH_TIMEOUT);
}

static void a_token_is_taken_though_the_deadline_has_passed(void)
{
    filch_parker_unpark(&parkers[0]);
    CHECK(filch_parker_park(&parkers[0], 0) == FILCH_TOKEN);
}

static void far_deadlines(void)
{
    CHECK(filch_deadline_in(FILCH_FOREVER) == FILCH_FOREVER);
    filch_parker_unpark(&parkers[0]);
    CHECK(filch_parker_park(&parkers[0], FILCH_FOREVER - 1) == FILCH_TOKEN);
}

static void on_signal(int number)
{
    (void)number;
}

static void *interrupt_main(void *target)
{
    pthread_t *thread = target;
    for (int i = 0; i < 50; i++) { /* more than one: the first may come before the sleep */
        harness_nap(1000);
        pthread_kill(*thread, SIGUSR1);
    }
    return NULL;
}

static void signals(void)
{
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART */
    struct filch_thread sender;
    pthread_t self = pthread_self();
    if (!FILCH_FUTEX)
        return; /* a condition does not tell */
    CHECK(!sigaction(SIGUSR1, &action, NULL));
    CHECK(!filch_thread_start(&sender, interrupt_main, &self));
    CHECK(filch_parker_park(&parkers[0], FILCH_FOREVER) == FILCH_DISTURBED);
    filch_thread_join(&sender);
    CHECK(filch_parker_park(&parkers[0], 0) == FILCH_TIMEOUT);
}

/* Two threads hand a plain counter to and fro: a lost token hangs, a token that publishes nothing shows as a race. */
static void hand_over(unsigned number)
{
    uint64_t steps = harness_steps(4000);
    for (uint64_t i = 0; i < steps; i++) {
        if (number == 0) {
            cargo = i;
            filch_parker_unpark(&parkers[1]);
        }
        while (filch_parker_park(&parkers[number], FILCH_FOREVER) != FILCH_TOKEN)
            ;
        if (number == 1) {
            CHECK(cargo == i);
            filch_parker_unpark(&parkers[0]);
        }
    }
}

static void spsc(void)
{
    harness_together(2, hand_over);
}

/* Everybody throws balls to everybody, and parks with short deadlines until his own have come. */
static void throw_and_catch(unsigned number)
{
    uint64_t steps = harness_steps(10000), caught = 0, wanted = steps * PLAYERS;
    for (uint64_t i = 0; i < steps; i++)
        for (unsigned other = 0; other < PLAYERS; other++) {
            filch_u64_fetch_add_acq_rel(&balls[(number + other) % PLAYERS], 1);
            filch_parker_unpark(&parkers[(number + other) % PLAYERS]);
        }
    while ((caught = filch_u64_load_acquire(&balls[number])) < wanted)
        filch_parker_park(&parkers[number], harness_below(2) ? FILCH_FOREVER : filch_deadline_in(harness_below(99999)));
    CHECK(caught == wanted);
}

static void mpmc(void)
{
    for (unsigned i = 0; i < PLAYERS; i++)
        filch_u64_init(&balls[i], 0);
    harness_together(PLAYERS, throw_and_catch);
}

/* Deadlines and tokens meet: each token ends one round, whether the sleeper or the deadline got there first. */
static void race_the_deadline(unsigned number)
{
    uint64_t steps = harness_steps(3000);
    for (uint64_t i = 0; i < steps; i++) {
        if (number == 0) {
            for (uint64_t spin = harness_below(2000); spin > 0; spin--)
                filch_interpose();
            given = i + 1;
            filch_parker_unpark(&parkers[1]);
            while (filch_parker_park(&parkers[0], FILCH_FOREVER) != FILCH_TOKEN)
                ;
            CHECK(taken == i + 1);
        } else {
            while (filch_parker_park(&parkers[1], filch_deadline_in(harness_below(20000))) != FILCH_TOKEN)
                ;
            CHECK(given == i + 1);
            taken = i + 1;
            filch_parker_unpark(&parkers[0]);
        }
    }
}

static void stress(void)
{
    harness_together(2, race_the_deadline);
}

/* Watching. */

static void a_watch_leaves_the_token(void)
{
    struct filch_patience patience = {0};
    filch_watch_limit(1000000000, 1);
    filch_parker_unpark(&parkers[0]);
    CHECK(filch_parker_watch(&parkers[0], FILCH_FOREVER, &patience));
    CHECK(filch_parker_watch(&parkers[0], FILCH_FOREVER, &patience));
    CHECK(filch_parker_park(&parkers[0], 0) == FILCH_TOKEN);
    CHECK(filch_parker_park(&parkers[0], 0) == FILCH_TIMEOUT);
}

static void a_watch_ends(void)
{
    struct filch_patience patience = {0};
    filch_watch_limit(1000000, 1);
    uint64_t start = filch_now_ns();
    CHECK(!filch_parker_watch(&parkers[0], FILCH_FOREVER, &patience));
    CHECK(filch_now_ns() - start >= 1000000);
    filch_watch_limit(1000000000000, 1); /* longer than the test may take: the deadline ends it */
    patience.ns = 0;
    CHECK(!filch_parker_watch(&parkers[0], filch_deadline_in(1000000), &patience));
    filch_watch_limit(1000000000000, 0); /* nor does anybody watch if nobody may */
    CHECK(!filch_parker_watch(&parkers[0], FILCH_FOREVER, &patience));
    filch_watch_limit(0, 1);
    patience.ns = 0;
    CHECK(!filch_parker_watch(&parkers[0], FILCH_FOREVER, &patience));
}

static void patience_is_learnt(void)
{
    struct filch_patience patience = {0};
    filch_watch_limit(64000, 1);
    for (int i = 0; i < 10; i++) {
        CHECK(!filch_parker_watch(&parkers[0], FILCH_FOREVER, &patience));
        harness_nap(100); /* long waits make it shorter */
        filch_patience_learn(&patience);
    }
    CHECK(patience.ns == 4000);
    patience.since = filch_now_ns(); /* and a short one makes it whole, as does a token that comes in time */
    filch_watch_limit(1000000000, 1);
    filch_patience_learn(&patience);
    CHECK(patience.ns == 1000000000);
    patience.ns = 4000;
    filch_parker_unpark(&parkers[0]);
    CHECK(filch_parker_watch(&parkers[0], FILCH_FOREVER, &patience));
    CHECK(patience.ns == 1000000000);
    CHECK(filch_parker_park(&parkers[0], 0) == FILCH_TOKEN);
}

/* As `spsc`, watching first. */
static void watch_and_hand_over(unsigned number)
{
    struct filch_patience patience = {0};
    uint64_t steps = harness_steps(4000);
    for (uint64_t i = 0; i < steps; i++) {
        if (number == 0) {
            cargo = i;
            filch_parker_unpark(&parkers[1]);
        }
        filch_parker_watch(&parkers[number], FILCH_FOREVER, &patience);
        while (filch_parker_park(&parkers[number], FILCH_FOREVER) != FILCH_TOKEN)
            ;
        filch_patience_learn(&patience);
        if (number == 1) {
            CHECK(cargo == i);
            filch_parker_unpark(&parkers[0]);
        }
    }
}

static void watched_spsc(void)
{
    filch_watch_limit(20000, 2);
    harness_together(2, watch_and_hand_over);
}

int main(void)
{
    harness_start("parker");
    for (unsigned i = 0; i < PLAYERS; i++)
        filch_parker_init(&parkers[i]);
    CASE(smoke);
    CASE(empty);
    CASE(tokens_do_not_add_up);
    CASE(a_token_is_taken_though_the_deadline_has_passed);
    CASE(far_deadlines);
    CASE(signals);
    CASE(spsc);
    for (unsigned i = 0; i < PLAYERS; i++)
        filch_parker_park(&parkers[i], 0);
    CASE(mpmc);
    for (unsigned i = 0; i < PLAYERS; i++)
        filch_parker_park(&parkers[i], 0);
    CASE(stress);
    for (unsigned i = 0; i < PLAYERS; i++)
        filch_parker_park(&parkers[i], 0);
    CASE(a_watch_leaves_the_token);
    CASE(a_watch_ends);
    CASE(patience_is_learnt);
    CASE(watched_spsc);
    for (unsigned i = 0; i < PLAYERS; i++)
        filch_parker_destroy(&parkers[i]);
    return 0;
}
