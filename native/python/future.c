/* The future, which is the task as well: its life, what is kept of it, and what the standard library reaches into. */
#include "kernel.h"

#include "structmember.h"

/* Making and unmaking. */

static PyObject *allocate(PyTypeObject *type)
{
    PyObject *self = PyObject_GC_New(PyObject, type);
    if (self == NULL)
        return NULL;
    /* The base's weak references, and everything of ours; no dictionary is made before somebody sets an attribute. */
    memset((char *)self + sizeof(PyObject), 0, (size_t)type->tp_basicsize - sizeof(PyObject));
    return self;
}

static PyObject *future_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    (void)args, (void)kwargs;
    PyObject *self = allocate(type);
    if (self != NULL) {
        filch_u32_init(&part(self)->word, PENDING);
        PyObject_GC_Track(self);
    }
    return self;
}

static int future_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)self;
    if (PyTuple_GET_SIZE(args) || (kwargs && PyDict_GET_SIZE(kwargs))) {
        PyErr_SetString(PyExc_TypeError, "Future() takes no arguments; futures with a task come from submit()");
        return -1;
    }
    return 0;
}

/* Not tracked by the collector: no cycle leads through it before it has an end, or somebody listens. */
PyObject *future_new_task(PyObject *fn, PyObject *const *args, Py_ssize_t count)
{
    PyObject *self = allocate(kernel.future_type);
    if (self == NULL)
        return NULL;
    Future *f = part(self);
    filch_u32_init(&f->word, PENDING);
    f->task = true;
    f->fn = Py_NewRef(fn);
    if (count <= INLINE_ARGS) {
        f->count = (uint8_t)count;
        for (Py_ssize_t at = 0; at < count; at++)
            f->args[at] = Py_NewRef(args[at]);
        return self;
    }
    PyObject *tuple = PyTuple_New(count);
    if (tuple == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    for (Py_ssize_t at = 0; at < count; at++)
        PyTuple_SET_ITEM(tuple, at, Py_NewRef(args[at]));
    f->count = 255;
    f->args[0] = tuple;
    return self;
}

/* A copy of the submitter's context; none, if that is empty. */
int future_context(Future *f)
{
    PyObject *current = PyThreadState_Get()->context;
    if (current == NULL)
        return 0;
    Py_ssize_t size = PyObject_Size(current);
    if (size > 0)
        f->context = PyContext_Copy(current);
    return size < 0 || (size > 0 && f->context == NULL) ? -1 : 0;
}

static void extra_free(Extra *extra)
{
    if (extra == NULL)
        return;
    Py_XDECREF(extra->kwargs);
    Py_XDECREF(extra->name);
    Py_XDECREF(extra->alarm);
    PyMem_RawFree(extra);
}

void future_drop_call(Future *f)
{
    PyObject *fn = f->fn, *context = f->context;
    Extra *extra = f->extra;
    f->fn = f->context = NULL;
    f->extra = NULL;
    for (int at = 0; at < INLINE_ARGS; at++) {
        PyObject *argument = f->args[at];
        f->args[at] = NULL;
        Py_XDECREF(argument);
    }
    f->count = 0;
    if (f->runner) { /* its Bulk is told of the end, and then let go */
        f->args[0] = fn;
        fn = NULL;
    }
    Py_XDECREF(fn);
    Py_XDECREF(context);
    extra_free(extra);
}

static int future_traverse(PyObject *self, visitproc visit, void *arg)
{
    Future *f = part(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(f->fn);
    for (int at = 0; at < INLINE_ARGS; at++)
        Py_VISIT(f->args[at]);
    Py_VISIT(f->context);
    Py_VISIT(f->value);
    if (f->extra != NULL) {
        Py_VISIT(f->extra->kwargs);
        Py_VISIT(f->extra->name);
        Py_VISIT(f->extra->alarm);
    }
    if (f->side != NULL) {
        Py_VISIT(f->side->condition);
        Py_VISIT(f->side->waiters);
        Py_VISIT(f->side->outcome);
        for (Py_ssize_t at = 0; at < f->side->callback_count; at++)
            Py_VISIT(f->side->callbacks[at]);
    }
#if PY_VERSION_HEX >= 0x030d0000
    PyObject_VisitManagedDict(self, visit, arg);
#else
    PyObject **dict = _PyObject_GetDictPtr(self);
    if (dict != NULL)
        Py_VISIT(*dict);
#endif
    return 0;
}

static int future_clear(PyObject *self)
{
    Future *f = part(self);
    f->runner = false; /* it has told its bulk, or never will */
    future_drop_call(f);
    Py_CLEAR(f->value);
    if (f->side != NULL) {
        Py_CLEAR(f->side->condition);
        Py_CLEAR(f->side->waiters);
        Py_CLEAR(f->side->outcome);
        while (f->side->callback_count > 0) {
            PyObject *callback = f->side->callbacks[--f->side->callback_count];
            Py_DECREF(callback);
        }
    }
#if PY_VERSION_HEX >= 0x030d0000
    PyObject_ClearManagedDict(self);
#else
    PyObject **dict = _PyObject_GetDictPtr(self);
    if (dict != NULL)
        Py_CLEAR(*dict);
#endif
    return 0;
}

static void future_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_TRASHCAN_BEGIN(self, future_dealloc)
    PyObject_ClearWeakRefs(self);
    future_clear(self);
    Future *f = part(self);
    if (f->side != NULL) {
        PyMem_RawFree(f->side->callbacks);
        PyMem_RawFree(f->side);
    }
    if (f->home != NULL && (word_of(f) & STATE) == PENDING)
        frame_release(f->home);
    type->tp_free(self);
    Py_DECREF(type);
    Py_TRASHCAN_END
}

/* What goes with few futures. */

Side *future_side(PyObject *future)
{
    Future *f = part(future);
    lock();
    Side *side = f->side;
    unlock();
    if (side != NULL)
        return side;
    side = PyMem_RawCalloc(1, sizeof *side);
    if (side == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    lock();
    if (f->side == NULL) {
        f->side = side;
        side = NULL;
        filch_u32_fetch_or_acq_rel(&f->word, SLOW);
    }
    Side *there = f->side;
    unlock();
    PyMem_RawFree(side);
    return there;
}

uint32_t future_pin(PyObject *future)
{
    return filch_u32_fetch_or_acq_rel(&part(future)->word, SLOW);
}

static bool swap(Future *f, uint32_t from, uint32_t to)
{
    uint32_t word = word_of(f);
    while ((word & STATE) == from)
        if (filch_u32_cas_acq_rel(&f->word, &word, (word & ~STATE) | to))
            return true;
    return false;
}

bool future_claim(PyObject *future)
{
    return swap(part(future), PENDING, RUNNING);
}

static void track(PyObject *self)
{
    /* Under the lock, since two threads may find out at once that it is time. */
    lock();
    if (!PyObject_GC_IsTracked(self))
        PyObject_GC_Track(self);
    unlock();
}

/* Failures: an error in the place of a result. */

PyObject *failure_new(PyObject *error, PyObject *name, bool asked)
{
    Failure *failure = PyObject_GC_New(Failure, kernel.failure_type);
    if (failure == NULL)
        return NULL;
    failure->error = Py_NewRef(error);
    failure->name = Py_XNewRef(name);
    failure->asked = asked;
    failure->next = NULL;
    failure->link = NULL;
    if (!asked) {
        lock();
        failure->next = kernel.lost;
        failure->link = &kernel.lost;
        if (kernel.lost != NULL)
            kernel.lost->link = &failure->next;
        kernel.lost = failure;
        unlock();
    }
    PyObject_GC_Track(failure);
    return (PyObject *)failure;
}

PyObject *failure_from_raised(PyObject *name)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (error != NULL && traceback != NULL)
        PyException_SetTraceback(error, traceback);
    PyObject *failure = error ? failure_new(error, name, false) : NULL;
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return failure;
}

void failure_asked(PyObject *object)
{
    Failure *failure = (Failure *)object;
    lock();
    failure->asked = true;
    if (failure->link != NULL) {
        *failure->link = failure->next;
        if (failure->next != NULL)
            failure->next->link = failure->link;
        failure->link = NULL;
    }
    unlock();
}

static bool is_failure(PyObject *value)
{
    return value != NULL && Py_IS_TYPE(value, kernel.failure_type);
}

static int failure_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Failure *)self)->error);
    return 0;
}

