/* The engine's face: what `Pool` derives from. */
#include "kernel.h"

#include <stddef.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    Core *core;
    PyObject *weakrefs;
} Engine;

#define FAST(function) (PyCFunction)(void (*)(void))(function)

static Core *core_of(PyObject *self)
{
    Core *core = ((Engine *)self)->core;
    if (core == NULL)
        PyErr_SetString(PyExc_RuntimeError, "the engine was not made: call Engine.__init__ first");
    return core;
}

static int engine_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"max_workers", "lifo",     "max_threads", "keep_alive", "seed",
                            "start_thread", "prologue", "restart",    NULL};
    Py_ssize_t max_workers, max_threads;
    double keep_alive;
    int lifo, restart;
    PyObject *seed, *start_thread, *prologue;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n$pndOOOp:Engine", names, &max_workers, &lifo, &max_threads,
                                     &keep_alive, &seed, &start_thread, &prologue, &restart))
        return -1;
    uint64_t random = filch_now_ns() ^ (uint64_t)(uintptr_t)self;
    if (seed != Py_None) {
        Py_hash_t hash = PyObject_Hash(seed);
        if (hash == -1)
            return -1;
        random = (uint64_t)hash;
    }
    Core *core = core_new();
    if (core == NULL)
        return -1;
    core->random = (random * 0x9E3779B97F4A7C15u) | 1;
    core->lifo = lifo;
    core->restart = restart;
    core->max_workers = max_workers;
    core->max_threads = max_threads;
    core->keep_alive = keep_alive;
    core->start_thread = Py_NewRef(start_thread);
    core->prologue = prologue == Py_None ? NULL : Py_NewRef(prologue);
    core->engine = PyWeakref_NewRef(self, NULL);
    if (core->engine == NULL) {
        core_release(core);
        return -1;
    }
    lock();
    bool filled = core_forget(core);
    core->refusing = filch_u32_load_relaxed(&kernel.main_ended) != 0;
    core->next = kernel.cores;
    core->link = &kernel.cores;
    if (kernel.cores != NULL)
        kernel.cores->link = &core->next;
    kernel.cores = core;
    unlock();
    if (!filled) {
        core_release(core);
        PyErr_NoMemory();
        return -1;
    }
    Core *old = ((Engine *)self)->core;
    ((Engine *)self)->core = core;
    if (old != NULL) {
        core_abandon(old);
        core_release(old);
    }
    return 0;
}

static int engine_traverse(PyObject *self, visitproc visit, void *arg)
{
    Core *core = ((Engine *)self)->core;
    Py_VISIT(Py_TYPE(self));
    /* Only while no thread shares them: else they would seem to be ours alone. */
    if (core != NULL && filch_u32_load_acquire(&core->references) == 1) {
        Py_VISIT(core->start_thread);
        Py_VISIT(core->prologue);
        Py_VISIT(core->broken);
    }
    return 0;
}

static int engine_clear(PyObject *self)
{
    Core *core = ((Engine *)self)->core;
    if (core != NULL && filch_u32_load_acquire(&core->references) == 1) {
        Py_CLEAR(core->prologue);
        Py_CLEAR(core->broken);
    }
    return 0;
}

static void engine_finalize(PyObject *self)
{
    Core *core = ((Engine *)self)->core;
    if (core != NULL)
        core_abandon(core);
}

