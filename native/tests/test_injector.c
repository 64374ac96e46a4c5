/* The injector: order within and between lanes, batches, the fair take, and that each task comes out once. */
#include "harness.h"

#include "../core/injector.h"

#define THREADS 4
#define TASKS 3000 /* of each thread */
#define MODEL 512

struct parcel {
    struct filch_task task; /* first, so that a task is a parcel */
    int64_t priority;       /* plain on purpose: the injector has to publish them */
    uint64_t number;
    filch_atomic_u32 taken;
};

static struct filch_injector injector;
static struct parcel parcels[THREADS * TASKS];
static filch_atomic_u32 taken;
static filch_atomic_u32 takes[THREADS];

static struct parcel *parcel(struct filch_task *task)
{
    return (struct parcel *)task;
}

static void push(struct parcel *one, int64_t priority, uint64_t number)
{
    struct filch_task *task = &one->task;
    filch_task_init(task);
    one->priority = priority;
    one->number = number;
    CHECK(filch_injector_push(&injector, &task, 1, priority));
}

static void smoke(void)
{
    struct filch_task *out[FILCH_BATCH];
    CHECK(filch_injector_init(&injector));
    push(&parcels[0], 0, 0);
    push(&parcels[1], -3, 1);
    CHECK(!filch_injector_is_urgent(&injector));
    push(&parcels[2], 7, 2);
    push(&parcels[3], 7, 3);
    CHECK(filch_injector_is_urgent(&injector) && filch_injector_length(&injector) == 4);
    CHECK(filch_injector_take(&injector, 1, out) == 1 && out[0] == &parcels[2].task);
    CHECK(filch_injector_take(&injector, 1, out) == 2 && out[0] == &parcels[3].task && out[1] == &parcels[0].task);
    CHECK(!filch_injector_is_urgent(&injector));
    CHECK(filch_injector_take(&injector, 1, out) == 1 && out[0] == &parcels[1].task);
    filch_injector_destroy(&injector);
}

static void empty(void)
{
    struct filch_task *out[FILCH_BATCH];
    CHECK(filch_injector_init(&injector));
    CHECK(filch_injector_take(&injector, 1, out) == 0 && !filch_injector_sweep(&injector));
    CHECK(filch_injector_length(&injector) == 0 && !filch_injector_is_urgent(&injector));
    filch_injector_destroy(&injector);
}

static void batches(void)
{
    struct filch_task *out[FILCH_BATCH], *in[1000];
    for (uint32_t had = 1; had <= 1000; had += 37)
        for (uint32_t workers = 1; workers < 9; workers++) {
            uint32_t wanted = had / workers + 1;
            wanted = wanted > FILCH_BATCH ? FILCH_BATCH : wanted > had ? had : wanted;
            CHECK(filch_injector_init(&injector));
            for (uint32_t i = 0; i < had; i++) {
                filch_task_init(&parcels[i].task);
                in[i] = &parcels[i].task;
            }
            CHECK(filch_injector_push(&injector, in, had, 0));
            CHECK(filch_injector_take(&injector, workers, out) == wanted);
            for (uint32_t i = 0; i < wanted; i++)
                CHECK(out[i] == in[i]);
            CHECK(filch_injector_length(&injector) == had - wanted);
            filch_injector_destroy(&injector);
        }
}

/* Random pushes and takes against a list with sequence numbers. */
struct model {
    struct parcel *all[MODEL];
    unsigned count;
    uint64_t takes;
};

static struct parcel *model_take(struct model *model, bool oldest)
{
    unsigned best = 0;
    struct parcel *found;
    for (unsigned i = 1; i < model->count; i++) /* in order of arrival, so only a larger priority is better */
        if (!oldest && model->all[i]->priority > model->all[best]->priority)
            best = i;
    found = model->all[best];
    model->count--;
    for (unsigned i = best; i < model->count; i++)
        model->all[i] = model->all[i + 1];
    return found;
}