static int failure_clear(PyObject *self)
{
    (void)self; /* its error leads to it only through something that can be cleared itself */
    return 0;
}

static void failure_finalize(PyObject *self)
{
    Failure *failure = (Failure *)self;
    if (failure->asked)
        return;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    failure_asked(self);
    PyObject *none = PyObject_CallFunction(kernel.help.report, "OO", failure->name ? failure->name : Py_None,
                                         failure->error);
    if (none == NULL)
        PyErr_WriteUnraisable(NULL);
    Py_XDECREF(none);
    PyErr_Restore(type, error, traceback);
}

static void failure_dealloc(PyObject *self)
{
    Failure *failure = (Failure *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (PyObject_CallFinalizerFromDealloc(self) < 0)
        return;
    PyObject_GC_UnTrack(self);
    failure_asked(self);
    Py_CLEAR(failure->error);
    Py_CLEAR(failure->name);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot failure_slots[] = {
    {Py_tp_dealloc, failure_dealloc},   {Py_tp_traverse, failure_traverse}, {Py_tp_clear, failure_clear},
    {Py_tp_finalize, failure_finalize}, {0, NULL},
};
static PyType_Spec failure_spec = {"filch._kernel._native.Failure", sizeof(Failure), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                   failure_slots};

PyObject *outcome_of(PyObject *outcome)
{
    if (!is_failure(outcome))
        return Py_NewRef(outcome);
    failure_asked(outcome);
    PyObject *error = ((Failure *)outcome)->error;
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    return NULL;
}

/* Names. */

PyObject *name_of(PyObject *fn, Extra *extra)
{
    if (extra != NULL && extra->name != NULL && PyObject_IsTrue(extra->name) == 1)
        return Py_NewRef(extra->name);
    if (fn == NULL)
        return PyUnicode_FromString("NoneType");
    PyObject *name = PyObject_GetAttr(fn, kernel.str_qualname);
    if (name == NULL || name == Py_None || !PyUnicode_Check(name)) {
        PyErr_Clear();
        Py_XDECREF(name);
        name = PyType_GetQualName(Py_TYPE(fn));
    }
    return name;
}

PyObject *future_name(PyObject *future)
{
    Future *f = part(future);
    PyObject *fn = NULL, *given = NULL;
    lock();
    uint32_t state = future_pin(future) & STATE;
    if (state == PENDING || state == RUNNING) { /* else its worker is dropping them, or has */
        fn = Py_XNewRef(f->fn);
        given = f->extra != NULL ? Py_XNewRef(f->extra->name) : NULL;
    }
    unlock();
    Extra extra = {.name = given};
    PyObject *name = name_of(fn, &extra);
    Py_XDECREF(fn);
    Py_XDECREF(given);
    return name;
}

/* Ends. Exactly one caller moves a future out of a state. */

static void store(Future *f, uint32_t to, PyObject *value)
{
    if (to == EXPIRED)
        f->side->outcome = value;
    else
        f->value = value;
}

/* Under the lock: the task is not PENDING any more, so nobody runs it. */
static void leave_home(Future *f)
{
    Frame *frame = f->home;
    f->home = NULL;
    if (frame != NULL)
        frame_release(frame);
}

/* Under the lock. What is to be dropped afterwards is left in `f`, which is done then. */
static bool end(PyObject *self, uint32_t from, uint32_t to, PyObject *value)
{
    Future *f = part(self);
    future_pin(self);
    uint32_t state = word_of(f) & STATE;
    if (state != from)
        return false;
    store(f, to, value);
    if (!swap(f, from, to)) {
        store(f, to, NULL);
        return false;
    }
    if (from == PENDING)
        leave_home(f);
    if (f->side != NULL)
        wake_all(&f->side->sleepers);
    return true;
}

/* `from` may be RUNNING for ENDING too, when its worker calls. Steals `value` if true. */
bool future_settle(PyObject *self, uint32_t from, uint32_t to, PyObject *value)
{
    Future *f = part(self);
    Py_INCREF(self);
    lock();
    PyObject *condition = f->side != NULL ? f->side->condition : NULL;
    bool closed = false;
    if (condition == NULL)
        closed = end(self, from, to, value);
    else
        Py_INCREF(condition);
    unlock();
    if (condition != NULL) {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        PyObject *got = PyObject_CallMethodNoArgs(condition, kernel.str_acquire);
        Py_XDECREF(got);
        lock();
        closed = end(self, from, to, value);
        PyObject *waiters = Py_XNewRef(f->side->waiters);
        unlock();
        if (closed && to != CANCELLED && waiters != NULL) {
            PyObject *how = to == NOTIFIED      ? kernel.str_add_cancelled
                            : is_failure(value) ? kernel.str_add_exception
                                                : kernel.str_add_result;
            PyObject *all = PySequence_Tuple(waiters);
            for (Py_ssize_t at = 0; all != NULL && at < PyTuple_GET_SIZE(all); at++) {
                PyObject *none = PyObject_CallMethodOneArg(PyTuple_GET_ITEM(all, at), how, self);
                if (none == NULL)
                    PyErr_WriteUnraisable(self);
                Py_XDECREF(none);
            }
            Py_XDECREF(all);
        }
        Py_XDECREF(waiters);
        if (got != NULL) {
            Py_XDECREF(PyObject_CallMethodNoArgs(condition, kernel.str_notify_all));
            Py_XDECREF(PyObject_CallMethodNoArgs(condition, kernel.str_release));
        }
        if (PyErr_Occurred())
            PyErr_WriteUnraisable(self);
        Py_DECREF(condition);
        PyErr_Restore(type, error, traceback);
    }
    if (closed) {
        if (from == PENDING)
            future_drop_call(f);
        if (value != NULL && PyObject_IS_GC(value))
            track(self);
    }
    Py_DECREF(self);
    return closed;
}

static void call_back(PyObject *self, PyObject *callback)
{
    PyObject *none = PyObject_CallOneArg(callback, self);
    if (none == NULL) {
        if (!PyErr_ExceptionMatches(PyExc_Exception) && here == NULL)
            return; /* to the caller */
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        PyErr_NormalizeException(&type, &error, &traceback);
        if (traceback != NULL)
            PyException_SetTraceback(error, traceback);
        none = PyObject_CallFunction(kernel.help.callback_failed, "OO", self, error);
        if (none == NULL)
            PyErr_WriteUnraisable(self);
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
    }
    Py_XDECREF(none);
}

/* After the end, by whoever brought it about. May leave an error set: a BaseException of a callback. */
void future_tell(PyObject *self)
{
    Future *f = part(self);
    if (f->runner)
        bulk_lose(self);
    while (word_of(f) & SLOW) { /* else nobody listens */
        lock();
        PyObject *callback = NULL;
        if (f->side != NULL && f->side->callback_count > 0) {
            callback = f->side->callbacks[0];
            f->side->callback_count--;
            memmove(f->side->callbacks, f->side->callbacks + 1,
                    (size_t)f->side->callback_count * sizeof *f->side->callbacks);
        }
        unlock();
        if (callback == NULL)
            return;
        call_back(self, callback);
        Py_DECREF(callback);
        if (PyErr_Occurred())
            return;
    }
}

static bool finish(PyObject *self, PyObject *value)
{
    Py_INCREF(value);
    if (future_settle(self, RUNNING, FINISHED, value) || future_settle(self, PENDING, FINISHED, value)) {
        future_tell(self);
        return true;
    }
    Py_DECREF(value);
    return false;
}

/* The caller's side. */

static bool future_is_done(void *context)
{
    return is_done(word_of(context));
}

/* 0: done, and not cancelled. */
static int await_end(PyObject *self, PyObject *timeout)
{
    Future *f = part(self);
    uint32_t word = word_of(f);
    if (!is_done(word)) {
        uint64_t deadline;
        bool timed;
        if (deadline_from(timeout, &deadline, &timed) < 0)
            return -1;
        Side *side = future_side(self);
        if (side == NULL)
            return -1;
        Wait wait = {future_is_done, f, &side->sleepers, &self, 1, true, NULL, false};
        Py_INCREF(self);
        enum waited how = wait_for(&wait, deadline, timed);
        Py_DECREF(self);
        if (how == WAITED_TIMEOUT)
            PyErr_SetNone(PyExc_TimeoutError);
        if (how != WAITED_DONE)
            return -1;
        word = word_of(f);
    }
    if ((word & STATE) == CANCELLED || (word & STATE) == NOTIFIED) {
        PyErr_SetNone(kernel.cancelled_error);
        return -1;
    }
    return 0;
}

static PyObject *outcome(Future *f)
{
    PyObject *value = (word_of(f) & STATE) == EXPIRED ? f->side->outcome : f->value;
    return value == NULL ? Py_None : value;
}

static int one_timeout(PyObject *const *args, Py_ssize_t count, PyObject *names, const char *what, PyObject **timeout)
{
    Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    *timeout = Py_None;
    if (count + named > 1) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most 1 argument, the timeout, not %zd", what, count + named);
        return -1;
    }
    if (named && !(PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "timeout") == 0)) {
        PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument %R", what, PyTuple_GET_ITEM(names, 0));
        return -1;
    }
    if (count + named)
        *timeout = args[0];
    return 0;
}

