/* Queues, vectors, lanes, sleepers and frames: what the lock guards. Nothing here knows what runs when. */
#include "kernel.h"

static void *grown(void *memory, size_t size)
{
    void *larger = realloc(memory, size);
    if (larger == NULL)
        Py_FatalError("filch: no memory for a queue");
    return larger;
}

void queue_push(Queue *queue, PyObject *future)
{
    if (queue->count == queue->room) {
        uint32_t room = queue->room ? queue->room * 2 : 16;
        queue->slots = grown(queue->slots, room * sizeof *queue->slots);
        /* What lay before `head`, at the start of the ring, goes behind what lay at its end. */
        for (uint32_t at = 0; at < queue->head; at++)
            queue->slots[queue->room + at] = queue->slots[at];
        queue->room = room;
    }
    queue->slots[(queue->head + queue->count++) & (queue->room - 1)] = future;
}

PyObject *queue_pop(Queue *queue)
{
    return queue->count ? queue->slots[(queue->head + --queue->count) & (queue->room - 1)] : NULL;
}

PyObject *queue_take(Queue *queue)
{
    if (queue->count == 0)
        return NULL;
    PyObject *future = queue->slots[queue->head];
    queue->head = (queue->head + 1) & (queue->room - 1);
    if (--queue->count == 0)
        queue->head = 0;
    return future;
}

void vector_push(Vector *vector, void *item)
{
    if (vector->count == vector->room) {
        vector->room = vector->room ? vector->room * 2 : 8;
        vector->at = grown(vector->at, (size_t)vector->room * sizeof *vector->at);
    }
    vector->at[vector->count++] = item;
}

bool vector_has(const Vector *vector, void *item)
{
    for (Py_ssize_t at = vector->count; at-- > 0;)
        if (vector->at[at] == item)
            return true;
    return false;
}

bool vector_remove(Vector *vector, void *item)
{
    for (Py_ssize_t at = vector->count; at-- > 0;)
        if (vector->at[at] == item) {
            vector->count--;
            memmove(vector->at + at, vector->at + at + 1, (size_t)(vector->count - at) * sizeof *vector->at);
            return true;
        }
    return false;
}

Lane *injector_lane(Injector *injector, int64_t priority)
{
    for (Py_ssize_t at = injector->count; at-- > 0;)
        if (injector->lanes[at].priority == priority)
            return &injector->lanes[at];
    return NULL;
}

/* What is pushed into one lane before another one has its turn is a run, and runs are numbered, so that it is known
   which lane's head has waited longest. */
void injector_push(Injector *injector, PyObject *future, int64_t priority)
{
    Lane *lane = injector_lane(injector, priority);
    if (lane == NULL) {
        if (injector->count == injector->room) {
            injector->room = injector->room ? injector->room * 2 : 4;
            injector->lanes = grown(injector->lanes, (size_t)injector->room * sizeof *injector->lanes);
        }
        Py_ssize_t at = injector->count++;
        for (; at > 0 && injector->lanes[at - 1].priority > priority; at--)
            injector->lanes[at] = injector->lanes[at - 1];
        lane = &injector->lanes[at];
        *lane = (Lane){.priority = priority};
    }
    if (!injector->any || injector->newest != priority) {
        injector->any = true;
        injector->newest = priority;
        injector->runs++;
    }
    part(future)->run = injector->runs;
    queue_push(&lane->queue, future);
    injector->length++;
}

PyObject *injector_take(Injector *injector, bool oldest)
{
    if (injector->count == 0)
        return NULL;
    Py_ssize_t best = injector->count - 1;
    if (oldest) {
        best = 0; /* the earliest run; of equals there are none */
        for (Py_ssize_t at = 1; at < injector->count; at++) {
            uint32_t run = part(queue_at(&injector->lanes[at].queue, 0))->run;
            if ((int32_t)(run - part(queue_at(&injector->lanes[best].queue, 0))->run) < 0)
                best = at;
        }
    }
    Lane *lane = &injector->lanes[best];
    PyObject *future = queue_take(&lane->queue);
    injector->length--;
    if (lane->queue.count == 0) {
        if (injector->newest == lane->priority)
            injector->any = injector->count > 1 && injector->any; /* alone, a lane that comes again may go on its run */
        free(lane->queue.slots);
        injector->count--;
        memmove(lane, lane + 1, (size_t)(injector->count - best) * sizeof *lane);
    }
    return future;
}

