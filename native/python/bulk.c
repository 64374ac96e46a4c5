/* Many calls of one function: the function and the context are held once, results are kept by index.

   A runner is a task that makes one call after the other; while calls are left, one runner waits in a queue for whoever
   has nothing to do. */
#include "kernel.h"

#include <stddef.h>

typedef struct Spot { /* somebody who waits for a call; under the lock */
    struct Spot *next;
    Py_ssize_t index;
    Sleepers sleepers;
    Py_ssize_t waiters;
} Spot;

typedef struct Making { /* a runner that makes a call now; under the lock */
    Py_ssize_t index;
    PyObject *task;
} Making;

struct Bulk {
    PyObject_HEAD
    Core *core;
    PyObject *fn, *context, *name;
    PyObject **items, **outcomes; /* `size` of each; an outcome is NULL before its end and after it was handed over */
    unsigned char *ended;
    Py_ssize_t size, cursor, grain;
    int64_t priority;
    bool bare, abandoned, lost_set;
    PyObject *lost; /* why calls that have no outcome will have none */
    PyObject *waiting_runner;
    Spot *spots;
    uint32_t forks; /* as in `Sleepers`: spots from before a fork are gone */
    Vector making; /* Making, one for each that runs */
    uint64_t generation;
    PyObject *awaited[1];
};

static int launch(Bulk *bulk, bool owed)
{
    PyObject *runner = future_new_task((PyObject *)bulk, NULL, 0);
    if (runner == NULL)
        return -1;
    Future *f = part(runner);
    f->runner = f->bare = true;
    f->extra = PyMem_RawCalloc(1, sizeof *f->extra);
    if (f->extra == NULL) {
        Py_DECREF(runner);
        PyErr_NoMemory();
        return -1;
    }
    f->extra->name = Py_NewRef(bulk->name);
    lock();
    PyObject *old = bulk->waiting_runner;
    bulk->waiting_runner = Py_NewRef(runner);
    unlock();
    Py_XDECREF(old);
    int result = core_admit(bulk->core, runner, bulk->priority, owed);
    if (result < 0) { /* refused: it and the bulk would keep each other */
        lock();
        bool refused = f->home == NULL && (word_of(f) & STATE) == PENDING;
        old = refused && bulk->waiting_runner == runner ? runner : NULL;
        if (old != NULL)
            bulk->waiting_runner = NULL;
        if (refused)
            f->runner = false;
        unlock();
        Py_XDECREF(old);
    }
    Py_DECREF(runner);
    return result;
}

static void freshen(Bulk *bulk)
{
    if (bulk->forks != kernel_forks) {
        bulk->forks = kernel_forks;
        bulk->spots = NULL;
        bulk->making.count = 0;
    }
}

static void wake_spots(Bulk *bulk, Py_ssize_t index)
{
    freshen(bulk);
    for (Spot *spot = bulk->spots; spot != NULL; spot = spot->next)
        if (index < 0 || spot->index == index)
            wake_all(&spot->sleepers);
}

/* Nobody will make the calls that are left. Steals `error`. */
static void end_all(Bulk *bulk, PyObject *error)
{
    lock();
    if (bulk->lost == NULL)
        bulk->lost = error;
    else
        discard(error);
    bulk->cursor = bulk->size;
    wake_spots(bulk, -1);
    unlock();
    drop_discarded();
}

static PyObject *new_cancelled(void)
{
    PyObject *error = PyObject_CallNoArgs(kernel.cancelled_error);
    if (error == NULL) {
        PyErr_Clear();
        error = Py_NewRef(Py_None);
    }
    return error;
}

/* A runner has ended; if it never ran, the calls that are left have no result. */
void bulk_lose(PyObject *runner)
{
    Future *f = part(runner);
    uint32_t state = word_of(f) & STATE;
    PyObject *value = state == EXPIRED ? f->side->outcome : f->value;
    Bulk *bulk = (Bulk *)f->args[0]; /* `future_drop_call` moved it there */
    if (bulk == NULL)
        return;
    if (state >= CANCELLED)
        end_all(bulk, new_cancelled());
    else if (value != NULL && Py_IS_TYPE(value, kernel.failure_type)) {
        failure_asked(value);
        end_all(bulk, Py_NewRef(((Failure *)value)->error));
    }
    f->args[0] = NULL;
    Py_DECREF(bulk);
}