static PyObject *future_result(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *timeout;
    if (one_timeout(args, count, names, "result", &timeout) < 0 || await_end(self, timeout) < 0)
        return NULL;
    return outcome_of(outcome(part(self)));
}

static PyObject *future_exception(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *timeout;
    if (one_timeout(args, count, names, "exception", &timeout) < 0 || await_end(self, timeout) < 0)
        return NULL;
    PyObject *value = outcome(part(self));
    if (!is_failure(value))
        Py_RETURN_NONE;
    failure_asked(value);
    PyObject *error = ((Failure *)value)->error;
    if (PyErr_GivenExceptionMatches(error, PyExc_StopIteration))
        return PyObject_CallOneArg(kernel.help.for_coroutines, error);
    return Py_NewRef(error);
}

static PyObject *future_done(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong(is_done(word_of(part(self))));
}

static PyObject *future_running(PyObject *self, PyObject *unused)
{
    (void)unused;
    uint32_t state = word_of(part(self)) & STATE;
    return PyBool_FromLong(state == RUNNING || state == ENDING);
}

static PyObject *future_cancelled(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyBool_FromLong((word_of(part(self)) & STATE) >= CANCELLED);
}

PyObject *future_cancel(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (future_settle(self, PENDING, part(self)->task ? NOTIFIED : CANCELLED, NULL)) {
        future_tell(self);
        if (PyErr_Occurred())
            return NULL;
    }
    return future_cancelled(self, NULL);
}

