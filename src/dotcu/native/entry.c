/* Entry: called in place of the function that torch made for an operator. And the module. */
#include "native.h"

#include <string.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    PyObject *fallback, *caches; /* a tuple of CallCache */
    bool autocasts;
} Entry;

static PyObject *entry_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    Entry *self = (Entry *)object;
    Argument arguments[2][MAX_ARGUMENTS];
    CallCache *chosen = NULL;
    int spare = 0;
    const int state = dotcu_state(self->autocasts);
    if (state == STATE_WATCHED || !dotcu_unobserved()) return PyObject_Call(self->fallback, args, kwargs);
    const Py_ssize_t count = PyTuple_Size(self->caches);
    for (Py_ssize_t i = 0; i < count; ++i) {
        CallCache *caches = (CallCache *)PyTuple_GetItem(self->caches, i);
        const int binds = dotcu_bind(caches, args, kwargs, arguments[spare]);
        if (binds == BIND_NO) continue;
        if (chosen || binds == BIND_MAYBE) return PyObject_Call(self->fallback, args, kwargs); /* torch knows which overload comes first */
        chosen = caches;
        spare = 1;
    }
    if (!chosen || !chosen->argument_count) return PyObject_Call(self->fallback, args, kwargs);
    return dotcu_call(chosen, arguments[0], state, self->fallback, args, kwargs);
}

static int entry_clear(PyObject *object) {
    Py_CLEAR(((Entry *)object)->caches);
    Py_CLEAR(((Entry *)object)->fallback);
    return 0;
}

static int entry_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"caches", "fallback", "autocasts", NULL};
    Entry *self = (Entry *)object;
    PyObject *caches, *fallback;
    int autocasts;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!Op", names, &PyTuple_Type, &caches, &fallback, &autocasts))
        return -1;
    entry_clear(object);
    Py_INCREF(caches);
    Py_INCREF(fallback);
    self->caches = caches;
    self->fallback = fallback;
    self->autocasts = autocasts;
    return 0;
}

static PyObject *entry_getattro(PyObject *object, PyObject *name) {
    PyObject *attribute = PyObject_GenericGetAttr(object, name);
    if (attribute || !PyErr_ExceptionMatches(PyExc_AttributeError)) return attribute;
    PyErr_Clear();
    return PyObject_GetAttr(((Entry *)object)->fallback, name);
}

/* torch hashes an operator by the function that it calls, so both must have the same hash. */
static Py_hash_t entry_hash(PyObject *object) { return PyObject_Hash(((Entry *)object)->fallback); }

static int entry_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Entry *)object)->caches);
    Py_VISIT(((Entry *)object)->fallback);
    return 0;
}

