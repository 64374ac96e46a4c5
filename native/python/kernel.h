/* What the files of the native kernel share. Only these files know Python.

   One lock, `kernel_lock`, guards every queue and list, and every step of a task but the end of one that nobody waits
   for. A section calls no Python, makes no object and drops no reference; so nobody can come in its middle, neither a
   signal handler nor a destructor, and it is never held while a thread waits for the interpreter. The protocols:
   native/README.md. */
#ifndef FILCH_KERNEL_H
#define FILCH_KERNEL_H

#define PY_SSIZE_T_CLEAN
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <Python.h>

#include "../core/parker.h"

/* The states of a task, in the low bits of its word. */
enum {
    PENDING,
    RUNNING,
    ENDING, /* running, to everybody else: its worker drops what it was called with, and stores the outcome */
    FINISHED,
    EXPIRED, /* finished, too: the outcome is in `side` */
    CANCELLED,
    NOTIFIED
};
#define STATE 7u
/* The bit beside: somebody looks at the task under the lock, so its worker ends it under the lock too. */
#define SLOW 8u

#define INLINE_ARGS 3
#define RING 256u
#define LOOT 32u
#define BATCH 128u
#define FAIR 61u
#define HELP_DEPTH 64

typedef struct Core Core;
typedef struct Worker Worker;
typedef struct Future Future;
typedef struct Bulk Bulk;

/* A running task as the ancestor of what it spawns. Counted by atomic operations; the rest under the lock. */
typedef struct Frame {
    filch_atomic_u32 references;
    struct Frame *above;
    Core *core; /* NULL when the engine is gone */
    bool done, root;
} Frame;

/* A thread's place to sleep, in thread-local memory: whoever unparks does so under the lock, and whoever slept takes
   itself off the lists under the lock before it goes on. */
typedef struct Seat {
    struct filch_parker parker;
    struct filch_patience patience;
    bool ready;
    uint64_t uses; /* how many waits have begun: a destructor or a handler may wait in the middle of a wait */
    Worker *heir; /* under the lock: a worker to be given a processor when it is unparked */
} Seat;

/* One who waits for something, on its stack; in a list, under the lock. */
typedef struct Sleeper {
    struct Sleeper *next, **link;
    Seat *seat;
    uint32_t forks;
} Sleeper;

/* In a forked child, those in it from before are gone with their stacks, and are not touched. */
typedef struct Sleepers {
    Sleeper *first;
    uint32_t forks; /* how often the process had forked when it was last looked into */
} Sleepers;

/* What few futures have. Under the lock. */
typedef struct Side {
    PyObject *condition, *waiters;
    PyObject **callbacks;
    Py_ssize_t callback_count, callback_room;
    Sleepers sleepers;
    PyObject *outcome; /* of `expire` */
    bool interrupted;
} Side;

/* What few tasks have. */
typedef struct Extra {
    PyObject *kwargs, *name, *alarm;
    bool force;
} Extra;

/* The part of a future behind its base. `fn` to `extra` are written before it is queued, and taken by whoever ends it. */
struct Future {
    filch_atomic_u32 word;
    uint32_t run;      /* the injector's: which run of pushes it came with */
    uint8_t count;     /* arguments in `args`, or 255: one tuple */
    bool bare;         /* run in the worker's own context */
    bool runner;       /* `fn` is a Bulk */
    bool task;         /* not made by hand */
    PyObject *fn, *args[INLINE_ARGS], *context;
    Extra *extra;
    Side *side;
    void *home; /* under the lock: PENDING, its Frame; RUNNING, its Worker */
    PyObject *value; /* the result or a Failure, from the end on */
};

/* A growing ring of references to futures. */
typedef struct Queue {
    PyObject **slots;
    uint32_t head, count, room;
} Queue;

typedef struct Vector {
    void **at;
    Py_ssize_t count, room;
} Vector;

typedef struct Processor {
    Queue queue, inbox, mail;
    uint64_t tick;
    bool laden;
} Processor;

typedef struct Lane {
    int64_t priority;
    Queue queue;
} Lane;

typedef struct Injector {
    Lane *lanes; /* ascending priorities, none empty */
    Py_ssize_t count, room;
    uint64_t length, takes;
    uint32_t runs;
    int64_t newest;
    bool any;
} Injector;

struct Core {
    filch_atomic_u32 references;
    Core *next, **link; /* in the list of all */
    bool lifo, restart, closed, draining, warned, barren, refusing, ended, posted;
    PyObject *engine; /* a weak reference */
    PyObject *start_thread, *prologue, *broken;
    Frame *root;
    uint64_t random;
    double keep_alive;
    Py_ssize_t max_workers, max_threads, surplus, searching;
    Injector injector;
    Vector processors, free, laden, workers, sleepers, excess, coming;
    Sleepers watchers;
    uint64_t submitted, steals, stolen, spilled, parks, wakes, handoffs, threads_started, generation;
};

