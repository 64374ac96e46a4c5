/* blocking, isolate, unlocked, and the functions of the contract. */
#include "kernel.h"

/* What a worker waits for in wait() and as_completed(): the standard waiter's event, for workers. */
typedef struct {
    PyObject_HEAD
    filch_atomic_u32 flag;
    Sleepers sleepers;
} Event;

static PyObject *event_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args, (void)kwargs;
    return type->tp_alloc(type, 0);
}

static bool event_is_set_now(void *context)
{
    return filch_u32_load_acquire(&((Event *)context)->flag) != 0;
}

static PyObject *event_is_set(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(event_is_set_now(self));
}

static PyObject *event_set(PyObject *self, PyObject *unused)
{
    (void)unused;
    lock();
    filch_u32_store_release(&((Event *)self)->flag, 1);
    wake_all(&((Event *)self)->sleepers);
    unlock();
    Py_RETURN_NONE;
}

static PyObject *event_clear(PyObject *self, PyObject *unused)
{
    (void)unused;
    filch_u32_store_release(&((Event *)self)->flag, 0);
    Py_RETURN_NONE;
}

static PyObject *event_wait_for(PyObject *self, PyObject *args)
{
    PyObject *futures, *timeout;
    int every;
    if (!PyArg_ParseTuple(args, "O!pO", &PyTuple_Type, &futures, &every, &timeout))
        return NULL;
    uint64_t deadline;
    bool timed;
    if (deadline_from(timeout, &deadline, &timed) < 0)
        return NULL;
    Wait wait = {event_is_set_now, self,  &((Event *)self)->sleepers, &PyTuple_GET_ITEM(futures, 0),
                 PyTuple_GET_SIZE(futures), every, NULL, false};
    enum waited how = wait_for(&wait, deadline, timed);
    return how == WAITED_ERROR ? NULL : PyBool_FromLong(how == WAITED_DONE);
}

static PyMethodDef event_methods[] = {
    {"is_set", event_is_set, METH_NOARGS, NULL},
    {"set", event_set, METH_NOARGS, NULL},
    {"clear", event_clear, METH_NOARGS, NULL},
    {"wait_for", event_wait_for, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot event_slots[] = {{Py_tp_new, event_new}, {Py_tp_methods, event_methods}, {0, NULL}};
static PyType_Spec event_spec = {"filch._kernel._native._Event", sizeof(Event), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, event_slots};

/* The context managers. */

typedef struct {
    PyObject_HEAD
    Vector entered; /* under the lock: the workers that are inside, once for each time; bit 0: it gave a processor up */
} Blocking;

static PyObject *scope_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_GET_SIZE(args) || (kwargs && PyDict_GET_SIZE(kwargs))) {
        PyErr_Format(PyExc_TypeError, "%s() takes no arguments", type->tp_name);
        return NULL;
    }
    return type->tp_alloc(type, 0);
}

static void blocking_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    free(((Blocking *)self)->entered.at);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Take the worker's last entry off; true if it gave a processor up. Under the lock. */
static bool blocking_leave(Blocking *blocking, Worker *worker)
{
    for (Py_ssize_t at = blocking->entered.count; at-- > 0;) {
        uintptr_t entry = (uintptr_t)blocking->entered.at[at];
        if ((entry & ~(uintptr_t)1) == (uintptr_t)worker) {
            vector_remove(&blocking->entered, (void *)entry);
            return entry & 1;
        }
    }
    return false; /* it was entered in another thread */
}

