/* How a thread waits: outside of tasks it sleeps; inside, it runs what it waits for, or gives its processor away. */
#include "kernel.h"

uint64_t kernel_marks;

int deadline_from(PyObject *timeout, uint64_t *deadline, bool *timed)
{
    *timed = timeout != Py_None;
    *deadline = FILCH_FOREVER;
    if (!*timed)
        return 0;
    double seconds = PyFloat_AsDouble(timeout);
    if (seconds == -1.0 && PyErr_Occurred())
        return -1;
    if (seconds != seconds) {
        PyErr_SetString(PyExc_ValueError, "a timeout must be a number of seconds, or None for no limit, not nan");
        return -1;
    }
    if (seconds <= 0)
        *deadline = 0;
    else if (seconds < 1e9)
        *deadline = filch_deadline_in((uint64_t)(seconds * 1e9));
    return 0;
}

/* At first, only watch: a signal that comes meanwhile disturbs no sleep, and is to be looked for before. */
static enum filch_parked sleep_outside(Seat *seat, uint64_t deadline, bool watched)
{
    enum filch_parked how = FILCH_DISTURBED;
    Py_BEGIN_ALLOW_THREADS
    if (watched)
        how = seat_park(seat, deadline);
    else if (seat_watch(seat, deadline))
        how = filch_parker_park(&seat->parker, 0);
    Py_END_ALLOW_THREADS
    return how;
}

static void refresh(Wait *wait)
{
    if (wait->refresh != NULL)
        wait->refresh(wait);
}

/* Is it done? Without the lock. */
static bool look(Wait *wait)
{
    if (!wait->locked)
        return wait->done(wait->context);
    lock();
    bool done = wait->done(wait->context);
    unlock();
    return done;
}

static enum waited wait_outside(Wait *wait, uint64_t deadline)
{
    Seat *seat = own_seat();
    Sleeper sleeper = {0};
    enum waited result = WAITED_DONE;
    for (bool watched = false;; watched = true) {
        lock();
        bool done = wait->done(wait->context);
        if (!done && sleeper.link == NULL)
            sleeper_enter(&sleeper, wait->list, seat);
        unlock();
        if (done)
            break;
        uint64_t uses = seat->uses;
        core_replace_own();
        if (uses != seat->uses)
            continue; /* whoever waited there may have taken our token */
        enum filch_parked how = sleep_outside(seat, deadline, watched);
        if (how == FILCH_DISTURBED && PyErr_CheckSignals() < 0) {
            result = WAITED_ERROR;
            break;
        }
        if (how == FILCH_TIMEOUT && !look(wait)) {
            result = WAITED_TIMEOUT;
            break;
        }
    }
    lock();
    sleeper_leave(&sleeper);
    unlock();
    return result;
}

/* Does what `there` waits for lead back to `worker`? `trail` gets the futures on the way, the last one first. */
static bool is_stuck(Worker *there, Worker *worker, Vector *trail)
{
    Wait *wait = there->waiting;
    if (wait == NULL)
        return false;
    refresh(wait);
    bool stuck = false;
    PyObject *way = NULL;
    Vector rest = {0};
    for (Py_ssize_t at = 0; at < wait->count; at++) {
        PyObject *future = wait->awaited[at];
        Worker *runs = NULL;
        if (is_future(future)) {
            uint32_t word = future_pin(future);
            if (is_done(word))
                continue;
            if ((word & STATE) == RUNNING && part(future)->task)
                runs = part(future)->home;
        }
        stuck = runs == worker;
        Vector branch = {0};
        if (runs != NULL && runs != worker && runs->mark != kernel_marks) {
            runs->mark = kernel_marks;
            stuck = is_stuck(runs, worker, &branch);
        }
        if (stuck && way == NULL) {
            way = future;
            free(rest.at);
            rest = branch;
        } else {
            free(branch.at);
        }
        if (stuck == wait->every)
            break;
    }
    if (stuck && way != NULL) {
        for (Py_ssize_t at = 0; at < rest.count; at++)
            vector_push(trail, rest.at[at]);
        vector_push(trail, way);
    }
    free(rest.at);
    return stuck;
}

static void raise_circle(Worker *worker, Vector *trail)
{
    PyObject *names = PyList_New(0);
    PyObject *name = names ? future_name(task_of(worker)) : NULL;
    if (name != NULL)
        PyList_Append(names, name);
    Py_XDECREF(name);
    for (Py_ssize_t at = trail->count; at-- > 0 && names != NULL;) {
        name = future_name(trail->at[at]);
        if (name != NULL)
            PyList_Append(names, name);
        Py_XDECREF(name);
    }
    PyObject *text = names ? PyObject_CallOneArg(kernel.help.circle, names) : NULL;
    if (text != NULL)
        PyErr_SetObject(kernel.deadlock, text);
    Py_XDECREF(text);
    Py_XDECREF(names);
}

