/* The module, and the key of a choice by layout. */
#include "native.h"

#include <string.h>

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

static PyObject *note(PyObject *module, PyObject *launched) {
    dotcu_note(launched, NULL, NULL);
    Py_RETURN_NONE;
}

static PyObject *launches(PyObject *module, PyObject *unused) { return dotcu_launches(); }

/* ---------------------------------------------------------------- the key of a choice by layout */

enum { KEY_TENSOR, KEY_INT, KEY_FLOAT, KEY_NONE, KEY_BOOL, KEY_DTYPE };
enum { MAX_KEY_LENGTH = 512, MAX_ALIGNMENT = 256 };

/* Writes the part of the key for one argument and returns its length; 0 for a value that has no key. */
static int layout_key_of(PyObject *value, int64_t *into, int left) {
    Tensor tensor;
    if (dotcu_look(value, &tensor)) {
        if (4 + 2 * tensor.dimensions > left) return 0;
        into[0] = KEY_TENSOR | (int64_t)tensor.device_index << 8;
        into[1] = tensor.dtype | (int64_t)tensor.device_type << 32;
        into[2] = tensor.address & -tensor.address & (2 * MAX_ALIGNMENT - 1);
        into[3] = tensor.dimensions;
        memcpy(into + 4, tensor.sizes, sizeof *into * (size_t)tensor.dimensions);
        memcpy(into + 4 + tensor.dimensions, tensor.strides, sizeof *into * (size_t)tensor.dimensions);
        return 4 + 2 * tensor.dimensions;
    }
    if (PyLong_CheckExact(value)) return into[0] = KEY_INT, dotcu_as_int64(value, &into[1]) ? 2 : 0;
    if (PyFloat_CheckExact(value)) {
        const double number = PyFloat_AsDouble(value);
        into[0] = KEY_FLOAT;
        memcpy(&into[1], &number, sizeof number);
        return 2;
    }
    if (value == Py_None) return into[0] = KEY_NONE, 1;
    if (PyBool_Check(value)) return into[0] = KEY_BOOL, into[1] = value == Py_True, 2;
    if (Py_TYPE(value) != dotcu_dtype_type) return 0;
    into[0] = KEY_DTYPE; /* torch has one object for each dtype, and never frees it */
    into[1] = (int64_t)(intptr_t)value;
    return 2;
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
        has_tensor |= dotcu_is_tensor(value);
        count += written;
    }
    if (!has_tensor) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)key, count * (Py_ssize_t)sizeof *key);
}


/* ---------------------------------------------------------------- Choice */

/* What a function chose, by layout: a dict of keys. Calls that it does not know go to `choose` of the subclass. */
typedef struct {
    PyObject_HEAD
    PyObject *kept;
} Choice;

static PyObject *choose_name;

static PyObject *choice_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    Choice *self = (Choice *)object;
    if (self->kept && !kwargs && dotcu_is_in_body()) {
        PyObject *key = layout_key(NULL, args);
        PyObject *found = key && key != Py_None ? PyDict_GetItemWithError(self->kept, key) : NULL;
        Py_XINCREF(found);
        Py_XDECREF(key);
        if (found || PyErr_Occurred()) return found;
    }
    PyObject *choose = PyObject_GetAttr(object, choose_name);
    PyObject *chosen = choose ? PyObject_Call(choose, args, kwargs) : NULL;
    Py_XDECREF(choose);
    return chosen;
}

static PyObject *choice_keep_in(PyObject *object, PyObject *kept) {
    Choice *self = (Choice *)object;
    if (!PyDict_Check(kept) || self->kept) return PyErr_Format(PyExc_TypeError, "keep_in takes one dict");
    Py_INCREF(kept);
    self->kept = kept;
    Py_RETURN_NONE;
}

static int choice_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Choice *)object)->kept);
    return 0;
}

static int choice_clear(PyObject *object) {
    Py_CLEAR(((Choice *)object)->kept);
    return 0;
}

static void choice_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    choice_clear(object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef choice_methods[] = {
    {"keep_in", choice_keep_in, METH_O, "Set the dict of what was chosen, by key."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot choice_slots[] = {
    {Py_tp_doc, "What a function chose, by layout."}, {Py_tp_new, PyType_GenericNew}, {Py_tp_call, choice_call},
    {Py_tp_dealloc, choice_dealloc}, {Py_tp_traverse, choice_traverse}, {Py_tp_clear, choice_clear},
    {Py_tp_methods, choice_methods}, {0, NULL},
};
static PyType_Spec choice_spec = {"dotcu._native.Choice", sizeof(Choice), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, choice_slots};

static PyMethodDef methods[] = {
    {"layout_key", layout_key, METH_VARARGS,
     "Return a key of everything but the tensors' values; None if an argument is not a plain tensor or a number."},
    {"note", note, METH_O, "Remember a launch as the latest."},
    {"launches", launches, METH_NOARGS, "Return the latest launches, newest first: launch, scope or None, grid, dynamic shared memory."},
    {"configure", configure, METH_O, "Set what kernel/native.py hands over."},
    {"observe", observe, METH_O, "Add to the number of observers; while there is one, every call and launch goes through Python."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dotcu._native", "dotcu's native part.", -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    PyObject *launcher = PyType_FromSpec(&dotcu_launcher_spec), *operator = PyType_FromSpec(&dotcu_operator_spec);
    PyObject *choice = PyType_FromSpec(&choice_spec);
    choose_name = PyUnicode_InternFromString("choose");
    if (!module || !launcher || !operator || !choice || !choose_name || PyModule_AddObject(module, "Launcher", launcher) ||
        PyModule_AddObject(module, "Operator", operator) || PyModule_AddObject(module, "Choice", choice))
        return NULL;
    return module;
}
