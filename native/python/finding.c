/* Where a worker finds its next task, and what one that waits runs meanwhile. All under the lock. */
#include "kernel.h"

static bool begin(Worker *worker, PyObject *future)
{
    if (worker_begin(worker, future, false, true))
        return true;
    discard(future);
    return false;
}

/* The processor with which a worker without a task goes on, or NULL if it has to make room. */
static Processor *processor_for(Core *core, Worker *worker)
{
    if (worker->processor == NULL) {
        vector_remove(&core->excess, worker);
        if (core->free.count == 0)
            return NULL;
        Py_ssize_t at = core->free.count - 1;
        if (core->posted) {
            while (at >= 0 && ((Processor *)core->free.at[at])->mail.count == 0)
                at--;
            if (at < 0)
                at = core->free.count - 1;
        }
        worker->processor = core->free.at[at];
        core->free.count--;
        memmove(core->free.at + at, core->free.at + at + 1, (size_t)(core->free.count - at) * sizeof(void *));
    }
    if (core->excess.count > 0) { /* one task too many is running: its worker gets this processor */
        Worker *first = core->excess.at[0];
        first->processor = worker->processor;
        worker->processor = NULL;
        vector_remove(&core->excess, first);
        return NULL;
    }
    if (core->surplus > 0) {
        core_release_processor(core, worker);
        return NULL;
    }
    return worker->processor;
}

static bool find_injected(Core *core, Worker *worker)
{
    core->injector.takes++;
    PyObject *task = injector_take(&core->injector, core->injector.takes % FAIR == 0);
    return task != NULL && begin(worker, task);
}

static bool find_urgent(Core *core, Worker *worker, Processor *processor)
{
    while (processor->mail.count > 0)
        if (begin(worker, queue_take(&processor->mail)))
            return true;
    while (injector_is_urgent(&core->injector)) {
        Queue *neglected = NULL;
        if (processor->tick % FAIR == 0)
            neglected = processor->inbox.count ? &processor->inbox : processor->queue.count ? &processor->queue : NULL;
        if (neglected ? begin(worker, queue_take(neglected)) : find_injected(core, worker))
            return true;
    }
    return false;
}

/* The next task of the batch at hand; after its last one, take the next batch. Only priority 0 comes in batches. */
static bool find_outside(Core *core, Worker *worker, Processor *processor)
{
    Injector *injector = &core->injector;
    while (processor->inbox.count > 0 || injector->count > 0) {
        bool found;
        if (processor->inbox.count > 0) {
            found = begin(worker, queue_take(&processor->inbox));
        } else {
            Lane *lane = injector_lane(injector, 0);
            uint32_t share = lane ? lane->queue.count / (uint32_t)core->processors.count : 0;
            share = share < BATCH - 1 ? share : BATCH - 1;
            found = find_injected(core, worker);
            if (share > 0 && injector->count > 0 && injector->lanes[injector->count - 1].priority == 0) {
                uint32_t there = injector->lanes[injector->count - 1].queue.count;
                for (uint32_t left = share < there ? share : there; left > 0; left--)
                    queue_push(&processor->inbox, injector_take(injector, false));
                core_load(core, processor);
            }
        }
        if (found)
            return true;
    }
    return false;
}

static uint64_t random_below(Core *core, uint64_t limit)
{
    core->random ^= core->random << 13;
    core->random ^= core->random >> 7;
    core->random ^= core->random << 17;
    return core->random % limit;
}

/* Take the oldest half of what a victim has, and run the newest of it. */
static bool steal(Core *core, Worker *worker, Processor *processor)
{
    Py_ssize_t victims = core->processors.count;
    Py_ssize_t start = (Py_ssize_t)random_below(core, (uint64_t)victims);
    for (Py_ssize_t at = 0; at < victims; at++) {
        Processor *victim = core->processors.at[(start + at) % victims];
        if (victim == processor)
            continue;
        for (int which = 0; which < 2; which++) {
            Queue *theirs = which ? &victim->inbox : &victim->queue;
            Queue *mine = which ? &processor->inbox : &processor->queue;
            while (theirs->count > 0) {
                uint32_t loot = (theirs->count + 1) / 2;
                loot = loot < LOOT ? loot : LOOT;
                core->steals++;
                core->stolen += loot;
                for (; loot > 0; loot--)
                    queue_push(mine, queue_take(theirs));
                core_load(core, processor);
                while (mine->count > 0)
                    if (begin(worker, mine == &processor->queue && core->lifo ? queue_pop(mine) : queue_take(mine)))
                        return true;
            }
        }
    }
    return false;
}

/* Begin a task: one that is due first, else the worker's own, else from the injector, else a stolen one. */
bool core_find(Core *core, Worker *worker)
{
    Processor *processor = worker->processor;
    if (processor == NULL || core->excess.count > 0 || core->surplus > 0) {
        processor = processor_for(core, worker);
        if (processor == NULL)
            return false;
    }
    processor->tick++;
    if (processor->mail.count > 0 || injector_is_urgent(&core->injector)) {
        if (find_urgent(core, worker, processor))
            return true;
    } else if (processor->tick % FAIR == 0 && find_outside(core, worker, processor)) {
        return true;
    }
    while (processor->queue.count > 0 || processor->inbox.count > 0) {
        PyObject *task = processor->queue.count == 0 ? queue_take(&processor->inbox)
                         : core->lifo                ? queue_pop(&processor->queue)
                                                     : queue_take(&processor->queue);
        if (begin(worker, task))
            return true;
    }
    if (core->injector.count > 0 && find_outside(core, worker, processor))
        return true;
    if (core->processors.count == 1 || !core_visible(core))
        return false;
    if (steal(core, worker, processor))
        return true;
    if (core->posted && core->searching == 0) {
        /* Nothing is left but mail for a processor that nobody holds and nobody is on the way to: change over to it. */
        for (Py_ssize_t at = 0; at < core->free.count; at++)
            if (((Processor *)core->free.at[at])->mail.count > 0) {
                core_release_processor(core, worker);
                return core_find(core, worker);
            }
    }
    return false;
}

