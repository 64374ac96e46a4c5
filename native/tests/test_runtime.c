/* All parts together: workers with deques, an injector, tasks with states, sleep and hand-off, and a ledger in which
   each task is run once or cancelled once. What is here of a worker loop is as small as can be. */
#include "harness.h"

#include "../core/deque.h"
#include "../core/idle.h"
#include "../core/injector.h"
#include "../core/latch.h"

#define MOST_PROCESSORS 4
#define MOST_THREADS 32
#define MOST_TASKS 200000
#define SUBMITTERS 3

struct work {
    struct filch_task task; /* first, so that a task is a work */
    uint32_t depth;         /* how many levels of two it spawns below itself; plain on purpose */
    uint32_t leaves;        /* how many more it spawns; plain on purpose */
    uint32_t runs;          /* plain on purpose: one claim, one writer */
    uint32_t ends;
    struct work *waits_for; /* before it ends, maybe, with a hand-off */
};

struct worker {
    struct filch_sleeper sleeper;
    struct filch_parker parker; /* for waits inside tasks */
    uint64_t tick;
};

static struct filch_idle idle;
static struct filch_injector injector;
static struct filch_deque deques[MOST_PROCESSORS];
static struct worker workers[MOST_THREADS];
static struct filch_thread threads[MOST_THREADS];
static struct work works[MOST_TASKS];
static uint32_t births[MOST_THREADS], processors;
static filch_atomic_u32 used, started, cancelled;
static filch_atomic_u32 ended;
static bool lifo, waits;
static struct filch_latch over;
static struct filch_parker main_parker;
static uint32_t wanted;
static _Thread_local struct worker *current;

static bool visible(void *unused)
{
    (void)unused;
    bool any = filch_injector_length(&injector) > 0;
    for (uint32_t i = 0; i < processors; i++)
        any = any || filch_deque_length(&deques[i]) > 0;
    return any;
}

static void *worker_main(void *worker);

static void answer(struct filch_call call)
{
    if (call.start) {
        uint32_t number = filch_u32_fetch_add_acq_rel(&started, 1);
        births[number] = call.processor;
        CHECK(!filch_thread_start(&threads[number], worker_main, &workers[number]));
    }
}

static struct work *new_work(uint32_t depth)
{
    uint32_t number = filch_u32_fetch_add_acq_rel(&used, 1);
    CHECK(number < MOST_TASKS);
    struct work *work = &works[number];
    filch_task_init(&work->task);
    *work = (struct work){.task = work->task, .depth = depth};
    return work;
}

static void submit(struct work *work, int64_t priority)
{
    struct filch_task *task = &work->task, *spilled[FILCH_SPILL];
    uint32_t mine = current ? filch_sleeper_processor(&current->sleeper) : FILCH_NO_PROCESSOR;
    if (mine == FILCH_NO_PROCESSOR || priority) {
        CHECK(filch_injector_push(&injector, &task, 1, priority));
    } else if (!filch_deque_push(&deques[mine], &task, 1)) {
        uint32_t count = filch_deque_spill(&deques[mine], spilled);
        if (count > 0)
            filch_injector_push(&injector, spilled, count, 0);
        if (count == 0 || !filch_deque_push(&deques[mine], &task, 1))
            filch_injector_push(&injector, &task, 1, 0);
    }
    answer(filch_idle_notify(&idle, 1));
}

static void finish(struct work *work)
{
    uint32_t word;
    CHECK(filch_task_settle(&work->task, FILCH_RUNNING, FILCH_FINISHED, false, &word) == FILCH_MOVED);
    if (filch_u32_fetch_add_acq_rel(&ended, 1) + 1 == wanted)
        filch_latch_set(&over);
}

static void run(struct worker *self, struct work *work)
{
    work->runs++;
    for (uint32_t i = 0; i < 2 && work->depth > 0; i++) {
        struct work *child = new_work(work->depth - 1);
        submit(child, harness_below(16) ? 0 : (int64_t)harness_below(3) - 1);
        work->waits_for = child;
    }
    for (uint32_t i = 0; i < work->leaves; i++)
        submit(new_work(0), 0);
    if (work->waits_for && waits && harness_below(4) == 0) {
        answer(filch_idle_give_up(&idle, &self->sleeper, 1));
        while (filch_task_wait(&work->waits_for->task, &self->parker, FILCH_FOREVER) != FILCH_TOKEN)
            ;
        CHECK(work->waits_for->runs == 1 || work->waits_for->ends == 1);
        filch_idle_take_back(&idle, &self->sleeper);
    }
    finish(work);
}

/* Put what was taken into the own deque, but the first to run. */
static struct filch_task *keep(struct filch_deque *mine, struct filch_task **loot, int count)
{
    if (count <= 0)
        return NULL;
    for (int i = 1; i < count; i++)
        if (!filch_deque_push(mine, &loot[i], 1))
            filch_injector_push(&injector, &loot[i], 1, 0);
    return loot[0];
}

static struct filch_task *look_around(struct filch_deque *mine, bool may_steal)
{
    struct filch_task *loot[FILCH_BATCH], *found;
    found = keep(mine, loot, (int)filch_injector_take(&injector, processors, loot));
    for (uint32_t i = 0, at = (uint32_t)harness_below(processors); may_steal && !found && i < processors; i++) {
        struct filch_deque *victim = &deques[(at + i) % processors];
        if (victim != mine)
            found = keep(mine, loot, filch_deque_steal(victim, loot));
    }
    return found;
}

