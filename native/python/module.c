/* The module: made in steps, with its state in one struct. One interpreter may have it. */
#include "kernel.h"

State kernel;
struct filch_mutex kernel_lock;
Py_ssize_t future_offset;
_Thread_local Worker *here;
uint32_t kernel_forks;

static unsigned long watch_ns, watch_threads; /* see `filch_watch_limit` */

static PyObject *attribute(const char *module, const char *name)
{
    PyObject *imported = PyImport_ImportModule(module);
    PyObject *value = imported ? PyObject_GetAttrString(imported, name) : NULL;
    Py_XDECREF(imported);
    return value;
}

/* Around fork(), whoever calls it: so no section is half done in the child. */
static void prepare_fork(void)
{
    lock();
}

static void fork_in_parent(void)
{
    unlock();
}

static void fork_in_child(void)
{
    kernel_forks++;
    filch_watch_limit(watch_ns, watch_threads);
    filch_mutex_init(&kernel_lock);
}

static int module_exec(PyObject *module)
{
    static const struct {
        PyObject **place;
        const char *module, *name;
    } imports[] = {
        {&kernel.base_future, "concurrent.futures._base", "Future"},
        {&kernel.cancelled_error, "concurrent.futures._base", "CancelledError"},
        {&kernel.invalid_state, "concurrent.futures._base", "InvalidStateError"},
        {&kernel.cancelled, "filch.exceptions", "Cancelled"},
        {&kernel.shutdown, "filch.exceptions", "PoolShutdown"},
        {&kernel.deadlock, "filch.exceptions", "DeadlockError"},
        {&kernel.forked, "filch.exceptions", "ForkedError"},
        {&kernel.states[PENDING], "concurrent.futures._base", "PENDING"},
        {&kernel.states[RUNNING], "concurrent.futures._base", "RUNNING"},
        {&kernel.states[ENDING], "concurrent.futures._base", "RUNNING"},
        {&kernel.states[FINISHED], "concurrent.futures._base", "FINISHED"},
        {&kernel.states[EXPIRED], "concurrent.futures._base", "FINISHED"},
        {&kernel.states[CANCELLED], "concurrent.futures._base", "CANCELLED"},
        {&kernel.states[NOTIFIED], "concurrent.futures._base", "CANCELLED_AND_NOTIFIED"},
    };
    if (kernel.empty_tuple != NULL) {
        PyErr_SetString(PyExc_ImportError, "filch's native kernel is loaded already, and one interpreter can have it");
        return -1;
    }
    filch_mutex_init(&kernel_lock);
    if (pthread_atfork(prepare_fork, fork_in_parent, fork_in_child) != 0) {
        PyErr_NoMemory();
        return -1;
    }
    kernel.empty_tuple = PyTuple_New(0);
    kernel.str_acquire = PyUnicode_InternFromString("acquire");
    kernel.str_release = PyUnicode_InternFromString("release");
    kernel.str_notify_all = PyUnicode_InternFromString("notify_all");
    kernel.str_main = PyUnicode_InternFromString("main");
    kernel.str_add_result = PyUnicode_InternFromString("add_result");
    kernel.str_add_exception = PyUnicode_InternFromString("add_exception");
    kernel.str_add_cancelled = PyUnicode_InternFromString("add_cancelled");
    kernel.str_qualname = PyUnicode_InternFromString("__qualname__");
    for (size_t at = 0; at < sizeof imports / sizeof *imports; at++)
        if ((*imports[at].place = attribute(imports[at].module, imports[at].name)) == NULL)
            return -1;
    if (future_type_init(module) < 0 || engine_type_init(module) < 0 || bulk_type_init(module) < 0 ||
        worker_type_init(module) < 0 || scopes_init(module) < 0 ||
        PyModule_AddStringConstant(module, "implementation", "native") < 0)
        return -1;
    /* It imports this module, which is in sys.modules by now. */
    PyObject *help = PyImport_ImportModule("filch._kernel._native_help");
    bool found = help != NULL;
#define FIND(name) found = found && (kernel.help.name = PyObject_GetAttrString(help, #name)) != NULL;
    HELPERS(FIND)
    Py_XDECREF(help);
    PyObject *limits = found ? PyObject_CallNoArgs(kernel.help.watch_limits) : NULL;
    found = limits != NULL && PyArg_ParseTuple(limits, "kk", &watch_ns, &watch_threads);
    Py_XDECREF(limits);
    if (found)
        filch_watch_limit(watch_ns, (uint32_t)watch_threads);
    return found ? 0 : -1;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, module_exec},
#if PY_VERSION_HEX >= 0x030c0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030d0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "The native kernel; see `_native.pyi`.", 0, NULL, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
