/* Sleep and wake: work that is a mere count, taken by anybody, so that nothing is tested but who is awake. */
#include "harness.h"

#include "../core/idle.h"

#define RECORDS 64
#define SUBMITTERS 3

/* What may happen in a run. */
enum { PLAIN, BLOCKING = 1, SPAWNING = 2, FAILING_STARTS = 4, SHORT_PATIENCE = 8 };

static struct filch_idle idle;
static struct filch_sleeper records[RECORDS];
static struct filch_mutex registry; /* of the four below */
static struct filch_sleeper *spare[RECORDS];
static unsigned spares, started, joined;
static struct filch_thread threads[100000];
static struct birth {
    struct filch_sleeper *self;
    uint32_t processor;
    bool gone, joined;
} births[100000];
static filch_atomic_u64 work, ran, submitted;
static filch_atomic_u32 kinds;
static pthread_barrier_t meeting;
static bool meets;

static bool may(uint32_t kind)
{
    return filch_u32_load_relaxed(&kinds) & kind; /* relaxed: told to threads before the work that it is about */
}

static bool visible(void *unused)
{
    (void)unused;
    return filch_u64_load_acquire(&work) > 0;
}

static bool take(void)
{
    uint64_t seen = filch_u64_load_acquire(&work);
    while (seen > 0)
        if (filch_u64_cas_acq_rel(&work, &seen, seen - 1))
            return true;
    return false;
}

static uint32_t waiting(void)
{
    uint64_t seen = filch_u64_load_acquire(&work);
    return seen < 1 ? 1 : seen > 1000 ? 1000 : (uint32_t)seen;
}

/* Every processor is in one hand, every worker in one place, and the counts are those of the lists. */
static void audit(void)
{
    bool taken[RECORDS] = {false};
    uint32_t held = 0, searching = 0, sleeping = 0, excess = 0, sum = 0;
    filch_mutex_lock(&idle.lock);
    for (uint32_t i = 0; i < idle.free_count; i++)
        CHECK(!taken[idle.free[i]] && (taken[idle.free[i]] = true));
    for (unsigned i = 0; i < RECORDS; i++) {
        uint32_t processor = filch_u32_load_relaxed(&records[i].processor);
        uint32_t place = filch_u32_load_relaxed(&records[i].place);
        if (processor != FILCH_NO_PROCESSOR) {
            CHECK(!taken[processor] && (taken[processor] = true));
            CHECK(place == FILCH_ACTIVE || place == FILCH_SEARCHING);
            held++;
        }
        searching += place == FILCH_SEARCHING;
        sleeping += place == FILCH_SLEEPING;
        excess += place == FILCH_EXCESS;
    }
    CHECK(idle.sleepers.count == sleeping && idle.excess.count == excess);
    for (struct filch_sleeper *each = idle.sleepers.first; each; each = each->next)
        sum += filch_u32_load_relaxed(&each->place) == FILCH_SLEEPING;
    CHECK(sum == sleeping);
    CHECK(idle.searching >= searching && idle.searching - searching == idle.processors - idle.free_count - held);
    CHECK(idle.free_count == 0 || excess == 0);
    filch_mutex_unlock(&idle.lock);
}

static void *worker_main(void *birth);

/* Not only in the end: a thread that is not joined keeps its stack. With `registry`, which who leaves has let go. */
static void join_those_who_left(void)
{
    for (unsigned i = joined; i < started; i++) {
        if (births[i].gone && !births[i].joined) {
            filch_thread_join(&threads[i]);
            births[i].joined = true;
        }
        if (births[i].joined && i == joined)
            joined++;
    }
}

/* Do what a call asks for. */
static void answer(struct filch_call call)
{
    unsigned number;
    if (!call.start)
        return;
    if (may(FAILING_STARTS) && harness_below(2)) {
        filch_idle_start_failed(&idle, call.processor);
        return;
    }
    filch_mutex_lock(&registry);
    CHECK(spares > 0 && started < sizeof threads / sizeof threads[0]);
    join_those_who_left();
    number = started++;
    births[number] = (struct birth){spare[--spares], call.processor, false, false};
    CHECK(!filch_thread_start(&threads[number], worker_main, &births[number]));
    filch_mutex_unlock(&registry);
}