static struct filch_task *find(struct worker *self)
{
    struct filch_deque *mine = &deques[filch_sleeper_processor(&self->sleeper)];
    struct filch_task *found = NULL;
    if (++self->tick % FILCH_FAIR == 0 || filch_injector_is_urgent(&injector))
        found = look_around(mine, false);
    if (!found)
        found = lifo ? filch_deque_pop(mine) : filch_deque_take(mine);
    if (!found)
        found = look_around(mine, filch_idle_search(&idle, &self->sleeper));
    return found;
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    current = self;
    filch_idle_arrive(&idle, &self->sleeper, births[self - workers]);
    while (filch_u32_load_acquire(&self->sleeper.place) != FILCH_ENDED) {
        struct filch_task *found = filch_idle_dispatch(&idle, &self->sleeper) ? find(self) : NULL;
        if (found) {
            answer(filch_idle_found(&idle, &self->sleeper, 1));
            if (filch_task_claim(found))
                run(self, (struct work *)found);
        } else if (filch_idle_rest(&idle, &self->sleeper))
            filch_idle_park(&idle, &self->sleeper, FILCH_FOREVER);
    }
    return NULL;
}

static void open_runtime(uint32_t count, bool newest_first, uint32_t tasks)
{
    processors = count;
    lifo = newest_first;
    wanted = tasks;
    CHECK(filch_idle_init(&idle, count, MOST_THREADS, visible, NULL) && filch_injector_init(&injector));
    for (uint32_t i = 0; i < count; i++)
        filch_deque_init(&deques[i], (uint16_t)harness_random());
    for (uint32_t i = 0; i < MOST_THREADS; i++) {
        filch_sleeper_init(&workers[i].sleeper);
        filch_parker_init(&workers[i].parker);
        workers[i].tick = 0;
    }
    filch_u32_init(&used, 0);
    filch_u32_init(&started, 0);
    filch_u32_init(&ended, 0);
    filch_u32_init(&cancelled, 0);
    filch_latch_init(&over);
}

static void close_runtime(void)
{
    while (filch_latch_wait(&over, &main_parker, FILCH_FOREVER) != FILCH_TOKEN)
        ;
    while (!filch_idle_is_quiet(&idle))
        harness_nap(100);
    CHECK(idle.free_count == processors && idle.searching == 0 && idle.excess.count == 0);
    filch_idle_end(&idle);
    for (uint32_t i = 0; i < filch_u32_load_acquire(&started); i++)
        filch_thread_join(&threads[i]);
    CHECK(filch_u32_load_acquire(&used) == wanted && filch_u32_load_acquire(&ended) == wanted);
    for (uint32_t i = 0; i < wanted; i++)
        CHECK(works[i].runs + works[i].ends == 1 && filch_word_is_done(filch_task_word(&works[i].task)));
    for (uint32_t i = 0; i < MOST_THREADS; i++) {
        filch_sleeper_destroy(&workers[i].sleeper);
        filch_parker_destroy(&workers[i].parker);
    }
    filch_injector_destroy(&injector);
    filch_idle_destroy(&idle);
}

static void trees(uint32_t depth)
{
    for (uint32_t count = 1; count <= MOST_PROCESSORS; count *= 2)
        for (int order = 0; order < 2; order++) {
            open_runtime(count, order, (2u << depth) - 1);
            submit(new_work(depth), 0);
            close_runtime();
        }
}

/* Trees that wait for their children with a hand-off: few, since each waiting task holds a thread. */
static void smoke(void)
{
    waits = true;
    trees(3);
    waits = false;
}

static void spsc(void)
{
    for (uint64_t round = harness_steps(400); round > 0; round--) { /* a fresh runtime each */
        open_runtime(1 + (uint32_t)harness_below(2), round & 1, 3);
        for (int i = 0; i < 3; i++)
            submit(new_work(0), 0);
        close_runtime();
    }
}

/* From outside, with some that are cancelled while they wait. */
static void submit_and_cancel(unsigned number)
{
    (void)number;
    for (uint64_t i = harness_steps(4000); i > 0; i--) {
        struct work *work = new_work(0);
        uint32_t word;
        submit(work, harness_below(16) ? 0 : (int64_t)harness_below(3));
        if (harness_below(8) == 0 && filch_task_settle(&work->task, FILCH_PENDING, FILCH_CANCELLED_AND_NOTIFIED, false,
                                                       &word) == FILCH_MOVED) {
            work->ends++;
            if (filch_u32_fetch_add_acq_rel(&ended, 1) + 1 == wanted)
                filch_latch_set(&over);
        }
    }
}

static void mpmc(void)
{
    for (uint32_t count = 1; count <= MOST_PROCESSORS; count += 3) {
        open_runtime(count, count > 1, (uint32_t)(SUBMITTERS * harness_steps(4000)));
        harness_together(SUBMITTERS, submit_and_cancel);
        close_runtime();
    }
}

/* One task spawns far more than a deque holds. */
static void stampede(void)
{
    for (int order = 0; order < 2; order++) {
        uint32_t many = (uint32_t)harness_steps(20000);
        struct work *root;
        open_runtime(3, order, many + 1);
        root = new_work(0);
        root->leaves = many;
        submit(root, 0);
        close_runtime();
    }
}

/* Trees without waits, from several threads. */
static void plant(unsigned number)
{
    for (uint64_t i = harness_steps(40); i > 0; i--)
        submit(new_work(6 + number), harness_below(4) ? 0 : 1);
}

static void stress(void)
{
    open_runtime(3, true, (uint32_t)harness_steps(40) * ((2u << 6) + (2u << 7) + (2u << 8) - 3));
    harness_together(SUBMITTERS, plant);
    close_runtime();
}

int main(void)
{
    harness_start("runtime");
    filch_parker_init(&main_parker);
    CASE(smoke);
    CASE(spsc);
    CASE(mpmc);
    CASE(stampede);
    CASE(stress);
    filch_parker_destroy(&main_parker);
    return 0;
}