static unsigned model_zeros(const struct model *model, bool *is_top)
{
    unsigned zeros = 0;
    *is_top = true;
    for (unsigned i = 0; i < model->count; i++) {
        zeros += model->all[i]->priority == 0;
        *is_top = *is_top && model->all[i]->priority <= 0;
    }
    return zeros;
}

static void check_take(struct model *model)
{
    struct filch_task *out[FILCH_BATCH];
    uint32_t workers = 1 + (uint32_t)harness_below(4), got, at = 0;
    bool is_top;
    unsigned share = model_zeros(model, &is_top) / workers;
    got = filch_injector_take(&injector, workers, out);
    if (model->count == 0) {
        CHECK(got == 0);
        return;
    }
    model->takes++;
    CHECK(parcel(out[at++]) == model_take(model, model->takes % FILCH_FAIR == 0));
    for (share = share < FILCH_BATCH - 1 ? share : FILCH_BATCH - 1; share > 0; share--)
        if (model_zeros(model, &is_top) && is_top)
            CHECK(at < got && parcel(out[at++]) == model_take(model, false));
    CHECK(at == got);
}

static void model(void)
{
    static struct model model;
    uint64_t steps = harness_steps(30000);
    unsigned fresh = 0;
    CHECK(filch_injector_init(&injector));
    injector.runs = UINT32_MAX - 1000; /* so that they wrap */
    model.count = 0;
    model.takes = 0;
    for (uint64_t step = 0; step < steps; step++) {
        if (harness_below(20) < 11 && model.count < MODEL) {
            /* Numbers of runs are compared by difference, so a parcel is used again only when it is out. */
            struct parcel *one = &parcels[fresh++ % (THREADS * TASKS)];
            bool is_in = false;
            for (unsigned i = 0; i < model.count; i++)
                is_in = is_in || model.all[i] == one;
            if (is_in)
                continue;
            push(one, harness_below(3) ? 0 : (int64_t)harness_below(7) - 3, step);
            model.all[model.count++] = one;
        } else
            check_take(&model);
        CHECK(filch_injector_length(&injector) == model.count);
    }
    while (model.count > 0)
        check_take(&model);
    filch_injector_destroy(&injector);
}

/* A stream of urgent tasks does not starve the rest: one take in 61 is for who has waited longest. */
static void no_starvation(void)
{
    struct filch_task *out[FILCH_BATCH];
    uint64_t waited = 0;
    CHECK(filch_injector_init(&injector));
    push(&parcels[0], -5, 0);
    push(&parcels[1], 0, 1);
    push(&parcels[2], 9, 2);
    for (bool found[2] = {false, false}; !found[0] || !found[1]; waited++) {
        CHECK(waited <= 2 * FILCH_FAIR);
        CHECK(filch_injector_take(&injector, 4, out) == 1);
        if (parcel(out[0])->number < 2)
            found[parcel(out[0])->number] = true;
        else
            push(parcel(out[0]), 9, 2);
    }
    filch_injector_destroy(&injector);
}

/* The numbers of runs wrap between two heads: the older one is still the one with the number before the wrap. */
static void wrap(void)
{
    struct filch_task *out[FILCH_BATCH];
    CHECK(filch_injector_init(&injector));
    injector.runs = UINT32_MAX - 1;
    injector.takes = FILCH_FAIR - 1;
    push(&parcels[0], -5, 0);
    push(&parcels[1], 0, 1);
    push(&parcels[2], 9, 2);
    CHECK(filch_injector_take(&injector, 4, out) == 1 && out[0] == &parcels[0].task);
    filch_injector_destroy(&injector);
}

static void count_visit(struct filch_task *task, void *context)
{
    struct parcel **last = context;
    CHECK(!*last || (*last)->priority > parcel(task)->priority ||
          ((*last)->priority == parcel(task)->priority && (*last)->number < parcel(task)->number));
    *last = parcel(task);
}

