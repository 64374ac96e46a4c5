/* A thread of an engine, and what runs on it: tasks lie on top of each other when one that waits runs others. */
#include "kernel.h"

#define BREATH 16u /* tasks after which a worker that runs only C lets the interpreter do its own things */

PyObject *worker_new(Core *core, Py_ssize_t number)
{
    Worker *worker = PyObject_New(Worker, kernel.worker_type);
    if (worker == NULL)
        return NULL;
    memset((char *)worker + sizeof(PyObject), 0, sizeof *worker - sizeof(PyObject));
    worker->core = core;
    filch_u32_fetch_add_acq_rel(&core->references, 1);
    worker->number = number;
    worker->called = true; /* and on its way: counted in `searching` */
    return (PyObject *)worker;
}

static void worker_dealloc(PyObject *self)
{
    Worker *worker = (Worker *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(worker->thread);
    Py_XDECREF(worker->scratch);
    free(worker->stack);
    core_release(worker->core);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* The life of the thread. */
PyObject *worker_main(PyObject *self, PyObject *unused)
{
    (void)unused;
    Worker *worker = (Worker *)self;
    Core *core = worker->core;
    Py_INCREF(self);
    filch_u32_fetch_add_acq_rel(&core->references, 1);
    PyObject *thread = PyObject_CallNoArgs(kernel.help.current_thread);
    if (thread == NULL)
        PyErr_Clear();
    lock();
    bool wanted = worker->entered; /* else it was replaced, or a forked child has forgotten it */
    PyObject *old = NULL;
    if (wanted) {
        worker->begun = true;
        worker->ident = PyThread_get_thread_ident();
        worker->seat = own_seat();
        old = worker->thread;
        worker->thread = Py_XNewRef(thread);
    }
    unlock();
    Py_XDECREF(old);
    Py_XDECREF(thread);
    if (wanted && core_begin_thread(worker)) {
        here = worker;
        while (core_next(worker))
            worker_run(worker);
        if (here == worker)
            here = NULL;
    }
    Py_DECREF(self);
    core_release(core);
    Py_RETURN_NONE;
}

/* Claim a task, and lay it on the stack; `nested`, on top of what waits. */
bool worker_begin(Worker *worker, PyObject *future, bool nested, bool owned)
{
    if (!future_claim(future))
        return false;
    if (worker->over) { /* a callback of the task that has ended waits; `worker_run` drops it */
        worker->task = NULL;
        worker->over = false;
    }
    if (nested) {
        if (worker->depth == worker->room) {
            worker->room = worker->room * 2 + 8;
            worker->stack = realloc(worker->stack, (size_t)worker->room * sizeof *worker->stack);
            if (worker->stack == NULL)
                Py_FatalError("filch: no memory for a task on top of another");
        }
        worker->stack[worker->depth++] = (Layer){worker->task,     worker->home,     worker->frame,
                                                 worker->isolated, worker->shielded, worker->forced};
        worker->frame = NULL;
        worker->isolated = 0;
    }
    Future *f = part(future);
    worker->forced = f->extra != NULL && f->extra->force;
    worker->shielded = worker->forced;
    worker->home = f->home; /* with its reference */
    f->home = worker;
    worker->task = owned ? future : Py_NewRef(future);
    return true;
}

/* Take back an asynchronous exception that was sent and has not been raised. */
static void call_back(Worker *worker)
{
    PyThreadState_SetAsyncExc(worker->ident, NULL);
}

/* Under the lock. */
static bool is_asked(Worker *worker)
{
    Side *side = task_of(worker) != NULL ? part(worker->task)->side : NULL;
    return side != NULL && side->interrupted;
}

static int raise_if(bool asked)
{
    if (asked)
        PyErr_SetString(kernel.cancelled, "the task was asked to stop");
    return asked ? -1 : 0;
}

int worker_checkpoint(Worker *worker)
{
    lock();
    bool asked = is_asked(worker);
    unlock();
    return raise_if(asked);
}

/* From here on nothing asynchronous is sent to this thread; what was sent before is raised here. */
int worker_raise_shield(Worker *worker)
{
    if (!worker->forced)
        return 0;
    lock();
    worker->shielded++;
    unlock();
    if (worker->shielded > 1)
        return 0;
    call_back(worker);
    if (worker_checkpoint(worker) < 0) {
        lock();
        worker->shielded--;
        unlock();
        return -1;
    }
    return 0;
}

/* The look at the flag and the step are one: who is asked before it hears of it here, who is later is sent it. */
int worker_lower_shield(Worker *worker)
{
    if (!worker->forced)
        return 0;
    lock();
    bool asked = worker->shielded == 1 && is_asked(worker);
    worker->shielded--;
    unlock();
    return raise_if(asked);
}

/* Ask the task to stop. Under the lock. */
void worker_interrupt(Worker *worker, PyObject *task, Side *side)
{
    side->interrupted = true;
    if (worker->task != task)
        return;
    if (worker->seat != NULL)
        seat_unpark(worker->seat);
    if (worker->forced && !worker->shielded)
        PyThreadState_SetAsyncExc(worker->ident, kernel.cancelled);
}

/* Ask a forced task again and again while it runs: a destructor may swallow what is sent to it. */
void worker_insist(Worker *worker, PyObject *task)
{
    PyObject *none = PyObject_CallFunction(kernel.help.insist, "OO", worker, task);
    if (none == NULL)
        PyErr_WriteUnraisable(task);
    Py_XDECREF(none);
}

/* For the thread that insists: interrupt the task again if `again`; False when it does not run there any more. */
static PyObject *worker_insist_again(PyObject *self, PyObject *args)
{
    PyObject *task;
    int again;
    if (!PyArg_ParseTuple(args, "Op", &task, &again))
        return NULL;
    Worker *worker = (Worker *)self;
    lock();
    bool runs = worker->task == task;
    for (Py_ssize_t at = 0; at < worker->depth && !runs; at++)
        runs = worker->stack[at].task == task;
    if (runs && again && part(task)->side != NULL)
        worker_interrupt(worker, task, part(task)->side);
    unlock();
    return PyBool_FromLong(runs);
}

static PyObject *empty_context(Worker *worker)
{
    PyObject *context = worker->scratch;
    worker->scratch = NULL;
    if (context != NULL && Py_REFCNT(context) == 1 && PyObject_Size(context) == 0)
        return context;
    Py_XDECREF(context);
    return PyContext_New();
}

static PyObject *call(Future *f)
{
    PyObject *kwargs = f->extra != NULL ? f->extra->kwargs : NULL;
    if (f->count == 255)
        return PyObject_Call(f->fn, f->args[0], kwargs);
    if (kwargs == NULL)
        return PyObject_Vectorcall(f->fn, f->args, f->count, NULL);
    return PyObject_VectorcallDict(f->fn, f->args, f->count, kwargs);
}

static PyObject *call_in_context(Worker *worker, Future *f)
{
    if (f->runner)
        return bulk_work(worker, f->fn);
    if (f->bare)
        return call(f);
    bool empty = f->context == NULL;
    PyObject *context = empty ? empty_context(worker) : Py_NewRef(f->context);
    if (context == NULL || PyContext_Enter(context) < 0) {
        Py_XDECREF(context);
        return NULL;
    }
    PyObject *result = call(f);
    if (result == NULL) {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        PyContext_Exit(context);
        PyErr_Restore(type, error, traceback);
    } else {
        PyContext_Exit(context);
    }
    if (empty && worker->scratch == NULL)
        worker->scratch = context;
    else
        Py_DECREF(context);
    return result;
}

static PyObject *call_forced(Worker *worker, Future *f)
{
    PyObject *result = NULL;
    if (worker_lower_shield(worker) == 0) /* raises if it was asked to stop before */
        result = call_in_context(worker, f);
    lock();
    if (!worker->shielded)
        worker->shielded = 1;
    unlock();
    call_back(worker);
    return result;
}

static PyObject *call_with_alarm(Worker *worker, Future *f)
{
    PyObject *stop = PyObject_CallNoArgs(f->extra->alarm);
    if (stop == NULL)
        return NULL;
    PyObject *result = worker->forced ? call_forced(worker, f) : call_in_context(worker, f);
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *none = PyObject_CallNoArgs(stop);
    Py_DECREF(stop);
    if (none == NULL) {
        Py_CLEAR(result);
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
        return NULL;
    }
    Py_DECREF(none);
    PyErr_Restore(type, error, traceback);
    return result;
}

/* What the interpreter does between bytecodes, and never if all tasks are in C: it hands its lock over, collects cycles
   and, in a free-threaded build, drops what is owned here and was let go by other threads. */
void worker_breathe(Worker *worker)
{
    worker->turns = 0;
    PyObject *none = PyObject_CallNoArgs(kernel.help.breathe);
    if (none == NULL)
        PyErr_WriteUnraisable(NULL);
    Py_XDECREF(none);
}

/* Take the running task off the stack. Under the lock, as others look at it there. */
static void leave(Worker *worker)
{
    worker->task = NULL;
    worker->isolated = worker->shielded = 0;
    worker->forced = false;
    worker->home = worker->frame = NULL;
    if (worker->depth > 0) {
        Layer *layer = &worker->stack[--worker->depth];
        worker->task = layer->task;
        worker->home = layer->home;
        worker->frame = layer->frame;
        worker->isolated = layer->isolated;
        worker->shielded = layer->shielded;
        worker->forced = layer->forced;
    }
}

/* Run the task that was begun last, on this thread. */
void worker_run(Worker *worker)
{
    PyObject *task = worker->task;
    Future *f = part(task);
    PyObject *value;
    if (f->extra != NULL && f->extra->alarm != NULL)
        value = call_with_alarm(worker, f);
    else
        value = worker->forced ? call_forced(worker, f) : call_in_context(worker, f);
    bool failed = value == NULL;
    if (failed) {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        PyObject *name = name_of(f->fn, f->extra);
        PyErr_Restore(type, error, traceback);
        value = failure_from_raised(name);
        Py_XDECREF(name);
        if (value == NULL) {
            PyErr_Clear();
            value = Py_NewRef(Py_None);
        }
    }
    Frame *home = worker->home, *frame = worker->frame;
    if (frame != NULL || worker->forced || worker->depth > 0) {
        lock();
        if (frame != NULL) {
            frame->done = true;
            Frame *above = frame->above, *living = above ? frame_living(above) : NULL;
            if (living != above) {
                filch_u32_fetch_add_acq_rel(&living->references, 1);
                frame->above = living;
            } else {
                above = NULL;
            }
            home = worker->home;
            leave(worker);
            unlock();
            if (above != NULL)
                frame_release(above);
        } else {
            leave(worker);
            unlock();
        }
    } else {
        worker->over = true;
        worker->isolated = worker->shielded = 0;
        worker->home = NULL;
    }
    /* Nobody looks at what it was called with once it is ENDING; who looks before has set the bit, under the lock. */
    uint32_t word = RUNNING;
    bool quick = !PyObject_IS_GC(value) && filch_u32_cas_acq_rel(&f->word, &word, ENDING);
    if (quick) {
        future_drop_call(f);
        f->home = NULL;
        f->value = value;
        word = ENDING;
        quick = filch_u32_cas_acq_rel(&f->word, &word, FINISHED);
        if (quick && f->runner)
            bulk_lose(task);
        if (!quick) {
            f->value = NULL;
            if (!future_settle(task, ENDING, FINISHED, value))
                Py_DECREF(value);
            future_tell(task);
        }
    } else {
        lock();
        future_pin(task);
        bool ours = (word_of(f) & STATE) == RUNNING;
        bool stopped = failed && f->side != NULL && f->side->interrupted;
        if (ours) {
            word = word_of(f);
            while (!filch_u32_cas_acq_rel(&f->word, &word, (word & ~STATE) | ENDING)) {
            }
        }
        f->home = NULL;
        unlock();
        if (stopped && PyErr_GivenExceptionMatches(((Failure *)value)->error, kernel.cancelled))
            failure_asked(value); /* it was asked to stop, and did */
        future_drop_call(f);
        if (!ours || !future_settle(task, ENDING, FINISHED, value)) {
            if (failed)
                failure_asked(value); /* its future ended before it */
            Py_DECREF(value);
        }
        future_tell(task);
    }
    if (PyErr_Occurred())
        PyErr_WriteUnraisable(task);
    if (home != NULL)
        frame_release(home);
    if (frame != NULL)
        frame_release(frame);
    if (!worker->over)
        Py_DECREF(task);
    if (++worker->turns >= BREATH)
        worker_breathe(worker);
}

static PyMethodDef worker_methods[] = {
    {"main", worker_main, METH_NOARGS, NULL},
    {"insist", worker_insist_again, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot worker_slots[] = {
    {Py_tp_dealloc, worker_dealloc},
    {Py_tp_methods, worker_methods},
    {0, NULL},
};

static PyType_Spec worker_spec = {"filch._kernel._native.Worker", sizeof(Worker), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, worker_slots};

int worker_type_init(PyObject *module)
{
    kernel.worker_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &worker_spec, NULL);
    return kernel.worker_type == NULL ? -1 : 0;
}