static PyObject *future_add_done_callback(PyObject *self, PyObject *callback)
{
    Future *f = part(self);
    Side *side = future_side(self);
    if (side == NULL)
        return NULL;
    if (!PyObject_GC_IsTracked(self))
        track(self);
    lock();
    bool listens = !is_done(word_of(f));
    if (listens && side->callback_count == side->callback_room) {
        Py_ssize_t room = side->callback_room * 2 + 2;
        PyObject **larger = PyMem_RawRealloc(side->callbacks, (size_t)room * sizeof *larger);
        if (larger == NULL) {
            unlock();
            return PyErr_NoMemory();
        }
        side->callbacks = larger;
        side->callback_room = room;
    }
    if (listens)
        side->callbacks[side->callback_count++] = Py_NewRef(callback);
    unlock();
    if (!listens) {
        call_back(self, callback);
        if (PyErr_Occurred())
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *future_invoke_callbacks(PyObject *self, PyObject *unused)
{
    (void)unused;
    future_tell(self);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *future_set_running(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (future_settle(self, CANCELLED, NOTIFIED, NULL))
        Py_RETURN_FALSE;
    lock();
    bool running = swap(part(self), PENDING, RUNNING);
    if (running)
        leave_home(part(self));
    unlock();
    if (running)
        Py_RETURN_TRUE;
    return PyObject_CallOneArg(kernel.help.report_unexpected_state, self);
}

static PyObject *invalid(PyObject *self)
{
    PyErr_Format(kernel.invalid_state, "%U: %R", kernel.states[word_of(part(self)) & STATE], self);
    return NULL;
}

static PyObject *future_set_result(PyObject *self, PyObject *result)
{
    if (finish(self, result)) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    return invalid(self);
}

static PyObject *future_set_exception(PyObject *self, PyObject *error)
{
    if (error == Py_None || !PyExceptionInstance_Check(error)) {
        if (PyExceptionClass_Check(error)) {
            PyObject *made = PyObject_CallNoArgs(error);
            if (made == NULL)
                return NULL;
            PyObject *none = future_set_exception(self, made);
            Py_DECREF(made);
            return none;
        }
        PyErr_Format(PyExc_TypeError, "an exception must be set, not %R", error);
        return NULL;
    }
    PyObject *name = future_name(self);
    PyObject *failure = name ? failure_new(error, name, !part(self)->task) : NULL;
    Py_XDECREF(name);
    if (failure == NULL)
        return NULL;
    bool ended = finish(self, failure);
    if (!ended)
        failure_asked(failure);
    Py_DECREF(failure);
    if (PyErr_Occurred())
        return NULL;
    if (ended)
        Py_RETURN_NONE;
    return invalid(self);
}

static PyObject *future_interrupt(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *cancelled = future_cancel(self, NULL);
    if (cancelled == NULL || cancelled == Py_True)
        return cancelled;
    Py_DECREF(cancelled);
    Side *side = future_side(self);
    if (side == NULL)
        return NULL;
    lock();
    uint32_t state = future_pin(self) & STATE;
    bool runs = state == RUNNING || state == ENDING;
    bool first = !side->interrupted;
    Worker *worker = NULL; /* while ENDING, its worker leaves it */
    if (state == RUNNING) {
        side->interrupted = true;
        if (first && part(self)->task)
            worker = part(self)->home;
    }
    if (worker != NULL)
        worker_interrupt(worker, self, side);
    if (worker != NULL && !worker->forced)
        worker = NULL;
    Py_XINCREF(worker);
    unlock();
    if (worker != NULL) {
        worker_insist(worker, self);
        Py_DECREF(worker);
    }
    return PyBool_FromLong(runs);
}

static PyObject *future_expire(PyObject *self, PyObject *error)
{
    if (!PyExceptionInstance_Check(error)) {
        PyErr_Format(PyExc_TypeError, "a future expires with an exception, not %R", error);
        return NULL;
    }
    Side *side = future_side(self);
    PyObject *name = side ? future_name(self) : NULL;
    PyObject *failure = name ? failure_new(error, name, false) : NULL;
    Py_XDECREF(name);
    if (failure == NULL)
        return NULL;
    lock();
    uint32_t state = future_pin(self) & STATE;
    Worker *worker = state == RUNNING && part(self)->task ? part(self)->home : NULL;
    Py_XINCREF(worker);
    unlock();
    bool ended = future_settle(self, RUNNING, EXPIRED, failure) || future_settle(self, PENDING, FINISHED, failure);
    if (!ended) {
        failure_asked(failure);
        Py_DECREF(failure);
    }
    if (worker != NULL) {
        lock();
        bool first = !side->interrupted;
        if (first)
            worker_interrupt(worker, self, side);
        bool insists = first && worker->forced;
        unlock();
        if (insists)
            worker_insist(worker, self);
        Py_DECREF(worker);
    }
    if (ended)
        future_tell(self);
    if (PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(ended);
}

static PyObject *future_await(PyObject *self)
{
    return PyObject_CallOneArg(kernel.help.awaited, self);
}

static PyObject *future_reduce(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyErr_SetString(PyExc_TypeError,
                    "a future belongs to its process and cannot be pickled or copied; pass its result on");
    return NULL;
}

static PyObject *future_snapshot(PyObject *self, PyObject *unused)
{
    (void)unused;
    uint32_t state = word_of(part(self)) & STATE;
    if (state != FINISHED && state != EXPIRED)
        return Py_BuildValue("OOOO", is_done(state) ? Py_True : Py_False, state >= CANCELLED ? Py_True : Py_False,
                             Py_None, Py_None);
    PyObject *value = outcome(part(self));
    if (!is_failure(value))
        return Py_BuildValue("OOOO", Py_True, Py_False, value, Py_None);
    PyObject *error = future_exception(self, NULL, 0, NULL);
    return error ? Py_BuildValue("OOON", Py_True, Py_False, Py_None, error) : NULL;
}

/* What the standard library's wait(), as_completed() and asyncio reach into. */

static PyObject *get_state(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(kernel.states[word_of(part(self)) & STATE]);
}

static int set_state(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    static const uint32_t all[] = {PENDING, RUNNING, FINISHED, CANCELLED, NOTIFIED};
    if (part(self)->task) {
        PyErr_SetString(PyExc_AttributeError, "the state of a task is its pool's; use cancel() or set_result(), or "
                                              "make a future of your own with Future()");
        return -1;
    }
    for (size_t at = 0; value != NULL && at < sizeof all / sizeof *all; at++) {
        int same = PyObject_RichCompareBool(value, kernel.states[all[at]], Py_EQ);
        if (same < 0)
            return -1;
        if (same) {
            lock();
            uint32_t word = word_of(part(self));
            while (!filch_u32_cas_acq_rel(&part(self)->word, &word, (word & ~STATE) | all[at])) {
            }
            unlock();
            return 0;
        }
    }
    PyErr_Format(PyExc_ValueError, "_state must be a state of concurrent.futures, not %R", value ? value : Py_None);
    return -1;
}

static PyObject *get_condition(PyObject *self, void *which)
{
    Side *side = future_side(self);
    if (side == NULL)
        return NULL;
    lock();
    PyObject *there = Py_XNewRef(which ? side->waiters : side->condition);
    unlock();
    if (there != NULL)
        return there;
    PyObject *pair = PyObject_CallOneArg(kernel.help.condition_for, self);
    if (pair == NULL)
        return NULL;
    if (!PyObject_GC_IsTracked(self))
        track(self);
    lock();
    if (side->condition == NULL) {
        /* Whoever ends the task from here on takes the condition first; who has ended it before is seen under it. */
        side->condition = Py_NewRef(PyTuple_GET_ITEM(pair, 0));
        side->waiters = Py_NewRef(PyTuple_GET_ITEM(pair, 1));
    }
    there = Py_NewRef(which ? side->waiters : side->condition);
    unlock();
    Py_DECREF(pair);
    return there;
}

static PyObject *get_callbacks(PyObject *self, void *unused)
{
    (void)unused;
    Side *side = future_side(self);
    if (side == NULL)
        return NULL;
    lock();
    Py_ssize_t count = side->callback_count;
    unlock();
    PyObject *list = PyList_New(count);
    if (list == NULL)
        return NULL;
    lock();
    for (Py_ssize_t at = 0; at < count; at++)
        PyList_SET_ITEM(list, at, Py_NewRef(at < side->callback_count ? side->callbacks[at] : Py_None));
    unlock();
    return list;
}

static PyObject *get_result(PyObject *self, void *unused)
{
    (void)unused;
    uint32_t state = word_of(part(self)) & STATE;
    PyObject *value = state == FINISHED ? outcome(part(self)) : Py_None;
    return Py_NewRef(is_failure(value) ? Py_None : value);
}

static PyObject *get_exception(PyObject *self, void *unused)
{
    (void)unused;
    uint32_t state = word_of(part(self)) & STATE;
    PyObject *value = state == FINISHED || state == EXPIRED || !part(self)->task ? outcome(part(self)) : Py_None;
    return Py_NewRef(is_failure(value) ? ((Failure *)value)->error : Py_None);
}

static void replace_value(PyObject *self, PyObject *value)
{
    lock();
    PyObject *old = part(self)->value;
    part(self)->value = value;
    unlock();
    Py_XDECREF(old);
    if (PyObject_IS_GC(value) && !PyObject_GC_IsTracked(self))
        track(self);
}

static int set_result_slot(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    if (value == NULL || (value == Py_None && is_failure(part(self)->value)))
        return 0;
    replace_value(self, Py_NewRef(value));
    return 0;
}

static int set_exception_slot(PyObject *self, PyObject *value, void *unused)
{
    (void)unused;
    PyObject *failure = value == NULL || value == Py_None ? Py_NewRef(Py_None) : failure_new(value, NULL, true);
    if (failure == NULL)
        return -1;
    replace_value(self, failure);
    return 0;
}

static PyGetSetDef future_getset[] = {
    {"_state", get_state, set_state, NULL, NULL},
    {"_condition", get_condition, NULL, NULL, NULL},
    {"_waiters", get_condition, NULL, NULL, (void *)1},
    {"_done_callbacks", get_callbacks, NULL, NULL, NULL},
    {"_result", get_result, set_result_slot, NULL, NULL},
    {"_exception", get_exception, set_exception_slot, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define FAST(function) (PyCFunction)(void (*)(void))(function)
static PyMethodDef future_methods[] = {
    {"result", FAST(future_result), METH_FASTCALL | METH_KEYWORDS, "result($self, timeout=None)\n--\n\n"},
    {"exception", FAST(future_exception), METH_FASTCALL | METH_KEYWORDS, "exception($self, timeout=None)\n--\n\n"},
    {"done", future_done, METH_NOARGS, NULL},
    {"running", future_running, METH_NOARGS, NULL},
    {"cancelled", future_cancelled, METH_NOARGS, NULL},
    {"cancel", future_cancel, METH_NOARGS, NULL},
    {"add_done_callback", future_add_done_callback, METH_O, NULL},
    {"_invoke_callbacks", future_invoke_callbacks, METH_NOARGS, NULL},
    {"set_running_or_notify_cancel", future_set_running, METH_NOARGS, NULL},
    {"set_result", future_set_result, METH_O, NULL},
    {"set_exception", future_set_exception, METH_O, NULL},
    {"interrupt", future_interrupt, METH_NOARGS,
     "interrupt($self)\n--\n\nCancel the task if it has not started, else ask it to stop; False when it has ended."},
    {"expire", future_expire, METH_O,
     "expire($self, error)\n--\n\nEnd the future now with `error`, and interrupt its task if it runs."},
    {"_get_snapshot", future_snapshot, METH_NOARGS, NULL},
    {"__reduce__", future_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static const char future_doc[] = "Future()\n--\n\nHandle to the result of a task; task and future are one object.";

static PyType_Slot future_slots[] = {
    {Py_tp_doc, (void *)future_doc},
    {Py_tp_new, future_new},           {Py_tp_init, future_init},   {Py_tp_dealloc, future_dealloc},
    {Py_tp_traverse, future_traverse}, {Py_tp_clear, future_clear}, {Py_tp_methods, future_methods},
    {Py_tp_getset, future_getset},     {Py_am_await, future_await}, {0, NULL},
};

int future_type_init(PyObject *module)
{
    PyTypeObject *base = (PyTypeObject *)kernel.base_future;
    future_offset = (base->tp_basicsize + 15) / 16 * 16;
    PyType_Spec spec = {"filch._kernel._native.Future", (int)(future_offset + (Py_ssize_t)sizeof(Future)), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, future_slots};
    kernel.future_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, (PyObject *)base);
    kernel.failure_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &failure_spec, NULL);
    if (kernel.future_type == NULL || kernel.failure_type == NULL)
        return -1;
    return PyModule_AddObjectRef(module, "Future", (PyObject *)kernel.future_type);
}