static void submit(uint64_t count)
{
    filch_u64_fetch_add_acq_rel(&submitted, count);
    filch_u64_fetch_add_acq_rel(&work, count);
    answer(filch_idle_notify(&idle, waiting()));
}

static void run(struct filch_sleeper *self)
{
    if (meets)
        pthread_barrier_wait(&meeting);
    if (may(BLOCKING) && harness_below(4) == 0)
        for (uint64_t times = harness_below(3); times > 0; times--) {
            answer(filch_idle_give_up(&idle, self, waiting()));
            harness_nap(harness_below(50));
            filch_idle_take_back(&idle, self);
        }
    if (may(SPAWNING) && harness_below(3) == 0)
        submit(1 + harness_below(2));
    if (harness_below(64) == 0)
        audit();
    filch_u64_fetch_add_acq_rel(&ran, 1);
}

/* The worker loop in small. */
static void work_until_ended(struct filch_sleeper *self)
{
    for (;;) {
        bool is_over = false;
        if (filch_idle_dispatch(&idle, self)) {
            if (take() || (filch_idle_search(&idle, self) && take())) {
                answer(filch_idle_found(&idle, self, waiting()));
                run(self);
                continue;
            }
        }
        if (!filch_idle_rest(&idle, self))
            continue;
        if (may(SHORT_PATIENCE)) {
            while (!is_over && !filch_idle_park(&idle, self, filch_deadline_in(harness_below(200000))))
                is_over = filch_idle_retire(&idle, self, 1);
        } else {
            CHECK(filch_idle_park(&idle, self, FILCH_FOREVER));
        }
        if (is_over || filch_u32_load_acquire(&self->place) == FILCH_ENDED)
            return;
    }
}

static void *worker_main(void *argument)
{
    struct birth *birth = argument;
    struct filch_sleeper *self = birth->self;
    filch_idle_arrive(&idle, self, birth->processor);
    work_until_ended(self);
    filch_mutex_lock(&registry);
    spare[spares++] = self;
    birth->gone = true;
    filch_mutex_unlock(&registry);
    return NULL;
}

static void open_pool(uint32_t processors, uint32_t max_threads, uint32_t kinds_of_run)
{
    CHECK(max_threads <= RECORDS);
    CHECK(filch_idle_init(&idle, processors, max_threads, visible, NULL));
    filch_u32_init(&kinds, kinds_of_run);
    spares = started = joined = 0;
    for (unsigned i = 0; i < RECORDS; i++) {
        filch_sleeper_init(&records[i]);
        spare[spares++] = &records[i];
    }
    filch_u64_init(&work, 0);
    filch_u64_init(&ran, 0);
    filch_u64_init(&submitted, 0);
}

static void await_quiet(void)
{
    for (uint64_t turn = 0; !filch_idle_is_quiet(&idle); turn++)
        harness_nap(turn < 100 ? 10 : 1000);
    CHECK(filch_u64_load_acquire(&ran) == filch_u64_load_acquire(&submitted));
}

/* Wait until all is quiet, audit, and end the threads. */
static void close_pool(void)
{
    await_quiet();
    audit();
    CHECK(idle.free_count == idle.processors && idle.searching == 0 && idle.excess.count == 0);
    filch_idle_end(&idle);
    for (; joined < started; joined++)
        if (!births[joined].joined)
            filch_thread_join(&threads[joined]);
    CHECK(spares == RECORDS && idle.threads == 0);
    for (unsigned i = 0; i < RECORDS; i++)
        filch_sleeper_destroy(&records[i]);
    filch_idle_destroy(&idle);
}