static void engine_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (PyObject_CallFinalizerFromDealloc(self) < 0)
        return;
    PyObject_GC_UnTrack(self);
    Engine *engine = (Engine *)self;
    if (engine->weakrefs != NULL)
        PyObject_ClearWeakRefs(self);
    Core *core = engine->core;
    engine->core = NULL;
    if (core != NULL) {
        core_abandon(core); /* a class with a __del__ of its own has taken the place of the finalizer */
        core_release(core);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *refuse_callable(PyObject *fn)
{
    PyErr_Format(PyExc_TypeError, "a task is a callable with its arguments, not %R; pass the function itself", fn);
    return NULL;
}

static Extra *extra_new(void)
{
    Extra *extra = PyMem_RawCalloc(1, sizeof *extra);
    if (extra == NULL)
        PyErr_NoMemory();
    return extra;
}

static PyObject *engine_submit(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Core *core = core_of(self);
    if (core == NULL)
        return NULL;
    if (count < 1) {
        PyErr_SetString(PyExc_TypeError, "submit() missing 1 required positional argument: 'fn'");
        return NULL;
    }
    if (!PyCallable_Check(args[0]))
        return refuse_callable(args[0]);
    PyObject *future = future_new_task(args[0], args + 1, count - 1);
    if (future == NULL)
        return NULL;
    Future *f = part(future);
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (named) {
        f->extra = extra_new();
        PyObject *kwargs = f->extra ? PyDict_New() : NULL;
        if (kwargs == NULL)
            goto failed;
        f->extra->kwargs = kwargs;
        for (Py_ssize_t at = 0; at < named; at++)
            if (PyDict_SetItem(kwargs, PyTuple_GET_ITEM(names, at), args[count + at]) < 0)
                goto failed;
    }
    if (future_context(f) < 0 || core_admit(core, future, 0, false) < 0)
        goto failed;
    return future;
failed:
    Py_DECREF(future);
    return NULL;
}

int priority_from(PyObject *value, int64_t *priority)
{
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (number == -1 && PyErr_Occurred())
        return -1;
    *priority = overflow > 0 ? INT64_MAX : overflow < 0 ? INT64_MIN : number;
    return 0;
}

static PyObject *new_with_tuple(PyObject *fn, PyObject *args)
{
    PyObject *tuple = PySequence_Tuple(args);
    if (tuple == NULL)
        return NULL;
    PyObject *future = future_new_task(fn, &PyTuple_GET_ITEM(tuple, 0), PyTuple_GET_SIZE(tuple));
    Py_DECREF(tuple);
    return future;
}

static PyObject *engine_spawn(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "args", "kwargs", "priority", "context", "name", "force", "alarm", NULL};
    PyObject *fn, *call_args = kernel.empty_tuple, *call_kwargs = Py_None, *number = NULL, *name = Py_None;
    PyObject *alarm = Py_None;
    int context = 1, force = 0;
    int64_t priority = 0;
    Core *core = core_of(self);
    if (core == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO$OpOpO:_spawn", names, &fn, &call_args, &call_kwargs, &number,
                                     &context, &name, &force, &alarm) ||
        (number != NULL && priority_from(number, &priority) < 0))
        return NULL;
    if (!PyCallable_Check(fn))
        return refuse_callable(fn);
    PyObject *future = new_with_tuple(fn, call_args);
    if (future == NULL)
        return NULL;
    Future *f = part(future);
    f->bare = !context;
    if ((call_kwargs != Py_None && PyDict_GET_SIZE(call_kwargs)) || name != Py_None || force || alarm != Py_None) {
        f->extra = extra_new();
        if (f->extra == NULL)
            goto failed;
        f->extra->kwargs = call_kwargs == Py_None ? NULL : Py_NewRef(call_kwargs);
        f->extra->name = name == Py_None ? NULL : Py_NewRef(name);
        f->extra->alarm = alarm == Py_None ? NULL : Py_NewRef(alarm);
        f->extra->force = force;
    }
    if ((context && future_context(f) < 0) || core_admit(core, future, priority, false) < 0)
        goto failed;
    return future;
failed:
    Py_DECREF(future);
    return NULL;
}

static PyObject *engine_submit_bulk(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"fn", "items", "priority", "context", "grain", NULL};
    PyObject *fn, *items, *number = NULL;
    int context = 1;
    Py_ssize_t grain = 1;
    int64_t priority = 0;
    Core *core = core_of(self);
    if (core == NULL ||
        !PyArg_ParseTupleAndKeywords(args, kwargs, "OO|$Opn:_submit_bulk", names, &fn, &items, &number, &context,
                                     &grain) ||
        (number != NULL && priority_from(number, &priority) < 0))
        return NULL;
    PyObject *own = NULL;
    if (context) {
        own = PyContext_CopyCurrent();
        Py_ssize_t size = own ? PyObject_Size(own) : -1;
        if (size < 0) {
            Py_XDECREF(own);
            return NULL;
        }
        if (size == 0)
            Py_CLEAR(own);
    }
    PyObject *bulk = bulk_new(core, fn, items, priority, own, !context, grain);
    Py_XDECREF(own);
    return bulk;
}

static PyObject *engine_broadcast(PyObject *self, PyObject *args)
{
    PyObject *fn, *call_args, *call_kwargs;
    Core *core = core_of(self);
    if (core == NULL || !PyArg_ParseTuple(args, "OOO:_broadcast", &fn, &call_args, &call_kwargs))
        return NULL;
    for (;;) {
        lock();
        Py_ssize_t count = core->processors.count;
        unlock();
        PyObject *list = PyList_New(count);
        for (Py_ssize_t at = 0; list != NULL && at < count; at++) {
            PyObject *future = new_with_tuple(fn, call_args);
            if (future != NULL && PyDict_GET_SIZE(call_kwargs)) {
                part(future)->extra = extra_new();
                if (part(future)->extra == NULL)
                    Py_CLEAR(future);
                else
                    part(future)->extra->kwargs = Py_NewRef(call_kwargs);
            }
            if (future != NULL && future_context(part(future)) < 0)
                Py_CLEAR(future);
            if (future == NULL)
                Py_CLEAR(list);
            else
                PyList_SET_ITEM(list, at, future);
        }
        if (list == NULL)
            return NULL;
        int result = core_broadcast(core, count ? ((PyListObject *)list)->ob_item : NULL, count);
        if (result == 0)
            return list;
        Py_DECREF(list);
        if (result < 0)
            return NULL;
    }
}