static PyObject *blocking_enter(PyObject *self, PyObject *unused)
{
    (void)unused;
    Worker *worker = here;
    if (worker == NULL)
        Py_RETURN_NONE;
    if (worker_raise_shield(worker) < 0)
        return NULL;
    Worker *helper;
    lock();
    bool gave = core_give_up(worker, NULL, 0, &helper);
    vector_push(&((Blocking *)self)->entered, (void *)((uintptr_t)worker | gave));
    unlock();
    drop_discarded();
    if (helper != NULL && core_start(helper) < 0)
        PyErr_Clear();
    if (worker_lower_shield(worker) < 0) {
        lock();
        if (blocking_leave((Blocking *)self, worker))
            core_take_back(worker);
        unlock();
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *blocking_exit(PyObject *self, PyObject *args)
{
    (void)args;
    Worker *worker = here; /* none in a forked child */
    lock();
    if (worker != NULL && blocking_leave((Blocking *)self, worker))
        core_take_back(worker);
    unlock();
    Py_RETURN_NONE;
}

static PyMethodDef blocking_methods[] = {
    {"__enter__", blocking_enter, METH_NOARGS, "__enter__($self)\n--\n\n"},
    {"__exit__", blocking_exit, METH_VARARGS, "__exit__($self, kind, error, traceback)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot blocking_slots[] = {
    {Py_tp_new, scope_new}, {Py_tp_dealloc, blocking_dealloc}, {Py_tp_methods, blocking_methods}, {0, NULL}};
static PyType_Spec blocking_spec = {"filch._kernel._native.blocking", sizeof(Blocking), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, blocking_slots};

static PyObject *isolate_enter(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (here != NULL)
        here->isolated++;
    Py_RETURN_NONE;
}

static PyObject *isolate_exit(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    if (here != NULL)
        here->isolated--;
    Py_RETURN_NONE;
}

static PyMethodDef isolate_methods[] = {
    {"__enter__", isolate_enter, METH_NOARGS, "__enter__($self)\n--\n\n"},
    {"__exit__", isolate_exit, METH_VARARGS, "__exit__($self, kind, error, traceback)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot isolate_slots[] = {{Py_tp_new, scope_new}, {Py_tp_methods, isolate_methods}, {0, NULL}};
static PyType_Spec isolate_spec = {"filch._kernel._native.isolate", sizeof(PyObject), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, isolate_slots};

/* No Python runs in a section, so nothing is held here. What this thread is in the middle of starting is. */
static PyObject *unlocked_enter(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    core_replace_own();
    Py_RETURN_NONE;
}

static PyObject *unlocked_exit(PyObject *self, PyObject *args)
{
    (void)self, (void)args;
    Py_RETURN_NONE;
}

static PyMethodDef unlocked_methods[] = {
    {"__enter__", unlocked_enter, METH_NOARGS, "__enter__($self)\n--\n\n"},
    {"__exit__", unlocked_exit, METH_VARARGS, "__exit__($self, kind, error, traceback)\n--\n\n"},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot unlocked_slots[] = {{Py_tp_new, scope_new}, {Py_tp_methods, unlocked_methods}, {0, NULL}};
static PyType_Spec unlocked_spec = {"filch._kernel._native.unlocked", sizeof(PyObject), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, unlocked_slots};

/* The functions. */

static PyObject *checkpoint(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    if (here != NULL && worker_checkpoint(here) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* The engine of a weak reference, which it takes over; NULL if it is gone. */
static PyObject *alive(PyObject *weak)
{
    PyObject *engine = NULL;
#if PY_VERSION_HEX >= 0x030d0000
    if (PyWeakref_GetRef(weak, &engine) < 0)
        PyErr_Clear();
#else
    engine = PyWeakref_GetObject(weak);
    engine = engine == NULL || engine == Py_None ? NULL : Py_NewRef(engine);
#endif
    Py_DECREF(weak);
    return engine;
}

static PyObject *current_engine(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *engine = NULL;
    if (here != NULL) {
        engine = alive(Py_NewRef(here->core->engine));
    }
    if (engine == NULL)
        Py_RETURN_NONE;
    return engine;
}

static PyObject *current_future(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return Py_NewRef(here != NULL && task_of(here) != NULL ? here->task : Py_None);
}

static PyObject *engines(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    Vector all = {0};
    lock();
    for (Core *core = kernel.cores; core != NULL; core = core->next) {
        if (core->engine != NULL)
            vector_push(&all, Py_NewRef(core->engine));
    }
    unlock();
    PyObject *list = PyList_New(0);
    for (Py_ssize_t at = 0; at < all.count; at++) {
        PyObject *engine = alive(all.at[at]);
        if (engine != NULL && list != NULL && PyList_Append(list, engine) < 0)
            Py_CLEAR(list);
        Py_XDECREF(engine);
    }
    free(all.at);
    return list;
}

static PyObject *report_lost(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    for (;;) {
        lock();
        Failure *failure = kernel.lost;
        PyObject *error = NULL, *name = NULL;
        if (failure != NULL) {
            error = Py_NewRef(failure->error);
            name = Py_XNewRef(failure->name);
            failure->asked = true;
            kernel.lost = failure->next;
            if (failure->next != NULL)
                failure->next->link = &kernel.lost;
            failure->link = NULL;
        }
        unlock();
        if (failure == NULL)
            Py_RETURN_NONE;
        PyObject *none = PyObject_CallFunction(kernel.help.report, "OO", name ? name : Py_None, error);
        Py_DECREF(error);
        Py_XDECREF(name);
        if (none == NULL)
            return NULL;
        Py_DECREF(none);
    }
}

static PyObject *main_ended(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    lock();
    filch_u32_store_relaxed(&kernel.main_ended, 1);
    for (Core *core = kernel.cores; core != NULL; core = core->next)
        core->refusing = true;
    unlock();
    Py_RETURN_NONE;
}

static PyObject *in_worker(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(here != NULL);
}

static PyObject *shield(PyObject *module, PyObject *raise)
{
    (void)module;
    if (here != NULL && here->forced &&
        (raise == Py_True ? worker_raise_shield(here) : worker_lower_shield(here)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* The lock is taken and let go inside of fork() itself, where no Python runs: see `module.c`. */
static PyObject *nothing_to_do(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    Py_RETURN_NONE;
}

/* Forget the parent's threads; futures that were pending or running end with `ForkedError`. */
static PyObject *after_fork_in_child(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    here = NULL;
    for (Core *core = kernel.cores; core != NULL; core = core->next) {
        Vector orphans = {0};
        lock();
        core_unfinished(core, &orphans);
        for (Py_ssize_t at = 0; at < core->workers.count; at++) {
            Worker *worker = core->workers.at[at];
            worker->processor = NULL;
            worker->entered = worker->asleep = worker->called = false;
            worker->waiting = NULL;
            if (worker->seat != NULL)
                worker->seat->heir = NULL;
            Py_INCREF(worker); /* its thread's, which is gone, and its stack with it */
        }
        core->generation++;
        core_forget(core);
        unlock();
        drop_discarded();
        for (Py_ssize_t at = 0; at < orphans.count; at++) {
            PyObject *task = orphans.at[at];
            Future *f = part(task);
            PyObject *error = PyObject_CallFunction(
                kernel.forked, "s", "the task belongs to the parent process; submit it anew in the child");
            PyObject *failure = error ? failure_new(error, NULL, true) : NULL;
            Py_XDECREF(error);
            if (failure == NULL) {
                PyErr_WriteUnraisable(task);
                continue;
            }
            lock();
            uint32_t state = word_of(f) & STATE;
            if (f->side != NULL) {
                f->side->condition = NULL; /* it may be locked, by a thread that is gone */
            }
            void *home = state == PENDING ? f->home : NULL;
            f->home = NULL;
            f->value = failure;
            filch_u32_store_release(&f->word, FINISHED | SLOW);
            unlock();
            if (home != NULL)
                frame_release(home);
            if (state == PENDING)
                future_drop_call(f);
            if (f->runner)
                bulk_lose(task);
            Py_DECREF(task);
        }
        free(orphans.at);
    }
    return PyObject_CallNoArgs(kernel.help.after_fork_in_child);
}

static PyMethodDef functions[] = {
    {"checkpoint", checkpoint, METH_NOARGS, "checkpoint()\n--\n\n"},
    {"current_engine", current_engine, METH_NOARGS, "current_engine()\n--\n\n"},
    {"current_future", current_future, METH_NOARGS, "current_future()\n--\n\n"},
    {"engines", engines, METH_NOARGS, "engines()\n--\n\n"},
    {"report_lost", report_lost, METH_NOARGS, "report_lost()\n--\n\n"},
    {"main_ended", main_ended, METH_NOARGS, "main_ended()\n--\n\n"},
    {"before_fork", nothing_to_do, METH_NOARGS, "before_fork()\n--\n\n"},
    {"after_fork_in_parent", nothing_to_do, METH_NOARGS, "after_fork_in_parent()\n--\n\n"},
    {"after_fork_in_child", after_fork_in_child, METH_NOARGS, "after_fork_in_child()\n--\n\n"},
    {"_in_worker", in_worker, METH_NOARGS, NULL},
    {"_shield", shield, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

int scopes_init(PyObject *module)
{
    kernel.event_type = add_type(module, &event_spec, "_Event");
    kernel.blocking_type = add_type(module, &blocking_spec, "blocking");
    kernel.isolate_type = add_type(module, &isolate_spec, "isolate");
    kernel.unlocked_type = add_type(module, &unlocked_spec, "unlocked");
    if (!kernel.event_type || !kernel.blocking_type || !kernel.isolate_type || !kernel.unlocked_type)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