/* Step by step, without threads. */
static void smoke(void)
{
    struct filch_sleeper *a = &records[0], *b = &records[1];
    open_pool(2, 2, PLAIN);
    filch_u64_fetch_add_acq_rel(&work, 1);
    struct filch_call call = filch_idle_notify(&idle, 1);
    CHECK(call.start && !filch_idle_notify(&idle, 1).start); /* one is on its way, for one task */
    filch_idle_arrive(&idle, a, call.processor);
    CHECK(filch_idle_dispatch(&idle, a) && filch_idle_search(&idle, a));
    call = filch_idle_found(&idle, a, 1);
    CHECK(call.start); /* the work is still visible, so the next is called */
    filch_idle_arrive(&idle, b, call.processor);
    CHECK(take() && filch_idle_rest(&idle, b)); /* nothing is left: b sleeps */
    CHECK(!filch_idle_park(&idle, b, 0));
    CHECK(!filch_idle_notify(&idle, 1).start && filch_idle_park(&idle, b, FILCH_FOREVER)); /* called */
    CHECK(filch_sleeper_processor(b) != FILCH_NO_PROCESSOR);
    filch_u64_fetch_add_acq_rel(&work, 1);
    CHECK(!filch_idle_rest(&idle, b)); /* the last look finds it */
    CHECK(take());
    filch_idle_found(&idle, b, 1);
    CHECK(filch_idle_rest(&idle, b) && filch_idle_rest(&idle, a) && filch_idle_is_quiet(&idle));
    audit();
    filch_idle_destroy(&idle);
}

static void hand_off_and_excess(void)
{
    struct filch_sleeper *a = &records[0], *b = &records[1];
    open_pool(1, 2, PLAIN);
    filch_u64_fetch_add_acq_rel(&work, 2);
    filch_idle_arrive(&idle, a, filch_idle_notify(&idle, 1).processor);
    CHECK(take() && !filch_idle_found(&idle, a, 1).start); /* no processor is free */
    struct filch_call call = filch_idle_give_up(&idle, a, 1);
    CHECK(call.start && filch_sleeper_processor(a) == FILCH_NO_PROCESSOR);
    filch_idle_arrive(&idle, b, call.processor);
    CHECK(take());
    filch_idle_found(&idle, b, 1);
    filch_idle_take_back(&idle, a); /* in excess */
    CHECK(filch_sleeper_processor(a) == FILCH_NO_PROCESSOR);
    filch_u64_fetch_add_acq_rel(&work, 1);
    CHECK(!filch_idle_dispatch(&idle, b)); /* b stands down for it, though there is work */
    CHECK(filch_sleeper_processor(a) == call.processor && filch_idle_rest(&idle, b));
    CHECK(filch_idle_dispatch(&idle, a) && take() && filch_idle_rest(&idle, a));
    audit();
    filch_idle_destroy(&idle);
}

static void excess_ends_or_blocks_again(void)
{
    struct filch_sleeper *a = &records[0], *b = &records[1], *c = &records[2];
    open_pool(1, 3, PLAIN);
    filch_u64_fetch_add_acq_rel(&work, 1);
    filch_idle_arrive(&idle, a, filch_idle_notify(&idle, 1).processor);
    filch_idle_found(&idle, a, 1);
    filch_idle_arrive(&idle, b, filch_idle_give_up(&idle, a, 1).processor);
    filch_idle_found(&idle, b, 1);
    filch_idle_arrive(&idle, c, filch_idle_give_up(&idle, b, 1).processor);
    filch_idle_found(&idle, c, 1);
    CHECK(take());
    filch_idle_take_back(&idle, a);
    filch_idle_take_back(&idle, b);
    CHECK(idle.excess.count == 2);
    CHECK(!filch_idle_give_up(&idle, a, 1).start && idle.excess.count == 1); /* who blocks is in excess no more */
    CHECK(!filch_idle_dispatch(&idle, b) && idle.excess.count == 0);        /* nor is one whose task has ended */
    CHECK(filch_idle_rest(&idle, b) && filch_idle_dispatch(&idle, c));
    CHECK(filch_idle_rest(&idle, c));
    filch_idle_take_back(&idle, a);
    CHECK(filch_sleeper_processor(a) == 0 && filch_idle_dispatch(&idle, a) && filch_idle_rest(&idle, a));
    audit();
    filch_idle_destroy(&idle);
}

static void empty(void)
{
    open_pool(3, 0, PLAIN);
    CHECK(!filch_idle_notify(&idle, 5).start); /* no thread is to be had */
    close_pool();
    open_pool(1, 1, PLAIN);
    close_pool();
}

