/* Who runs what and when: admission, calling workers, putting them to sleep, and the end of an engine. */
#include "kernel.h"

static _Thread_local Vector trash;    /* references to drop after the lock */
static _Thread_local Vector starting; /* workers that this thread is to start, or is in the middle of starting */

void discard(void *object)
{
    vector_push(&trash, object);
}

void drop_discarded(void)
{
    while (trash.count > 0)
        Py_DECREF((PyObject *)trash.at[--trash.count]);
    if (trash.room > 64) {
        free(trash.at);
        trash = (Vector){0};
    }
}

static void unlock_and_drop(void)
{
    unlock();
    if (trash.count > 0)
        drop_discarded();
}

/* Making and unmaking. */

static bool core_fill(Core *core)
{
    core->injector = (Injector){0};
    core->processors = core->free = core->laden = (Vector){0};
    core->workers = core->sleepers = core->excess = core->coming = (Vector){0};
    core->surplus = core->searching = 0;
    core->watchers = (Sleepers){NULL, kernel_forks};
    core->ended = core->posted = false;
    for (Py_ssize_t at = 0; at < core->max_workers; at++) {
        Processor *processor = calloc(1, sizeof *processor);
        if (processor == NULL)
            return false;
        vector_push(&core->processors, processor);
    }
    for (Py_ssize_t at = core->max_workers; at-- > 0;)
        vector_push(&core->free, core->processors.at[at]);
    return true;
}