/* What lies under a task that runs on top of another. */
typedef struct Layer {
    PyObject *task;
    Frame *home, *frame;
    int isolated, shielded;
    bool forced;
} Layer;

struct Worker {
    PyObject_HEAD
    Core *core;
    Py_ssize_t number;
    Seat *seat;
    bool called, entered, asleep, forced, begun;
    bool over; /* `task` has ended, and is dropped under the lock, where others look at it; for its own thread alone */
    int isolated, shielded;
    Processor *processor;
    PyObject *thread;
    unsigned long ident;
    PyObject *task; /* owned */
    Frame *home, *frame;
    Layer *stack;
    Py_ssize_t depth, room;
    struct Wait *waiting; /* what it sleeps for without a time limit; under the lock */
    PyObject *scratch; /* an empty context, used again while nobody keeps it */
    unsigned turns; /* tasks since it last breathed */
    uint64_t mark;     /* of the search for circles */
};

typedef struct Failure {
    PyObject_HEAD
    PyObject *error, *name;
    bool asked;
    struct Failure *next, **link; /* those nobody has asked for, under the lock */
} Failure;

/* The functions of `_native_help`. */
#define HELPERS(X) \
    X(after_fork_in_child) X(awaited) X(breathe) X(broken_error) X(callback_failed) X(circle) \
    X(condition_for) X(current_thread) X(for_coroutines) X(fresh_copy) X(initializer_failed) X(insist) \
    X(is_on_main) X(no_thread) X(report) X(report_unexpected_state) X(warn_of_threads) X(watch_limits)
#define HELPER(name) PyObject *name;

typedef struct State {
    PyTypeObject *future_type, *engine_type, *bulk_type, *worker_type, *failure_type, *event_type;
    PyTypeObject *blocking_type, *isolate_type, *unlocked_type;
    PyObject *base_future, *cancelled_error, *timeout_error, *invalid_state, *broken_pool;
    PyObject *cancelled, *shutdown, *deadlock, *forked; /* filch's own */
    struct {
        HELPERS(HELPER)
    } help;
    PyObject *states[8];
    PyObject *str_acquire, *str_release, *str_notify_all, *str_qualname, *str_main;
    PyObject *str_add_result, *str_add_exception, *str_add_cancelled;
    PyObject *empty_tuple;
    filch_atomic_u32 main_ended;
    Core *cores;
    Failure *lost;
} State;

extern State kernel;
extern struct filch_mutex kernel_lock;
extern Py_ssize_t future_offset;
extern _Thread_local Worker *here;
extern uint64_t kernel_marks;
extern uint32_t kernel_forks; /* how often this process and those it comes from have forked */

static inline void lock(void) { filch_mutex_lock(&kernel_lock); }
static inline void unlock(void) { filch_mutex_unlock(&kernel_lock); }
static inline Future *part(PyObject *future) { return (Future *)((char *)future + future_offset); }
/* For the worker's own thread: the task that runs on it. */
static inline PyObject *task_of(const Worker *worker) { return worker->over ? NULL : worker->task; }
static inline uint32_t word_of(Future *f) { return filch_u32_load_acquire(&f->word); }
static inline bool is_done(uint32_t word) { return (word & STATE) >= FINISHED; }
static inline bool is_future(PyObject *object) { return PyObject_TypeCheck(object, kernel.future_type); }

/* lists.c */
void queue_push(Queue *queue, PyObject *future);
PyObject *queue_pop(Queue *queue);
PyObject *queue_take(Queue *queue);
static inline PyObject *queue_at(Queue *queue, uint32_t at) { return queue->slots[(queue->head + at) & (queue->room - 1)]; }
void vector_push(Vector *vector, void *item);
bool vector_remove(Vector *vector, void *item);
bool vector_has(const Vector *vector, void *item);
static inline void *vector_last(const Vector *vector) { return vector->at[vector->count - 1]; }
void injector_push(Injector *injector, PyObject *future, int64_t priority);
PyObject *injector_take(Injector *injector, bool oldest);
Lane *injector_lane(Injector *injector, int64_t priority);
static inline bool injector_is_urgent(const Injector *i) { return i->count && i->lanes[i->count - 1].priority > 0; }
void sleeper_enter(Sleeper *sleeper, Sleepers *list, Seat *seat);
void sleeper_leave(Sleeper *sleeper);
void wake_all(Sleepers *list);
Seat *own_seat(void);
void seat_unpark(Seat *seat);
bool seat_watch(Seat *seat, uint64_t deadline); /* before `seat_park`, without the interpreter: is there a token? */
enum filch_parked seat_park(Seat *seat, uint64_t deadline);
enum filch_parked seat_sleep(Seat *seat, uint64_t deadline); /* both, with the interpreter let go */
Frame *frame_new(Core *core, Frame *above);
void frame_release(Frame *frame);
Frame *frame_living(Frame *frame);