/* Waiting. */

bool is_waiting_here(Core *core, PyObject *future)
{
    if (!is_future(future) || !part(future)->task)
        return false;
    future_pin(future);
    Future *f = part(future);
    return (word_of(f) & STATE) == PENDING && f->home != NULL && ((Frame *)f->home)->core == core;
}

/* Are more than two thirds of the recursion limit in use, or all but a few frames? */
static bool is_deep(bool wholly)
{
    PyThreadState *state = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030c0000
    int limit = state->py_recursion_limit, left = state->py_recursion_remaining;
#if PY_VERSION_HEX < 0x030e0000
    if (state->c_recursion_remaining < (wholly ? 100 : 1000))
        return true;
#endif
#else
    int limit = state->recursion_limit, left = state->recursion_remaining;
#endif
    return wholly ? left < 60 : left < limit / 3;
}

static bool has_relief(Core *core)
{
    return core->sleepers.count > 0 || (core->workers.count < core->max_threads && !core->barren);
}

static void trim(Worker *worker)
{
    Queue *queue = worker->processor != NULL ? &worker->processor->queue : NULL;
    while (queue != NULL && queue->count > 0 &&
           (word_of(part(queue_at(queue, queue->count - 1))) & STATE) != PENDING)
        discard(queue_pop(queue));
}

static bool find_descendant_in(Worker *worker, Queue *queue)
{
    for (uint32_t at = queue->count; at-- > 0;) {
        PyObject *task = queue_at(queue, at);
        if ((word_of(part(task)) & STATE) != PENDING)
            continue;
        Frame *frame = part(task)->home;
        while (frame != NULL && frame != worker->frame)
            frame = frame->above;
        if (frame != NULL && worker_begin(worker, task, true, false)) {
            trim(worker);
            return true;
        }
    }
    return false;
}

static bool find_descendant(Core *core, Worker *worker)
{
    Processor *own = worker->processor;
    if (own != NULL && (find_descendant_in(worker, &own->queue) || find_descendant_in(worker, &own->inbox)))
        return true;
    for (Py_ssize_t at = 0; at < core->laden.count; at++) {
        Processor *other = core->laden.at[at];
        if (other != own && (find_descendant_in(worker, &other->queue) || find_descendant_in(worker, &other->inbox)))
            return true;
    }
    if (!has_relief(core)) /* the injector may be long, and is searched only when nobody can take over */
        for (Py_ssize_t at = 0; at < core->injector.count; at++)
            if (find_descendant_in(worker, &core->injector.lanes[at].queue))
                return true;
    return false;
}

/* Begin what a waiting worker runs meanwhile: a task that it awaits, else a descendant of its own task. -1: there is
   no room on the stack for what must be run here, and the caller raises. */
int core_help(Worker *worker, PyObject **awaited, Py_ssize_t count, bool prompt)
{
    Core *core = worker->core;
    if (worker->isolated)
        return 0;
    bool others = prompt || worker->processor == NULL || worker->depth >= HELP_DEPTH || is_deep(false);
    if (others && has_relief(core))
        return 0;
    if (is_deep(true))
        return -1;
    for (Py_ssize_t at = 0; at < count; at++)
        if (is_waiting_here(core, awaited[at]) && worker_begin(worker, awaited[at], true, false)) {
            trim(worker);
            return 1;
        }
    return worker->frame != NULL && find_descendant(core, worker);
}

static int by_address(const void *one, const void *other)
{
    uintptr_t a = (uintptr_t) * (PyObject *const *)one, b = (uintptr_t) * (PyObject *const *)other;
    return (a > b) - (a < b);
}

/* Put those into the mail that wait here and are not there. */
static void post(Core *core, Queue *mail, PyObject **awaited, Py_ssize_t count)
{
    uint32_t old = mail->count;
    PyObject **there = old && count ? malloc(old * sizeof *there) : NULL;
    for (uint32_t at = 0; at < old && there != NULL; at++)
        there[at] = queue_at(mail, at);
    if (there != NULL)
        qsort(there, old, sizeof *there, by_address);
    for (Py_ssize_t at = 0; at < count; at++)
        if (is_waiting_here(core, awaited[at]) &&
            (there == NULL || bsearch(&awaited[at], there, old, sizeof *there, by_address) == NULL))
            queue_push(mail, Py_NewRef(awaited[at]));
    free(there);
    core->posted = core->posted || mail->count > 0;
}

/* Let go of the processor before a block; true if there is something to take back. Who takes it over runs what is
   awaited first: a stranger might want a lock that the waiting one holds. */
bool core_give_up(Worker *worker, PyObject **awaited, Py_ssize_t count, Worker **helper)
{
    Core *core = worker->core;
    *helper = NULL;
    if (worker->processor == NULL)
        return vector_remove(&core->excess, worker);
    post(core, &worker->processor->mail, awaited, count);
    core_release_processor(core, worker);
    core->handoffs++;
    if (core_visible(core))
        *helper = core_recruit(core, false);
    return true;
}

/* After a block: a processor if one is free, else run in excess until another worker stands down. It may have one: a
   block may be left in another task than it was entered in. */
void core_take_back(Worker *worker)
{
    Core *core = worker->core;
    if (worker->processor != NULL || vector_has(&core->excess, worker))
        return;
    if (core->free.count > 0)
        worker->processor = core->free.at[--core->free.count];
    else
        vector_push(&core->excess, worker);
}