/* The caller sets the rest, and then calls `core_forget` with nothing to forget. */
Core *core_new(void)
{
    Core *core = calloc(1, sizeof *core);
    if (core == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    filch_u32_init(&core->references, 1);
    core->root = frame_new(core, NULL);
    core->root->root = true;
    return core;
}

static void discard_queue(Queue *queue)
{
    PyObject *future;
    while ((future = queue_take(queue)) != NULL)
        discard(future);
    free(queue->slots);
    *queue = (Queue){0};
}

/* Be as new, without threads and tasks. Under the lock. */
bool core_forget(Core *core)
{
    while (core->injector.count > 0)
        discard(injector_take(&core->injector, false));
    free(core->injector.lanes);
    for (Py_ssize_t at = 0; at < core->processors.count; at++) {
        Processor *processor = core->processors.at[at];
        discard_queue(&processor->queue);
        discard_queue(&processor->inbox);
        discard_queue(&processor->mail);
        free(processor);
    }
    for (Py_ssize_t at = 0; at < core->workers.count; at++)
        discard(core->workers.at[at]);
    Vector *lists[] = {&core->processors, &core->free,   &core->laden, &core->workers,
                       &core->sleepers,   &core->excess, &core->coming};
    for (size_t at = 0; at < sizeof lists / sizeof *lists; at++)
        free(lists[at]->at);
    return core_fill(core);
}

void core_release(Core *core)
{
    if (filch_u32_fetch_add_acq_rel(&core->references, UINT32_MAX) != 1)
        return;
    lock();
    if (core->link != NULL) {
        *core->link = core->next;
        if (core->next != NULL)
            core->next->link = core->link;
    }
    core->max_workers = 0;
    core_forget(core);
    core->root->core = NULL;
    Frame *root = core->root;
    unlock_and_drop();
    frame_release(root);
    free(core->processors.at);
    free(core->free.at);
    Py_XDECREF(core->engine);
    Py_XDECREF(core->start_thread);
    Py_XDECREF(core->prologue);
    Py_XDECREF(core->broken);
    free(core);
}

/* Admission. */

/* After something was put into its queue or inbox, so that a search walks no processor in vain. */
void core_load(Core *core, Processor *processor)
{
    if (!processor->laden) {
        processor->laden = true;
        vector_push(&core->laden, processor);
    }
}

static void push(Core *core, Processor *processor, PyObject *future, int64_t priority)
{
    if (processor == NULL || priority != 0) {
        injector_push(&core->injector, future, priority);
        return;
    }
    if (processor->queue.count >= RING) {
        for (unsigned at = 0; at < RING / 2; at++)
            injector_push(&core->injector, queue_take(&processor->queue), 0);
        core->spilled += RING / 2;
    }
    queue_push(&processor->queue, future);
    core_load(core, processor);
}

Frame *worker_open_frame(Worker *worker)
{
    if (worker->frame == NULL)
        worker->frame = frame_new(worker->core, frame_living(worker->home));
    return worker->frame;
}

static bool may_still_spawn(Core *core, Worker *worker)
{
    return worker != NULL && worker->core == core && task_of(worker) != NULL &&
           (worker->home == core->root || frame_living(worker->home) != core->root);
}

/* Under the lock. */
static enum refusal refusal_of(Core *core, Worker *worker, bool on_main)
{
    if (core->broken != NULL)
        return BROKEN;
    if (core->ended || (core->closed && !(core->draining && may_still_spawn(core, worker))))
        return CLOSED;
    return filch_u32_load_relaxed(&kernel.main_ended) && on_main ? AT_EXIT : ADMITTED;
}

static PyObject *broken_error(PyObject *cause)
{
    return PyObject_CallOneArg(kernel.help.broken_error, cause);
}

static int raise_refusal(Core *core, enum refusal why)
{
    if (why == BROKEN) {
        PyObject *error = broken_error(core->broken);
        if (error != NULL)
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_XDECREF(error);
    } else if (why == CLOSED) {
        PyErr_SetString(kernel.shutdown,
                        "cannot schedule new futures after shutdown; keep the pool open until its last submit");
    } else {
        PyErr_SetString(kernel.shutdown, "cannot schedule new futures after interpreter shutdown; submit before the "
                                         "program ends");
    }
    return -1;
}

static int is_on_main(void)
{
    PyObject *answer = PyObject_CallNoArgs(kernel.help.is_on_main);
    int yes = answer == NULL ? -1 : answer == Py_True;
    Py_XDECREF(answer);
    return yes;
}

int core_admit(Core *core, PyObject *future, int64_t priority, bool owed)
{
    Worker *worker = here, *helper = NULL;
    Future *f = part(future);
    int on_main = 0;
    if (filch_u32_load_relaxed(&kernel.main_ended) && (on_main = is_on_main()) < 0)
        return -1;
    Py_INCREF(future);
    lock();
    if ((core->refusing && !(owed && core->draining)) || core->ended) {
        enum refusal why = refusal_of(core, worker, on_main);
        if (why != ADMITTED) {
            unlock();
            Py_DECREF(future);
            return raise_refusal(core, why);
        }
    }
    core->submitted++;
    if (worker == NULL || worker->core != core || task_of(worker) == NULL) {
        f->home = core->root;
        filch_u32_fetch_add_acq_rel(&core->root->references, 1);
        injector_push(&core->injector, future, priority);
    } else {
        Frame *frame = worker_open_frame(worker);
        f->home = frame;
        filch_u32_fetch_add_acq_rel(&frame->references, 1);
        push(core, worker->processor, future, priority);
    }
    if (core->free.count > 0)
        helper = core_recruit(core, false);
    unlock();
    if (helper == NULL || core_start(helper) >= 0)
        return 0;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    bool odd = !PyErr_GivenExceptionMatches(type, PyExc_Exception);
    Py_XDECREF(future_cancel(future, NULL));
    PyErr_Clear();
    core_go_on(core);
    if (odd || is_done(word_of(f))) {
        PyErr_Restore(type, error, traceback);
        return -1;
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return 0;
}

/* Clear away what has ended, and call somebody for what has not. Leaves no error. */
void core_go_on(Core *core)
{
    Worker *helper = NULL;
    lock();
    core_sweep(core);
    if (core->coming.count > 0 || (core->free.count > 0 && core_visible(core)))
        helper = core_recruit(core, false);
    core_ends(core, NULL);
    unlock_and_drop();
    if (helper != NULL && core_start(helper) < 0)
        PyErr_Clear(); /* what was queued has ended with it */
}

/* Calling workers and putting them to sleep. All under the lock, but for `core_start` and what calls it. */

static bool is_laden(Core *core)
{
    while (core->laden.count > 0) {
        Processor *processor = vector_last(&core->laden);
        if (processor->queue.count || processor->inbox.count)
            return true;
        processor->laden = false;
        core->laden.count--;
    }
    return false;
}

static bool has_post(Core *core)
{
    core->posted = false;
    for (Py_ssize_t at = 0; at < core->processors.count && !core->posted; at++)
        core->posted = ((Processor *)core->processors.at[at])->mail.count > 0;
    for (Py_ssize_t at = 0; core->posted && at < core->free.count; at++)
        if (((Processor *)core->free.at[at])->mail.count > 0)
            return true;
    return false;
}

bool core_visible(Core *core)
{
    return core->injector.count > 0 || is_laden(core) || (core->posted && has_post(core));
}

static void wake(Core *core)
{
    if (core->sleepers.count == 0)
        return;
    Worker *worker = core->sleepers.at[--core->sleepers.count];
    core->wakes++;
    core->searching++;
    worker->called = true;
    worker->asleep = false;
    filch_parker_unpark(&worker->seat->parker);
}

static Py_ssize_t free_number(Core *core)
{
    for (Py_ssize_t number = 0;; number++) {
        Py_ssize_t at = 0;
        while (at < core->workers.count && ((Worker *)core->workers.at[at])->number != number)
            at++;
        if (at == core->workers.count)
            return number;
    }
}

/* Call one worker for work that became visible; one that is to be started is returned. Nobody is called while another
   is on its way, unless `every`; new threads come while more tasks wait than that. */
Worker *core_recruit(Core *core, bool every)
{
    if (core->coming.count > 0 && !every)
        return vector_last(&core->coming);
    if (core->searching >= core->free.count)
        return NULL;
    if (core->sleepers.count > 0) {
        if (every || core->searching == 0)
            wake(core);
        return NULL;
    }
    uint64_t queued = core->injector.length + is_laden(core);
    if (core->posted)
        for (Py_ssize_t at = 0; at < core->processors.count; at++)
            queued += ((Processor *)core->processors.at[at])->mail.count > 0;
    if ((core->searching && (uint64_t)core->searching >= queued && !every) || core->workers.count >= core->max_threads)
        return NULL;
    PyObject *worker = worker_new(core, free_number(core));
    if (worker == NULL) {
        PyErr_Clear();
        return NULL;
    }
    core->threads_started++;
    core->searching++;
    ((Worker *)worker)->entered = true;
    vector_push(&core->workers, worker);
    vector_push(&core->coming, worker);
    Py_INCREF(worker);
    vector_push(&starting, worker);
    return (Worker *)worker;
}

static void forsake(Core *core, Worker *worker)
{
    vector_remove(&core->coming, worker);
    if (vector_remove(&core->workers, worker)) {
        worker->entered = false;
        core->searching--;
        core->threads_started--;
        discard(worker);
    }
    if (core->sleepers.count > 0 && core->searching == 0 && core_visible(core))
        wake(core);
    core_ends(core, NULL);
}

static void end_queued(Core *core, PyObject *cause, bool broken, PyObject **doomed, Py_ssize_t count)
{
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *error = broken ? broken_error(cause) : PyObject_CallOneArg(kernel.help.no_thread, cause);
        PyObject *failure = error ? failure_new(error, NULL, true) : NULL;
        if (failure != NULL && future_settle(doomed[at], PENDING, FINISHED, failure))
            future_tell(doomed[at]);
        else
            Py_XDECREF(failure);
        if (PyErr_Occurred())
            PyErr_WriteUnraisable(doomed[at]);
        Py_XDECREF(error);
        Py_DECREF(doomed[at]);
    }
    PyMem_RawFree(doomed);
    lock();
    core_sweep(core);
    unlock_and_drop();
}

int core_start(Worker *worker)
{
    Core *core = worker->core;
    Py_INCREF(worker);
    filch_u32_fetch_add_acq_rel(&core->references, 1);
    lock();
    bool mine = vector_remove(&core->coming, worker);
    unlock();
    int result = 1;
    if (mine) {
        PyObject *run = PyObject_GetAttr((PyObject *)worker, kernel.str_main);
        PyObject *thread = run ? PyObject_CallFunction(core->start_thread, "On", run, worker->number) : NULL;
        Py_XDECREF(run);
        if (thread != NULL) {
            lock();
            PyObject *old = worker->thread;
            worker->thread = thread;
            core->barren = false;
            unlock();
            Py_XDECREF(old);
        } else {
            result = -1;
        }
    }
    if (result < 0) {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        PyErr_NormalizeException(&type, &error, &traceback);
        if (traceback != NULL)
            PyException_SetTraceback(error, traceback);
        bool usual = PyErr_GivenExceptionMatches(type, PyExc_RuntimeError) ||
                     PyErr_GivenExceptionMatches(type, PyExc_OSError) ||
                     PyErr_GivenExceptionMatches(type, PyExc_MemoryError);
        bool ordinary = PyErr_GivenExceptionMatches(type, PyExc_Exception);
        lock();
        bool lost = !worker->begun && worker->entered;
        bool alone = false, warned = core->warned;
        if (lost) {
            forsake(core, worker);
            alone = core->workers.count == 0;
            core->warned = core->barren = true;
        }
        Py_ssize_t count = 0;
        PyObject **doomed = lost && ordinary && (alone || !usual) ? core_queued(core, &count) : NULL;
        Py_ssize_t left = core->workers.count;
        unlock_and_drop();
        if (doomed != NULL)
            end_queued(core, error, false, doomed, count);
        if (lost && usual && !alone) {
            result = 0;
            if (!warned)
                Py_XDECREF(PyObject_CallFunction(kernel.help.warn_of_threads, "On", error, left));
            if (PyErr_Occurred())
                PyErr_WriteUnraisable(NULL);
            Py_XDECREF(type);
            Py_XDECREF(error);
            Py_XDECREF(traceback);
        } else {
            PyErr_Restore(type, error, traceback);
        }
    }
    if (vector_remove(&starting, worker))
        Py_DECREF(worker);
    Py_DECREF(worker);
    core_release(core);
    return result;
}

/* This thread is about to wait, maybe for a worker that it is itself in the middle of starting, if a signal handler or
   a destructor came in there: another takes that one's place, and one that was not begun is started. */
void core_replace_own(void)
{
    while (starting.count > 0) {
        Worker *worker = starting.at[--starting.count];
        Core *core = worker->core;
        lock();
        bool begun = worker->begun || !worker->entered;
        bool halfway = !begun && !vector_has(&core->coming, worker);
        if (halfway)
            forsake(core, worker);
        unlock_and_drop();
        if (halfway)
            core_go_on(core);
        else if (!begun && core_start(worker) < 0)
            PyErr_Clear();
        Py_DECREF(worker);
    }
}

void core_release_processor(Core *core, Worker *worker)
{
    Processor *processor = worker->processor;
    if (processor == NULL)
        return;
    worker->processor = NULL;
    if (core->surplus > 0) {
        core->surplus--;
        vector_remove(&core->processors, processor);
        vector_remove(&core->laden, processor);
        Queue *queues[] = {&processor->mail, &processor->inbox, &processor->queue};
        for (int at = 0; at < 3; at++) {
            PyObject *future;
            while ((future = queue_take(queues[at])) != NULL)
                injector_push(&core->injector, future, 0);
            free(queues[at]->slots);
        }
        free(processor);
    } else {
        vector_push(&core->free, processor);
    }
}

static void arrive(Core *core, Worker *worker)
{
    if (worker->called) {
        worker->called = false;
        core->searching--;
    } else if (worker->asleep) {
        vector_remove(&core->sleepers, worker);
        worker->asleep = false;
    }
}

static void strike_off(Core *core, Worker *worker)
{
    if (vector_remove(&core->workers, worker)) {
        worker->entered = false;
        discard(worker);
    }
}

static void leave(Core *core, Worker *worker)
{
    core_release_processor(core, worker);
    arrive(core, worker);
    strike_off(core, worker);
    core_ends(core, NULL);
}

bool core_is_idle(Core *core)
{
    return core->ended ||
           (core->sleepers.count == core->workers.count && core->coming.count == 0 && !core_visible(core));
}

/* Tell who waits for it if the engine is idle; true if it is over, and `worker` has been taken off. */
bool core_ends(Core *core, Worker *worker)
{
    if (!core->ended && core_is_idle(core)) {
        wake_all(&core->watchers);
        core->ended = core->closed;
    }
    if (core->ended && worker != NULL) {
        arrive(core, worker);
        strike_off(core, worker);
    }
    while (core->ended && core->sleepers.count > 0)
        wake(core);
    return core->ended;
}

static bool retires(Core *core, Worker *worker)
{
    lock();
    bool over = worker->asleep && core->workers.count > core->max_workers;
    if (over)
        leave(core, worker);
    unlock_and_drop();
    return over;
}

/* Run the prologue; if it fails, end what is queued with error. 0: the thread is to end. */
int core_begin_thread(Worker *worker)
{
    Core *core = worker->core;
    for (int attempt = 1; core->prologue != NULL; attempt++) {
        PyObject *none = PyObject_CallNoArgs(core->prologue);
        if (none != NULL) {
            Py_DECREF(none);
            return 1;
        }
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        PyErr_NormalizeException(&type, &error, &traceback);
        if (traceback != NULL)
            PyException_SetTraceback(error, traceback);
        Py_XDECREF(PyObject_CallOneArg(kernel.help.initializer_failed, error));
        if (PyErr_Occurred())
            PyErr_WriteUnraisable(NULL);
        bool over = !core->restart || attempt == 3;
        if (over) {
            lock();
            Py_ssize_t count;
            PyObject **doomed = core_queued(core, &count);
            PyObject *old = NULL;
            if (!core->restart) {
                old = core->broken;
                core->broken = Py_NewRef(error);
                core->refusing = core->closed = true;
            }
            unlock_and_drop();
            Py_XDECREF(old);
            end_queued(core, error, true, doomed, count);
            lock();
            leave(core, worker);
            Worker *helper = core_visible(core) ? core_recruit(core, false) : NULL;
            unlock_and_drop();
            if (helper != NULL && core_start(helper) < 0)
                PyErr_Clear();
        }
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
        if (over)
            return 0;
    }
    return 1;
}

/* Size and end. */

static int start_all(Core *core)
{
    /* Each start takes its worker off the list. */
    for (;;) {
        lock();
        Worker *worker = core->coming.count ? core->coming.at[0] : NULL;
        Py_XINCREF(worker);
        unlock();
        if (worker == NULL)
            return 0;
        int result = core_start(worker);
        Py_DECREF(worker);
        if (result < 0)
            return -1;
    }
}

int core_resize(Core *core, Py_ssize_t max_workers, Py_ssize_t max_threads)
{
    lock();
    core->max_threads = max_threads;
    Py_ssize_t change = max_workers - core->processors.count;
    core->max_workers = max_workers;
    core->surplus = change < 0 ? -change : 0;
    for (Py_ssize_t at = 0; at < change; at++) {
        Processor *processor = calloc(1, sizeof *processor);
        if (processor == NULL) {
            core->max_workers = core->processors.count;
            unlock();
            PyErr_NoMemory();
            return -1;
        }
        vector_push(&core->processors, processor);
        vector_push(&core->free, processor);
    }
    while (core->surplus > 0 && core->free.count > 0) {
        Worker nobody = {.processor = core->free.at[--core->free.count]};
        core_release_processor(core, &nobody);
    }
    if (core_visible(core))
        for (Py_ssize_t at = 0; at < change; at++)
            core_recruit(core, true);
    if (core->workers.count > max_workers) {
        Py_ssize_t first = max_workers - core->workers.count + core->sleepers.count;
        for (Py_ssize_t many = core->sleepers.count - (first < 0 ? 0 : first); many > 0; many--)
            wake(core); /* to learn that its patience has a limit now */
    }
    unlock_and_drop();
    return start_all(core);
}

int core_broadcast(Core *core, PyObject **tasks, Py_ssize_t count)
{
    int on_main = 0;
    if (filch_u32_load_relaxed(&kernel.main_ended) && (on_main = is_on_main()) < 0)
        return -1;
    lock();
    enum refusal why = core->refusing || core->ended ? refusal_of(core, here, on_main) : ADMITTED;
    if (why == ADMITTED && count != core->processors.count)
        why = ADMITTED + 100;
    if (why != ADMITTED) {
        unlock();
        return why == ADMITTED + 100 ? 1 : raise_refusal(core, why);
    }
    core->submitted += (uint64_t)count;
    for (Py_ssize_t at = 0; at < count; at++) {
        part(tasks[at])->home = core->root;
        filch_u32_fetch_add_acq_rel(&core->root->references, 1);
        queue_push(&((Processor *)core->processors.at[at])->mail, Py_NewRef(tasks[at]));
        core->posted = true;
    }
    for (Py_ssize_t many = core->free.count; many > 0; many--)
        core_recruit(core, true);
    unlock_and_drop();
    return start_all(core);
}

void core_close(Core *core, bool drain)
{
    lock();
    core->draining = drain && (core->draining || !core->closed);
    core->closed = core->refusing = true;
    Worker *helper = core_visible(core) || core->coming.count > 0 ? core_recruit(core, false) : NULL;
    core_ends(core, NULL);
    unlock_and_drop();
    if (helper != NULL && core_start(helper) < 0)
        PyErr_Clear();
}

/* Close, called by a destructor: it may run anywhere, so it starts no thread. */
void core_abandon(Core *core)
{
    lock();
    if (!core->closed) {
        core->draining = core->closed = core->refusing = true;
        if (core_visible(core) && core->coming.count == 0 && core->sleepers.count > 0 && core->searching == 0)
            wake(core);
        core_ends(core, NULL);
    }
    unlock_and_drop();
}

/* All are cancelled before the first callback runs. */
Py_ssize_t core_cancel_pending(Core *core)
{
    core_close(core, false);
    lock();
    Py_ssize_t count, cancelled = 0;
    PyObject **queued = core_queued(core, &count);
    unlock_and_drop();
    for (Py_ssize_t at = 0; at < count; at++)
        if (future_settle(queued[at], PENDING, NOTIFIED, NULL))
            queued[cancelled++] = queued[at];
        else
            Py_DECREF(queued[at]);
    PyObject *type = NULL, *error = NULL, *traceback = NULL;
    for (Py_ssize_t at = 0; at < cancelled; at++) {
        future_tell(queued[at]);
        if (type == NULL)
            PyErr_Fetch(&type, &error, &traceback);
        PyErr_Clear();
        Py_DECREF(queued[at]);
    }
    PyMem_RawFree(queued);
    lock();
    core_sweep(core);
    core_ends(core, NULL);
    unlock_and_drop();
    PyErr_Restore(type, error, traceback);
    return type != NULL ? -1 : cancelled;
}

static bool is_stale(PyObject *future)
{
    return (word_of(part(future)) & STATE) != PENDING;
}

static void sweep_queue(Queue *queue)
{
    while (queue->count && is_stale(queue_at(queue, 0)))
        discard(queue_take(queue));
}

/* Drop what has ended from the heads of the queues, so that what is visible is work. */
void core_sweep(Core *core)
{
    Injector *injector = &core->injector;
    for (Py_ssize_t at = injector->count; at-- > 0;) {
        Queue *queue = &injector->lanes[at].queue;
        uint32_t before = queue->count;
        sweep_queue(queue);
        injector->length -= before - queue->count;
        if (queue->count == 0) {
            free(queue->slots);
            injector->count--;
            memmove(injector->lanes + at, injector->lanes + at + 1,
                    (size_t)(injector->count - at) * sizeof *injector->lanes);
        }
    }
    for (Py_ssize_t at = 0; at < core->processors.count; at++) {
        Processor *processor = core->processors.at[at];
        sweep_queue(&processor->mail);
        sweep_queue(&processor->inbox);
        sweep_queue(&processor->queue);
    }
}

static void gather(Queue *queue, PyObject ***all, Py_ssize_t *count, Py_ssize_t *room)
{
    for (uint32_t at = 0; at < queue->count; at++) {
        PyObject *future = queue_at(queue, at);
        if (is_stale(future))
            continue;
        if (*count == *room) {
            *room = *room * 2 + 64;
            *all = PyMem_RawRealloc(*all, (size_t)*room * sizeof **all);
            if (*all == NULL)
                Py_FatalError("filch: no memory for a list of tasks");
        }
        (*all)[(*count)++] = Py_NewRef(future);
    }
}

/* The tasks that have not started; new references, in memory of PyMem_RawMalloc. Under the lock. */
PyObject **core_queued(Core *core, Py_ssize_t *count)
{
    PyObject **all = NULL;
    Py_ssize_t room = 0;
    *count = 0;
    for (Py_ssize_t at = 0; at < core->injector.count; at++)
        gather(&core->injector.lanes[at].queue, &all, count, &room);
    for (Py_ssize_t at = 0; at < core->processors.count; at++) {
        Processor *processor = core->processors.at[at];
        gather(&processor->mail, &all, count, &room);
        gather(&processor->inbox, &all, count, &room);
        gather(&processor->queue, &all, count, &room);
    }
    return all;
}

/* Futures that have no end yet, running ones first, then queued ones; new references. Under the lock. */
void core_unfinished(Core *core, Vector *futures)
{
    for (Py_ssize_t at = 0; at < core->workers.count; at++) {
        Worker *worker = core->workers.at[at];
        for (Py_ssize_t under = 0; under <= worker->depth; under++) {
            PyObject *task = under < worker->depth ? worker->stack[under].task : worker->task;
            if (task != NULL && !is_done(word_of(part(task))))
                vector_push(futures, Py_NewRef(task));
        }
    }
    Py_ssize_t count;
    PyObject **queued = core_queued(core, &count);
    for (Py_ssize_t at = 0; at < count; at++)
        vector_push(futures, queued[at]);
    PyMem_RawFree(queued);
}

/* The next task of a worker that has none; sleeps until there is one. False: the thread is to end. */
bool core_next(Worker *worker)
{
    Core *core = worker->core;
    bool breathed = false;
    for (;;) {
        Worker *helper = NULL;
        enum { FOUND, BREATHE, AGAIN, PARK, END } then = FOUND;
        uint64_t deadline = FILCH_FOREVER;
        lock();
        if (worker->over) {
            discard(worker->task);
            worker->task = NULL;
            worker->over = false;
        }
        if (worker->processor == NULL) {
            if (!worker->entered) {
                unlock_and_drop();
                return false; /* a forked child has forgotten it */
            }
            arrive(core, worker);
        }
        if (core_find(core, worker)) {
            if (core->free.count > 0 && core->searching == 0 && core_visible(core))
                helper = core_recruit(core, false);
        } else if (trash.count > 0 || (!breathed && worker->processor != NULL)) {
            then = BREATHE; /* before it is among the sleepers: destructors run here, and may wait */
        } else {
            core->parks++;
            core_release_processor(core, worker);
            worker->asleep = true;
            vector_push(&core->sleepers, worker);
            then = PARK;
            if (core->free.count > 0 && core->searching == 0 && core_visible(core))
                then = AGAIN;
            else if (core_ends(core, worker))
                then = END;
            else if (core->workers.count > core->max_workers && core->keep_alive < 1e9)
                deadline = filch_deadline_in((uint64_t)(core->keep_alive * 1e9));
        }
        unlock_and_drop();
        if (helper != NULL && core_start(helper) < 0)
            PyErr_Clear();
        if (then == FOUND || then == END)
            return then == FOUND;
        breathed = then == BREATHE;
        if (breathed) {
            worker_breathe(worker);
            continue;
        }
        if (then == AGAIN)
            continue;
        if (seat_sleep(worker->seat, deadline) == FILCH_TIMEOUT && retires(core, worker))
            return false;
    }
}