Seat *own_seat(void)
{
    static _Thread_local Seat seat;
    if (!seat.ready) {
        filch_parker_init(&seat.parker);
        seat.ready = true;
    }
    return &seat;
}

static void freshen(Sleepers *list)
{
    if (list->forks != kernel_forks) {
        list->forks = kernel_forks;
        list->first = NULL;
    }
}

void sleeper_enter(Sleeper *sleeper, Sleepers *list, Seat *seat)
{
    freshen(list);
    sleeper->seat = seat;
    sleeper->forks = kernel_forks;
    sleeper->next = list->first;
    sleeper->link = &list->first;
    if (list->first != NULL)
        list->first->link = &sleeper->next;
    list->first = sleeper;
}

void sleeper_leave(Sleeper *sleeper)
{
    if (sleeper->link != NULL && sleeper->forks == kernel_forks) {
        *sleeper->link = sleeper->next;
        if (sleeper->next != NULL)
            sleeper->next->link = sleeper->link;
    }
    sleeper->link = NULL;
}

/* Whoever leaves a token is often about to let the interpreter go: who takes it at once would have to sleep for it. */
#define HOLD_OFF 700u /* nanoseconds */

bool seat_watch(Seat *seat, uint64_t deadline)
{
    bool found = filch_parker_watch(&seat->parker, deadline, &seat->patience);
#ifndef Py_GIL_DISABLED
    for (uint64_t until = found ? filch_now_ns() + HOLD_OFF : 0; found && filch_now_ns() < until;)
        filch_relax();
#endif
    return found;
}

enum filch_parked seat_park(Seat *seat, uint64_t deadline)
{
    enum filch_parked how = filch_parker_park(&seat->parker, deadline);
    filch_patience_learn(&seat->patience);
    return how;
}

enum filch_parked seat_sleep(Seat *seat, uint64_t deadline)
{
    enum filch_parked how;
    Py_BEGIN_ALLOW_THREADS
    how = seat_watch(seat, deadline) ? filch_parker_park(&seat->parker, 0) : seat_park(seat, deadline);
    Py_END_ALLOW_THREADS
    return how;
}

/* Under the lock, so that the seat is still there. */
void seat_unpark(Seat *seat)
{
    Worker *heir = seat->heir;
    if (heir != NULL) {
        seat->heir = NULL;
        core_take_back(heir);
    }
    filch_parker_unpark(&seat->parker);
}

void wake_all(Sleepers *list)
{
    freshen(list);
    while (list->first != NULL) {
        Sleeper *sleeper = list->first; /* who came first is at the end, and is woken first */
        while (sleeper->next != NULL)
            sleeper = sleeper->next;
        sleeper_leave(sleeper);
        seat_unpark(sleeper->seat);
    }
}

Frame *frame_new(Core *core, Frame *above)
{
    Frame *frame = calloc(1, sizeof *frame);
    if (frame == NULL)
        Py_FatalError("filch: no memory for a task's frame");
    filch_u32_init(&frame->references, 1);
    frame->core = core;
    frame->above = above;
    if (above != NULL)
        filch_u32_fetch_add_acq_rel(&above->references, 1);
    return frame;
}

void frame_release(Frame *frame)
{
    while (frame != NULL && filch_u32_fetch_add_acq_rel(&frame->references, UINT32_MAX) == 1) {
        Frame *above = frame->above;
        free(frame);
        frame = above;
    }
}

/* The nearest ancestor, or itself, whose task still runs. Under the lock. */
Frame *frame_living(Frame *frame)
{
    while (frame->done && frame->above != NULL)
        frame = frame->above;
    return frame;
}