/* future.c */
PyObject *future_new_task(PyObject *fn, PyObject *const *args, Py_ssize_t count);
int future_context(Future *f);
PyObject *future_name(PyObject *future); /* whatever its state */
PyObject *name_of(PyObject *fn, Extra *extra);
Side *future_side(PyObject *future); /* may allocate; then the bit is set. Without the lock; NULL: no memory */
uint32_t future_pin(PyObject *future); /* under the lock: the word; a running task stays so until the unlock */
bool future_claim(PyObject *future);   /* under the lock */
bool future_settle(PyObject *future, uint32_t from, uint32_t to, PyObject *value); /* steals value if true */
void future_tell(PyObject *future);
void future_drop_call(Future *f);
PyObject *failure_new(PyObject *error, PyObject *name, bool asked); /* steals nothing */
PyObject *failure_from_raised(PyObject *name); /* takes the raised error; the name is borrowed */
void failure_asked(PyObject *failure);
PyObject *outcome_of(PyObject *outcome); /* returns the result or raises; borrowed argument */
PyObject *future_cancel(PyObject *self, PyObject *unused);
int future_type_init(PyObject *module);

/* core.c: queues, workers and processors */
void discard(void *object); /* under the lock: drop a reference after it */
void drop_discarded(void);  /* after the unlock */
enum refusal { ADMITTED, BROKEN, CLOSED, AT_EXIT };
Core *core_new(void);
void core_release(Core *core);
int core_admit(Core *core, PyObject *future, int64_t priority, bool owed); /* -1: an error is set, and it does not run */
bool core_forget(Core *core); /* false: no memory for its processors */
bool core_next(Worker *worker);
bool core_find(Core *core, Worker *worker);
int core_help(Worker *worker, PyObject **awaited, Py_ssize_t count, bool prompt);
int core_resize(Core *core, Py_ssize_t max_workers, Py_ssize_t max_threads);
int core_broadcast(Core *core, PyObject **tasks, Py_ssize_t count);
Frame *worker_open_frame(Worker *worker);
int core_begin_thread(Worker *worker); /* 1: go on */
bool core_visible(Core *core);
Worker *core_recruit(Core *core, bool every);
int core_start(Worker *worker); /* 1: it comes; 0: no thread can be had; -1: nor is there another, an error is set */
void core_replace_own(void);
void core_go_on(Core *core);
bool core_ends(Core *core, Worker *worker);
bool core_is_idle(Core *core);
bool core_give_up(Worker *worker, PyObject **awaited, Py_ssize_t count, Worker **helper);
void core_take_back(Worker *worker);
void core_release_processor(Core *core, Worker *worker);
void core_close(Core *core, bool drain);
void core_abandon(Core *core);
Py_ssize_t core_cancel_pending(Core *core);
void core_sweep(Core *core);
PyObject **core_queued(Core *core, Py_ssize_t *count);
void core_unfinished(Core *core, Vector *futures);
void core_load(Core *core, Processor *processor);
bool is_waiting_here(Core *core, PyObject *future);

/* worker.c */
int worker_type_init(PyObject *module);
PyObject *worker_new(Core *core, Py_ssize_t number);
PyObject *worker_main(PyObject *self, PyObject *unused);
bool worker_begin(Worker *worker, PyObject *future, bool nested, bool owned); /* under the lock; owned: takes the reference over */
void worker_run(Worker *worker);
void worker_breathe(Worker *worker);
int worker_checkpoint(Worker *worker);
int worker_raise_shield(Worker *worker);
int worker_lower_shield(Worker *worker);
void worker_interrupt(Worker *worker, PyObject *task, Side *side); /* under the lock */
void worker_insist(Worker *worker, PyObject *task); /* of a forced task */

/* waiting.c */
enum waited { WAITED_DONE, WAITED_TIMEOUT, WAITED_ERROR };
typedef struct Wait {
    bool (*done)(void *context);
    void *context;
    Sleepers *list; /* where to be entered, under the lock */
    PyObject **awaited; /* borrowed or owned by the caller */
    Py_ssize_t count;
    bool every;
    /* Called under the lock before each look, for what changes while one waits; may be NULL. */
    void (*refresh)(struct Wait *wait);
    bool locked; /* `done` wants the lock; else it does with and without */
} Wait;
enum waited wait_for(Wait *wait, uint64_t deadline, bool timed);
int deadline_from(PyObject *timeout, uint64_t *deadline, bool *timed);

/* the types and functions of the rest */
int engine_type_init(PyObject *module);
int bulk_type_init(PyObject *module);
int scopes_init(PyObject *module);
PyObject *bulk_new(Core *core, PyObject *fn, PyObject *items, int64_t priority, PyObject *context, bool bare,
                   Py_ssize_t grain);
PyObject *bulk_work(Worker *worker, PyObject *bulk);
void bulk_lose(PyObject *runner);
int priority_from(PyObject *value, int64_t *priority);

#endif