/* Give the processor away and sleep. */
static enum waited sleep_inside(Worker *worker, Wait *wait, uint64_t deadline, bool timed)
{
    Seat *seat = worker->seat;
    Sleeper sleeper = {0};
    Vector trail = {0};
    Worker *helper = NULL;
    bool circle = false, gave = false;
    enum waited result = WAITED_DONE;
    lock();
    if (wait->done(wait->context)) {
        unlock();
        return WAITED_DONE;
    }
    sleeper_enter(&sleeper, wait->list, seat);
    if (!timed) {
        worker->waiting = wait;
        worker->mark = ++kernel_marks;
        circle = task_of(worker) != NULL && is_stuck(worker, worker, &trail);
        for (Py_ssize_t at = 0; at < trail.count; at++)
            Py_INCREF((PyObject *)trail.at[at]);
    }
    if (!circle) {
        gave = core_give_up(worker, wait->awaited, wait->count, &helper);
        if (gave) /* else it is that of a wait below, if there is one */
            seat->heir = worker;
    }
    uint64_t uses = seat->uses;
    unlock();
    drop_discarded();
    if (circle) {
        raise_circle(worker, &trail);
        result = WAITED_ERROR;
    } else if (helper == NULL || core_start(helper) > 0) {
        core_replace_own();
        /* Python has run since the announcement; if it waited, it may have taken our token: look again. */
        enum filch_parked how = uses == seat->uses ? seat_sleep(seat, deadline) : FILCH_TOKEN;
        if (how == FILCH_TIMEOUT && timed && !look(wait))
            result = WAITED_TIMEOUT;
        if (how == FILCH_DISTURBED && PyErr_CheckSignals() < 0)
            result = WAITED_ERROR;
    } else {
        PyErr_Clear(); /* nobody takes over: help instead */
    }
    lock();
    if (worker->waiting == wait)
        worker->waiting = NULL;
    sleeper_leave(&sleeper);
    if (seat->heir != NULL) {
        seat->heir = NULL;
        core_take_back(worker);
    }
    unlock();
    for (Py_ssize_t at = 0; at < trail.count; at++)
        Py_DECREF((PyObject *)trail.at[at]);
    free(trail.at);
    return result;
}

/* Is it to come back as soon as something is so, and must not lie under a task that takes long? Under the lock. */
static bool is_prompt(const Wait *wait, bool timed)
{
    int pending = 0;
    for (Py_ssize_t at = 0; at < wait->count && pending < 2 && !timed && !wait->every; at++)
        pending += !is_future(wait->awaited[at]) || !is_done(word_of(part(wait->awaited[at])));
    return timed || pending > 1;
}

static enum waited wait_inside(Worker *worker, Wait *wait, uint64_t deadline, bool timed)
{
    enum waited result = WAITED_DONE;
    if (worker_raise_shield(worker) < 0)
        return WAITED_ERROR;
    while (!look(wait)) {
        if (worker_checkpoint(worker) < 0) {
            result = WAITED_ERROR;
            break;
        }
        lock();
        refresh(wait);
        int helps = core_help(worker, wait->awaited, wait->count, is_prompt(wait, timed));
        unlock();
        drop_discarded();
        if (helps > 0) {
            worker_run(worker);
            continue;
        }
        if (helps < 0) {
            PyErr_SetString(PyExc_RecursionError,
                            "no room on the stack for the task that is waited for; wait for it less deep");
            result = WAITED_ERROR;
            break;
        }
        enum waited how = sleep_inside(worker, wait, deadline, timed);
        if (how == WAITED_ERROR || (how == WAITED_TIMEOUT && worker_checkpoint(worker) < 0)) {
            result = WAITED_ERROR;
            break;
        }
        if (how == WAITED_TIMEOUT) {
            result = look(wait) ? WAITED_DONE : WAITED_TIMEOUT;
            break;
        }
    }
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    if (worker_lower_shield(worker) < 0) {
        if (type == NULL)
            return WAITED_ERROR;
        PyErr_Clear();
    }
    PyErr_Restore(type, error, traceback);
    return result;
}

/* Wait until `done`: whoever makes it true wakes the list under the lock. With WAITED_ERROR an error is set. */
enum waited wait_for(Wait *wait, uint64_t deadline, bool timed)
{
    if (look(wait))
        return WAITED_DONE;
    own_seat()->uses++;
    return here != NULL ? wait_inside(here, wait, deadline, timed) : wait_outside(wait, deadline);
}