/* Has something in the injector a claim to this worker now? */
static bool is_due(Bulk *bulk, Worker *worker, Py_ssize_t turn)
{
    Core *core = bulk->core;
    Processor *processor = worker->processor;
    if (turn % FAIR == 0 && processor != NULL && (core->injector.count > 0 || processor->inbox.count > 0)) {
        processor->tick = UINT64_MAX; /* the next dispatch looks there first */
        return true;
    }
    Injector *injector = &core->injector;
    int64_t floor = bulk->priority > 0 ? bulk->priority : 0;
    return injector->count > 0 && injector->lanes[injector->count - 1].priority > floor;
}

static PyObject *call_item(Bulk *bulk, PyObject *item)
{
    return PyObject_Vectorcall(bulk->fn, &PyTuple_GET_ITEM(item, 0), (size_t)PyTuple_GET_SIZE(item), NULL);
}

static PyObject *call_one(Bulk *bulk, PyObject *item, PyObject **scratch)
{
    if (bulk->bare)
        return call_item(bulk, item);
    PyObject *context = *scratch;
    *scratch = NULL;
    if (bulk->context != NULL) {
        Py_XDECREF(context);
        context = PyContext_Copy(bulk->context);
    } else if (context == NULL || Py_REFCNT(context) > 1 || PyObject_Size(context) != 0) {
        Py_XDECREF(context);
        context = PyContext_New();
    }
    if (context == NULL || PyContext_Enter(context) < 0) {
        Py_XDECREF(context);
        return NULL;
    }
    PyObject *result = call_item(bulk, item);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyContext_Exit(context);
    PyErr_Restore(type, error, traceback);
    *scratch = context;
    return result;
}

/* What a runner does: returns None, or NULL with an error. */
PyObject *bulk_work(Worker *worker, PyObject *self)
{
    Bulk *bulk = (Bulk *)self;
    lock();
    bool more = bulk->cursor + bulk->grain < bulk->size;
    unlock();
    if (more && launch(bulk, true) < 0) {
        if (!PyErr_ExceptionMatches(kernel.shutdown))
            return NULL;
        PyErr_Clear();
        end_all(bulk, new_cancelled());
        Py_RETURN_NONE;
    }
    Py_INCREF(self);
    Making making = {-1, worker->task};
    Py_ssize_t index = -1, stop = 0, turn = 0;
    PyObject *outcome = NULL, *scratch = NULL;
    lock();
    vector_push(&bulk->making, &making);
    unlock();
    for (;;) {
        bool failed = outcome != NULL && Py_IS_TYPE(outcome, kernel.failure_type);
        lock();
        bool asked = failed && bulk->abandoned;
        if (index >= 0) {
            bulk->outcomes[index] = outcome;
            bulk->ended[index] = 1;
            if (bulk->spots != NULL)
                wake_spots(bulk, index);
        }
        if (bulk->lost != NULL) {
            index = -1;
        } else if (index + 1 < stop) {
            index++;
        } else if (bulk->cursor >= bulk->size || (turn && is_due(bulk, worker, turn))) {
            index = -1;
        } else {
            index = bulk->cursor;
            stop = bulk->size - index > bulk->grain ? index + bulk->grain : bulk->size;
            bulk->cursor = stop;
            turn++;
        }
        making.index = index;
        PyObject *item = index >= 0 ? bulk->items[index] : NULL;
        if (index >= 0)
            bulk->items[index] = NULL;
        else
            vector_remove(&bulk->making, &making);
        unlock();
        if (asked)
            failure_asked(outcome);
        if (item == NULL)
            break;
        outcome = call_one(bulk, item, &scratch);
        if (outcome == NULL) {
            outcome = failure_from_raised(bulk->name);
            if (outcome == NULL) {
                PyErr_Clear();
                outcome = Py_NewRef(Py_None);
            }
        }
        Py_DECREF(item);
    }
    Py_XDECREF(scratch);
    Py_DECREF(self);
    Py_RETURN_NONE;
}