static void sweep_and_visit(void)
{
    struct parcel *last = NULL;
    uint32_t word, swept = 0;
    CHECK(filch_injector_init(&injector));
    for (unsigned i = 0; i < 60; i++)
        push(&parcels[i], (int64_t)(i % 3) - 1, i);
    filch_injector_visit(&injector, count_visit, &last);
    CHECK(last == &parcels[57]);
    for (unsigned i = 0; i < 60; i++) /* all of lane 1, the heads of lane 0, and in lane -1 all but its head */
        if (i % 3 == 2 || (i % 3 == 1 && i < 30) || (i % 3 == 0 && i > 0))
            CHECK(filch_task_settle(&parcels[i].task, FILCH_PENDING, FILCH_CANCELLED_AND_NOTIFIED, false, &word) ==
                  FILCH_MOVED);
    for (struct filch_task *each = filch_injector_sweep(&injector); each; each = each->next)
        swept++;
    CHECK(swept == 30 && filch_injector_length(&injector) == 30 && !filch_injector_is_urgent(&injector));
    filch_injector_destroy(&injector);
}

/* Push the own tasks, in order within each priority; then, and in between, take. */
static void push_and_take(unsigned number)
{
    struct filch_task *out[FILCH_BATCH];
    uint64_t mine = harness_steps(TASKS) < TASKS ? harness_steps(TASKS) : TASKS, pushed = 0;
    while (filch_u32_load_acquire(&taken) < mine * THREADS) {
        if (pushed < mine && harness_below(3)) {
            struct parcel *one = &parcels[number * TASKS + pushed];
            filch_u32_init(&one->taken, 0);
            push(one, (int64_t)harness_below(4) - 1, number * TASKS + pushed++);
            continue;
        }
        uint32_t got = filch_injector_take(&injector, THREADS, out);
        for (uint32_t i = 0; i < got; i++) {
            CHECK(parcel(out[i])->number == (uint64_t)(parcel(out[i]) - parcels));
            CHECK(filch_u32_exchange_acq_rel(&parcel(out[i])->taken, 1) == 0);
            /* Within one take, one producer's tasks of priority 0 come in order. */
            CHECK(i < 2 || parcel(out[i])->number / TASKS != parcel(out[i - 1])->number / TASKS ||
                  parcel(out[i])->number > parcel(out[i - 1])->number);
        }
        filch_u32_fetch_add_acq_rel(&taken, got);
        if (got)
            filch_u32_fetch_add_acq_rel(&takes[number], 1);
        else
            filch_thread_yield();
    }
}

static void mpmc(void)
{
    CHECK(filch_injector_init(&injector));
    filch_u32_init(&taken, 0);
    harness_together(THREADS, push_and_take);
    CHECK(filch_injector_length(&injector) == 0 && !filch_injector_is_urgent(&injector) && injector.used == 0);
    filch_injector_destroy(&injector);
}

/* One producer, one consumer, one lane: first in, first out. */
static void in_line(unsigned number)
{
    uint64_t count = harness_steps(8000) < THREADS * TASKS ? harness_steps(8000) : THREADS * TASKS, next = 0;
    struct filch_task *out[FILCH_BATCH];
    if (number == 0)
        for (; next < count; next++)
            push(&parcels[next], 0, next);
    while (number == 1 && next < count) {
        uint32_t got = filch_injector_take(&injector, 2, out);
        for (uint32_t i = 0; i < got; i++)
            CHECK(parcel(out[i])->number == next++);
        if (!got)
            filch_thread_yield();
    }
}

static void spsc(void)
{
    CHECK(filch_injector_init(&injector));
    harness_together(2, in_line);
    CHECK(filch_injector_length(&injector) == 0);
    filch_injector_destroy(&injector);
}

int main(void)
{
    harness_start("injector");
    CASE(smoke);
    CASE(empty);
    CASE(batches);
    CASE(model);
    CASE(no_starvation);
    CASE(wrap);
    CASE(sweep_and_visit);
    CASE(spsc);
    CASE(mpmc);
    return 0;
}