static void entry_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    entry_clear(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMemberDef entry_members[] = {
    {"fallback", T_OBJECT, offsetof(Entry, fallback), READONLY, "The function that torch made for the operator."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot entry_slots[] = {
    {Py_tp_doc, "Calls an operator: replays a recorded call that fits, else runs the body, or calls torch."},
    {Py_tp_new, PyType_GenericNew}, {Py_tp_init, entry_init}, {Py_tp_call, entry_call},
    {Py_tp_dealloc, entry_dealloc}, {Py_tp_traverse, entry_traverse}, {Py_tp_clear, entry_clear},
    {Py_tp_getattro, entry_getattro}, {Py_tp_hash, entry_hash}, {Py_tp_members, entry_members}, {0, NULL},
};
static PyType_Spec entry_spec = {"dotcu._native.Entry", sizeof(Entry), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                 entry_slots};

/* ---------------------------------------------------------------- the module */

static PyObject *configure(PyObject *module, PyObject *values) {
    if (!PyDict_Check(values)) return PyErr_Format(PyExc_TypeError, "configure takes a dict");
    if (dotcu_configure(values)) return NULL;
    Py_RETURN_NONE;
}

static PyObject *observe(PyObject *module, PyObject *by) {
    const long change = PyLong_AsLong(by);
    if (PyErr_Occurred()) return NULL;
    dotcu_observers += (int)change;
    return PyLong_FromLong(dotcu_observers);
}

static PyObject *dispatch_keys(PyObject *module, PyObject *unused) { return dotcu_dispatch_keys(); }

static PyObject *replay(PyObject *module, PyObject *wanted) {
    dotcu_replays = wanted == Py_True;
    Py_RETURN_NONE;
}

static PyObject *note(PyObject *module, PyObject *launched) {
    dotcu_note(launched, NULL, NULL);
    Py_RETURN_NONE;
}

static PyObject *launches(PyObject *module, PyObject *unused) { return dotcu_launches(); }

/* ---------------------------------------------------------------- the key of a choice by layout */

enum { MAX_KEY_LENGTH = 512, MOST_ALIGNMENT = 256 };

/* Writes the part of the key for one argument and returns its length; 0 for a value that has no key. */
static int layout_key_of(PyObject *value, int64_t *into, int left) {
    Argument argument = {.value = value, .kind = dotcu_kind(value)};
    const Tensor *tensor = &argument.tensor;
    into[0] = argument.kind;
    switch (argument.kind) {
    case KIND_TENSOR:
        if (dotcu_read(&argument) == READ_UNSUPPORTED || 4 + 2 * tensor->dim > left) return 0;
        into[1] = (int64_t)tensor->dtype << 32 | (uint32_t)tensor->device_index;
        into[2] = tensor->address & -tensor->address & (2 * MOST_ALIGNMENT - 1);
        into[3] = tensor->dim;
        for (int64_t i = 0; i < tensor->dim; ++i) {
            into[4 + 2 * i] = tensor->sizes[i];
            into[5 + 2 * i] = tensor->strides[i];
        }
        return 4 + 2 * (int)tensor->dim;
    case KIND_INT: return dotcu_as_int64(value, &into[1]) ? 2 : 0;
    case KIND_FLOAT: {
        const double number = PyFloat_AsDouble(value);
        memcpy(&into[1], &number, sizeof number);
        return 2;
    }
    case KIND_NONE: return 1;
    case KIND_BOOL: into[1] = value == Py_True; return 2;
    case KIND_DTYPE: into[1] = (int64_t)(intptr_t)value; return 2; /* torch has one object for each dtype, and never frees it */
    }
    return 0;
}

static PyObject *layout_key(PyObject *module, PyObject *args) {
    int64_t key[MAX_KEY_LENGTH];
    int count = 0;
    bool has_tensor = false;
    if (dotcu_observers) Py_RETURN_NONE; /* an observer must see the queries of a choice as well */
    for (Py_ssize_t i = 0; i < PyTuple_Size(args); ++i) {
        PyObject *value = PyTuple_GetItem(args, i);
        const int written = count + 4 > MAX_KEY_LENGTH ? 0 : layout_key_of(value, key + count, MAX_KEY_LENGTH - count);
        PyErr_Clear();
        if (!written) Py_RETURN_NONE;
        has_tensor |= key[count] == KIND_TENSOR;
        count += written;
    }
    if (!has_tensor) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)key, count * (Py_ssize_t)sizeof *key);
}

static PyMethodDef methods[] = {
    {"layout_key", layout_key, METH_VARARGS,
     "Return a key of everything but the tensors' values; None if an argument is not a plain tensor or a number."},
    {"replay", replay, METH_O, "Switch replaying and tracing on or off. When off, every body runs."},
    {"note", note, METH_O, "Remember a launch as the latest."},
    {"launches", launches, METH_NOARGS, "Return the latest launches, newest first: launch, operator or None, grid, dynamic shared memory."},
    {"configure", configure, METH_O, "Set the addresses and offsets that kernel/native.py located."},
    {"observe", observe, METH_O, "Add to the number of observers; while there is one, every call and launch goes through Python."},
    {"dispatch_keys", dispatch_keys, METH_NOARGS, "Return the dispatch keys that this thread includes and excludes, as torch stores them."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dotcu._native", "dotcu's native part.", -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    PyObject *caches = PyType_FromSpec(&dotcu_call_cache_spec), *entry = PyType_FromSpec(&entry_spec);
    PyObject *launcher = PyType_FromSpec(&dotcu_launcher_spec);
    if (!module || !caches || !entry || !launcher || PyModule_AddObject(module, "CallCache", caches) ||
        PyModule_AddObject(module, "Entry", entry) || PyModule_AddObject(module, "Launcher", launcher))
        return NULL;
    return module;
}