PyObject *bulk_new(Core *core, PyObject *fn, PyObject *items, int64_t priority, PyObject *context, bool bare,
                   Py_ssize_t grain)
{
    PyObject *fast = PySequence_Fast(items, "items must be a sequence of argument tuples");
    if (fast == NULL)
        return NULL;
    Bulk *bulk = PyObject_GC_New(Bulk, kernel.bulk_type);
    if (bulk == NULL) {
        Py_DECREF(fast);
        return NULL;
    }
    memset((char *)bulk + sizeof(PyObject), 0, sizeof *bulk - sizeof(PyObject));
    Py_ssize_t size = PySequence_Fast_GET_SIZE(fast);
    bulk->core = core;
    filch_u32_fetch_add_acq_rel(&core->references, 1);
    bulk->fn = Py_NewRef(fn);
    bulk->context = Py_XNewRef(context);
    bulk->bare = bare;
    bulk->priority = priority;
    bulk->grain = grain;
    bulk->generation = core->generation;
    bulk->forks = kernel_forks;
    bulk->name = name_of(fn, NULL);
    bulk->items = PyMem_RawCalloc((size_t)size + 1, sizeof *bulk->items);
    bulk->outcomes = PyMem_RawCalloc((size_t)size + 1, sizeof *bulk->outcomes);
    bulk->ended = PyMem_RawCalloc((size_t)size + 1, 1);
    bool good = bulk->name && bulk->items && bulk->outcomes && bulk->ended;
    if (!good && !PyErr_Occurred())
        PyErr_NoMemory();
    for (; good && bulk->size < size; bulk->size++) {
        PyObject *item = PySequence_Fast_GET_ITEM(fast, bulk->size);
        bulk->items[bulk->size] = PyTuple_Check(item) ? Py_NewRef(item) : PySequence_Tuple(item);
        good = bulk->items[bulk->size] != NULL;
    }
    Py_DECREF(fast);
    PyObject_GC_Track(bulk);
    if (!good || (size > 0 && launch(bulk, false) < 0)) {
        Py_DECREF(bulk);
        return NULL;
    }
    return (PyObject *)bulk;
}

typedef struct {
    Bulk *bulk;
    Py_ssize_t index;
} Place;

static bool is_over(void *context)
{
    Place *place = context;
    return place->bulk->ended[place->index] || place->bulk->lost != NULL;
}

/* Whom somebody who waits for a call waits for: its runner; while it has none, the one that is still in a queue. */
static void refresh(Wait *wait)
{
    Place *place = wait->context;
    Bulk *bulk = place->bulk;
    wait->count = 0;
    for (Py_ssize_t at = 0; at < bulk->making.count; at++) {
        Making *making = bulk->making.at[at];
        if (making->index == place->index) {
            bulk->awaited[0] = making->task;
            wait->count = 1;
        }
    }
    if (wait->count == 0 && bulk->waiting_runner != NULL &&
        (word_of(part(bulk->waiting_runner)) & STATE) == PENDING) {
        bulk->awaited[0] = bulk->waiting_runner;
        wait->count = 1;
    }
    wait->awaited = bulk->awaited;
}

static int await_call(Bulk *bulk, Py_ssize_t index, PyObject *timeout)
{
    uint64_t deadline;
    bool timed;
    if (deadline_from(timeout, &deadline, &timed) < 0)
        return -1;
    if (bulk->generation != bulk->core->generation) {
        PyObject *error = PyObject_CallFunction(
            kernel.forked, "s", "these calls belong to the parent process; make them anew in the child");
        if (error == NULL)
            return -1;
        end_all(bulk, error);
        return 0;
    }
    Spot spot = {NULL, index, {NULL, kernel_forks}, 0};
    Place place = {bulk, index};
    Wait wait = {is_over, &place, &spot.sleepers, bulk->awaited, 0, true, refresh, true};
    lock();
    freshen(bulk);
    spot.next = bulk->spots;
    bulk->spots = &spot;
    unlock();
    enum waited how = wait_for(&wait, deadline, timed);
    lock();
    for (Spot **link = &bulk->spots; *link != NULL; link = &(*link)->next)
        if (*link == &spot) {
            *link = spot.next;
            break;
        }
    unlock();
    if (how == WAITED_TIMEOUT)
        PyErr_SetNone(PyExc_TimeoutError);
    return how == WAITED_DONE ? 0 : -1;
}