/* Somebody went to sleep because a thread was on its way, and it does not come. */
static void a_thread_that_does_not_come(void)
{
    struct filch_sleeper *a = &records[0];
    open_pool(2, 3, PLAIN);
    filch_idle_arrive(&idle, a, filch_idle_notify(&idle, 1).processor);
    filch_idle_found(&idle, a, 1);
    filch_u64_fetch_add_acq_rel(&work, 1);
    struct filch_call call = filch_idle_notify(&idle, 1);
    CHECK(call.start && filch_idle_rest(&idle, a) && !filch_idle_park(&idle, a, 0));
    filch_idle_start_failed(&idle, call.processor);
    CHECK(filch_idle_park(&idle, a, 0) && take()); /* called in its place */
    filch_idle_found(&idle, a, 1);
    CHECK(filch_idle_rest(&idle, a));
    audit();
    filch_idle_destroy(&idle);
}

static void at_most_half_search(void)
{
    open_pool(4, 8, PLAIN);
    for (unsigned i = 0; i < 4; i++) {
        filch_idle_arrive(&idle, &records[i], filch_idle_notify(&idle, 4).processor);
        filch_idle_found(&idle, &records[i], 1);
    }
    CHECK(filch_idle_search(&idle, &records[0]) && filch_idle_search(&idle, &records[1]));
    CHECK(!filch_idle_search(&idle, &records[2]) && filch_idle_search(&idle, &records[1]));
    for (unsigned i = 0; i < 4; i++)
        CHECK(filch_idle_rest(&idle, &records[i]));
    audit();
    filch_idle_destroy(&idle);
}

/* One task at a time: each has to wake somebody. A lost wake-up hangs. */
static void spsc(void)
{
    for (uint32_t processors = 1; processors <= 4; processors *= 2) {
        open_pool(processors, 8, PLAIN);
        for (uint64_t i = harness_steps(1500); i > 0; i--) {
            submit(1);
            while (filch_u64_load_acquire(&ran) < filch_u64_load_acquire(&submitted))
                filch_thread_yield();
        }
        close_pool();
    }
}

static void submit_in_bursts(unsigned number)
{
    (void)number;
    for (uint64_t i = harness_steps(1000); i > 0; i--) {
        submit(1 + harness_below(3));
        if (harness_below(8) == 0)
            harness_nap(harness_below(100));
    }
}

static void mpmc(void)
{
    open_pool(3, 8, PLAIN);
    harness_together(SUBMITTERS, submit_in_bursts);
    close_pool();
}

/* W tasks and the submitter meet: all W have to be awake at once, each time. */
static void barrier(void)
{
    const uint32_t processors = 3;
    open_pool(processors, 8, PLAIN);
    pthread_barrier_init(&meeting, NULL, processors + 1);
    meets = true;
    for (uint64_t i = harness_steps(600); i > 0; i--) {
        if (i & 1)
            submit(processors);
        else
            for (uint32_t each = 0; each < processors; each++)
                submit(1);
        pthread_barrier_wait(&meeting);
    }
    await_quiet();
    meets = false;
    pthread_barrier_destroy(&meeting);
    close_pool();
}

static void stampede(void)
{
    for (uint64_t round = harness_steps(60); round > 0; round--) { /* a fresh pool each: start against sleep and end */
        open_pool(2, 8, SPAWNING);
        for (uint64_t each = 1 + harness_below(4); each > 0; each--)
            submit(1);
        close_pool();
    }
}

static void stress(void)
{
    open_pool(3, 40, BLOCKING | SPAWNING);
    harness_together(SUBMITTERS, submit_in_bursts);
    close_pool();
    open_pool(1, 40, BLOCKING);
    harness_together(SUBMITTERS, submit_in_bursts);
    close_pool();
}

/* Threads that cannot be had, and threads that leave: what is left goes on. */
static void no_starvation(void)
{
    open_pool(3, 40, PLAIN);
    submit(1);
    await_quiet();
    filch_u32_store_relaxed(&kinds, BLOCKING | SPAWNING | FAILING_STARTS | SHORT_PATIENCE);
    harness_together(SUBMITTERS, submit_in_bursts);
    await_quiet();
    filch_u32_store_relaxed(&kinds, PLAIN);
    close_pool();
}

int main(void)
{
    harness_start("idle");
    filch_mutex_init(&registry);
    CASE(smoke);
    CASE(hand_off_and_excess);
    CASE(excess_ends_or_blocks_again);
    CASE(empty);
    CASE(a_thread_that_does_not_come);
    CASE(at_most_half_search);
    CASE(spsc);
    CASE(mpmc);
    CASE(barrier);
    CASE(stampede);
    CASE(stress);
    CASE(no_starvation);
    return 0;
}