static PyObject *engine_resize(PyObject *self, PyObject *args)
{
    Py_ssize_t max_workers, max_threads;
    Core *core = core_of(self);
    if (core == NULL || !PyArg_ParseTuple(args, "nn:_resize", &max_workers, &max_threads))
        return NULL;
    if (core_resize(core, max_workers, max_threads) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *engine_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    Core *core = core_of(self);
    if (core == NULL)
        return NULL;
    core_close(core, true);
    Py_RETURN_NONE;
}

static PyObject *engine_cancel_pending(PyObject *self, PyObject *unused)
{
    (void)unused;
    Core *core = core_of(self);
    if (core == NULL)
        return NULL;
    Py_ssize_t count = core_cancel_pending(core);
    return count < 0 ? NULL : PyLong_FromSsize_t(count);
}

/* For `wait_idle`, which asks outside the lock, too: so it takes the lock itself, and the wait calls it without. */
static bool is_idle(void *context)
{
    return core_is_idle(context);
}

static PyObject *engine_wait_idle(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Core *core = core_of(self);
    if (core == NULL)
        return NULL;
    if (count + (names ? PyTuple_GET_SIZE(names) : 0) > 1 ||
        (names && PyTuple_GET_SIZE(names) && !(PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "timeout") == 0))) {
        PyErr_SetString(PyExc_TypeError, "wait_idle() takes one argument, the timeout");
        return NULL;
    }
    if (here != NULL && here->core == core) {
        PyErr_SetString(kernel.deadlock, "wait_idle() waits for every task of its pool, so a task may not call it; "
                                         "wait for futures");
        return NULL;
    }
    uint64_t deadline;
    bool timed;
    if (deadline_from(count || (names && PyTuple_GET_SIZE(names)) ? args[0] : Py_None, &deadline, &timed) < 0)
        return NULL;
    core_go_on(core);
    Wait wait = {is_idle, core, &core->watchers, NULL, 0, true, NULL, true};
    filch_u32_fetch_add_acq_rel(&core->references, 1);
    enum waited how = wait_for(&wait, deadline, timed);
    core_release(core);
    return how == WAITED_ERROR ? NULL : PyBool_FromLong(how == WAITED_DONE);
}

static PyObject *list_of(PyObject **all, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    for (Py_ssize_t at = 0; at < count; at++)
        if (list != NULL)
            PyList_SET_ITEM(list, at, all[at]);
        else
            Py_DECREF(all[at]);
    return list;
}

static PyObject *engine_unfinished(PyObject *self, PyObject *unused)
{
    (void)unused;
    Core *core = core_of(self);
    if (core == NULL)
        return NULL;
    Vector futures = {0};
    lock();
    core_unfinished(core, &futures);
    unlock();
    PyObject *list = list_of((PyObject **)futures.at, futures.count);
    free(futures.at);
    return list;
}

static PyObject *engine_live_threads(PyObject *self, PyObject *unused)
{
    (void)unused;
    Core *core = core_of(self);
    if (core == NULL)
        return NULL;
    Vector threads = {0};
    lock();
    for (Py_ssize_t at = 0; at < core->workers.count; at++) {
        PyObject *thread = ((Worker *)core->workers.at[at])->thread;
        if (thread != NULL)
            vector_push(&threads, Py_NewRef(thread));
    }
    unlock();
    PyObject *list = list_of((PyObject **)threads.at, threads.count);
    free(threads.at);
    return list;
}