static PyObject *bulk_result(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"index", "timeout", NULL};
    Bulk *bulk = (Bulk *)self;
    Py_ssize_t index;
    PyObject *timeout = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n|O:result", names, &index, &timeout))
        return NULL;
    if (index < 0)
        index += bulk->size;
    if (index < 0 || index >= bulk->size) {
        PyErr_SetString(PyExc_IndexError, "list index out of range");
        return NULL;
    }
    Place place = {bulk, index};
    lock();
    bool over = is_over(&place);
    unlock();
    if (!over && await_call(bulk, index, timeout) < 0)
        return NULL;
    lock();
    PyObject *outcome = bulk->outcomes[index];
    bool ended = bulk->ended[index];
    bulk->outcomes[index] = NULL;
    PyObject *lost = Py_XNewRef(bulk->lost);
    unlock();
    if (!ended) { /* then it is lost */
        PyObject *error = PyObject_CallOneArg(kernel.help.fresh_copy, lost);
        Py_DECREF(lost);
        if (error != NULL)
            PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_XDECREF(error);
        return NULL;
    }
    Py_XDECREF(lost);
    if (outcome == NULL)
        Py_RETURN_NONE;
    PyObject *result = outcome_of(outcome);
    Py_DECREF(outcome);
    return result;
}

static PyObject *bulk_cancel(PyObject *self, PyObject *unused)
{
    (void)unused;
    Bulk *bulk = (Bulk *)self;
    lock();
    bulk->abandoned = true;
    PyObject *runner = Py_XNewRef(bulk->waiting_runner);
    unlock();
    end_all(bulk, new_cancelled());
    if (runner != NULL) {
        PyObject *cancelled = future_cancel(runner, NULL);
        Py_DECREF(runner);
        if (cancelled == NULL)
            return NULL;
        Py_DECREF(cancelled);
    }
    for (Py_ssize_t at = 0; at < bulk->size; at++) {
        lock();
        PyObject *outcome = Py_XNewRef(bulk->outcomes[at]);
        unlock();
        if (outcome != NULL && Py_IS_TYPE(outcome, kernel.failure_type))
            failure_asked(outcome);
        Py_XDECREF(outcome);
    }
    Py_RETURN_NONE;
}

static int bulk_traverse(PyObject *self, visitproc visit, void *arg)
{
    Bulk *bulk = (Bulk *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(bulk->fn);
    Py_VISIT(bulk->context);
    Py_VISIT(bulk->lost);
    Py_VISIT(bulk->waiting_runner);
    for (Py_ssize_t at = 0; at < bulk->size; at++) {
        Py_VISIT(bulk->items[at]);
        Py_VISIT(bulk->outcomes[at]);
    }
    return 0;
}

static int bulk_clear(PyObject *self)
{
    Bulk *bulk = (Bulk *)self;
    Py_CLEAR(bulk->fn);
    Py_CLEAR(bulk->context);
    Py_CLEAR(bulk->lost);
    Py_CLEAR(bulk->waiting_runner);
    for (Py_ssize_t at = 0; at < bulk->size; at++) {
        Py_CLEAR(bulk->items[at]);
        Py_CLEAR(bulk->outcomes[at]);
    }
    return 0;
}

static void bulk_dealloc(PyObject *self)
{
    Bulk *bulk = (Bulk *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    bulk_clear(self);
    Py_XDECREF(bulk->name);
    PyMem_RawFree(bulk->items);
    PyMem_RawFree(bulk->outcomes);
    PyMem_RawFree(bulk->ended);
    free(bulk->making.at);
    core_release(bulk->core);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *generic_alias(PyObject *self, PyObject *item)
{
    return Py_GenericAlias(self, item);
}

static PyMethodDef bulk_methods[] = {
    {"result", (PyCFunction)(void (*)(void))bulk_result, METH_VARARGS | METH_KEYWORDS,
     "result($self, index, timeout=None)\n--\n\n"},
    {"cancel", bulk_cancel, METH_NOARGS, "cancel($self)\n--\n\n"},
    {"__class_getitem__", generic_alias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot bulk_slots[] = {
    {Py_tp_dealloc, bulk_dealloc}, {Py_tp_traverse, bulk_traverse}, {Py_tp_clear, bulk_clear},
    {Py_tp_methods, bulk_methods}, {0, NULL},
};

static PyType_Spec bulk_spec = {"filch._kernel._native.Bulk", sizeof(Bulk), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                bulk_slots};

int bulk_type_init(PyObject *module)
{
    kernel.bulk_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &bulk_spec, NULL);
    return kernel.bulk_type ? PyModule_AddObjectRef(module, "Bulk", (PyObject *)kernel.bulk_type) : -1;
}