static PyObject *engine_counters(PyObject *self, PyObject *unused)
{
    (void)unused;
    Core *core = core_of(self);
    if (core == NULL)
        return NULL;
    lock();
    unsigned long long local = 0, running = 0;
    for (Py_ssize_t at = 0; at < core->processors.count; at++) {
        Processor *processor = core->processors.at[at];
        local += processor->queue.count + processor->inbox.count + processor->mail.count;
    }
    for (Py_ssize_t at = 0; at < core->workers.count; at++) {
        PyObject *task = ((Worker *)core->workers.at[at])->task;
        running += task != NULL && !is_done(word_of(part(task)));
    }
    unsigned long long values[] = {core->submitted,
                                   core->steals,
                                   core->stolen,
                                   core->spilled,
                                   core->parks,
                                   core->wakes,
                                   core->handoffs,
                                   core->threads_started,
                                   (unsigned long long)core->max_threads,
                                   (unsigned long long)core->workers.count,
                                   (unsigned long long)core->sleepers.count,
                                   (unsigned long long)core->searching,
                                   running,
                                   (unsigned long long)core->excess.count,
                                   core->injector.length,
                                   local};
    unlock();
    static const char *const names[] = {"submitted", "steals",          "stolen",      "spilled", "parks", "wakes",
                                        "handoffs",  "threads_started", "max_threads", "threads", "idle",  "searching",
                                        "running",   "excess",          "injected",    "local"};
    PyObject *dict = PyDict_New();
    for (size_t at = 0; dict != NULL && at < sizeof values / sizeof *values; at++) {
        PyObject *value = PyLong_FromUnsignedLongLong(values[at]);
        if (value == NULL || PyDict_SetItemString(dict, names[at], value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

static PyObject *engine_max_workers(PyObject *self, void *unused)
{
    (void)unused;
    Core *core = core_of(self);
    return core ? PyLong_FromSsize_t(core->max_workers) : NULL;
}

static PyObject *engine_closed(PyObject *self, void *unused)
{
    (void)unused;
    Core *core = core_of(self);
    return core ? PyBool_FromLong(core->closed) : NULL;
}

static PyObject *engine_breakage(PyObject *self, void *unused)
{
    (void)unused;
    Core *core = core_of(self);
    if (core == NULL)
        return NULL;
    lock();
    PyObject *broken = Py_NewRef(core->broken ? core->broken : Py_None);
    unlock();
    return broken;
}

static PyObject *engine_reduce(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyErr_SetString(PyExc_TypeError,
                    "a pool belongs to its process and cannot be pickled or copied; make one where it is needed");
    return NULL;
}

static PyMethodDef engine_methods[] = {
    {"submit", FAST(engine_submit), METH_FASTCALL | METH_KEYWORDS, "submit($self, fn, /, *args, **kwargs)\n--\n\n"},
    {"_spawn", FAST(engine_spawn), METH_VARARGS | METH_KEYWORDS,
     "_spawn($self, fn, args=(), kwargs=None, *, priority=0, context=True, name=None, force=False, alarm=None)\n--\n\n"},
    {"_submit_bulk", FAST(engine_submit_bulk), METH_VARARGS | METH_KEYWORDS,
     "_submit_bulk($self, fn, items, *, priority=0, context=True, grain=1)\n--\n\n"},
    {"_broadcast", engine_broadcast, METH_VARARGS, "_broadcast($self, fn, args, kwargs)\n--\n\n"},
    {"_resize", engine_resize, METH_VARARGS, "_resize($self, max_workers, max_threads)\n--\n\n"},
    {"_close", engine_close, METH_NOARGS, "_close($self)\n--\n\n"},
    {"_cancel_pending", engine_cancel_pending, METH_NOARGS, "_cancel_pending($self)\n--\n\n"},
    {"wait_idle", FAST(engine_wait_idle), METH_FASTCALL | METH_KEYWORDS, "wait_idle($self, timeout=None)\n--\n\n"},
    {"_unfinished", engine_unfinished, METH_NOARGS, "_unfinished($self)\n--\n\n"},
    {"_live_threads", engine_live_threads, METH_NOARGS, "_live_threads($self)\n--\n\n"},
    {"_counters", engine_counters, METH_NOARGS, "_counters($self)\n--\n\n"},
    {"__reduce__", engine_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef engine_getset[] = {
    {"max_workers", engine_max_workers, NULL, NULL, NULL},
    {"_closed", engine_closed, NULL, NULL, NULL},
    {"_breakage", engine_breakage, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef engine_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Engine, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static const char engine_doc[] =
    "Engine(max_workers, *, lifo, max_threads, keep_alive, seed, start_thread, prologue, restart)\n--\n\n"
    "Workers, deques and injector of one pool.";

static PyType_Slot engine_slots[] = {
    {Py_tp_doc, (void *)engine_doc},
    {Py_tp_init, engine_init},         {Py_tp_dealloc, engine_dealloc}, {Py_tp_finalize, engine_finalize},
    {Py_tp_traverse, engine_traverse}, {Py_tp_clear, engine_clear},     {Py_tp_methods, engine_methods},
    {Py_tp_getset, engine_getset},     {Py_tp_members, engine_members}, {0, NULL},
};

static PyType_Spec engine_spec = {"filch._kernel._native.Engine", sizeof(Engine), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, engine_slots};

int engine_type_init(PyObject *module)
{
    kernel.engine_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &engine_spec, NULL);
    if (kernel.engine_type == NULL)
        return -1;
    return PyModule_AddObjectRef(module, "Engine", (PyObject *)kernel.engine_type);
}
