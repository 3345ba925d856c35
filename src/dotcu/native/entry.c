/* Entry: what is called instead of what torch made for an operator; and the module. */
#include "native.h"

#include <structmember.h>

typedef struct {
    PyObject_HEAD
    PyObject *fallback, *plans; /* a tuple of Plans */
    bool autocasts;
} Entry;

static PyObject *entry_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    Entry *self = (Entry *)object;
    Argument arguments[2][MAX_ARGUMENTS];
    Plans *chosen = NULL;
    int spare = 0;
    if (!dotcu_calm(self->autocasts)) return PyObject_Call(self->fallback, args, kwargs);
    const Py_ssize_t count = PyTuple_Size(self->plans);
    for (Py_ssize_t i = 0; i < count; ++i) {
        Plans *plans = (Plans *)PyTuple_GetItem(self->plans, i);
        const int binds = dotcu_bind(plans, args, kwargs, arguments[spare]);
        if (binds == BIND_NO) continue;
        if (chosen || binds == BIND_MAYBE) return PyObject_Call(self->fallback, args, kwargs); /* torch knows which comes first */
        chosen = plans;
        spare = 1;
    }
    if (!chosen || !chosen->argument_count) return PyObject_Call(self->fallback, args, kwargs);
    return dotcu_call(chosen, arguments[0], self->fallback, args, kwargs);
}

static int entry_clear(PyObject *object) {
    Py_CLEAR(((Entry *)object)->plans);
    Py_CLEAR(((Entry *)object)->fallback);
    return 0;
}

static int entry_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"plans", "fallback", "autocasts", NULL};
    Entry *self = (Entry *)object;
    PyObject *plans, *fallback;
    int autocasts;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!Op", names, &PyTuple_Type, &plans, &fallback, &autocasts))
        return -1;
    entry_clear(object);
    Py_INCREF(plans);
    Py_INCREF(fallback);
    self->plans = plans;
    self->fallback = fallback;
    self->autocasts = autocasts;
    return 0;
}

static PyObject *entry_getattro(PyObject *object, PyObject *name) {
    PyObject *found = PyObject_GenericGetAttr(object, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
    PyErr_Clear();
    return PyObject_GetAttr(((Entry *)object)->fallback, name);
}

/* torch hashes an operator by what it calls, so this must not change it. */
static Py_hash_t entry_hash(PyObject *object) { return PyObject_Hash(((Entry *)object)->fallback); }

static int entry_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((Entry *)object)->plans);
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
    {"fallback", T_OBJECT, offsetof(Entry, fallback), READONLY, "What torch made for the operator."},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot entry_slots[] = {
    {Py_tp_doc, "Calls an operator: by a plan where one fits, else as torch does."},
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

static PyObject *hold(PyObject *module, PyObject *by) {
    dotcu_held += (int)PyLong_AsLong(by);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(dotcu_held);
}

static PyObject *tls_words(PyObject *module, PyObject *unused) { return dotcu_tls_words(); }

static PyMethodDef methods[] = {
    {"configure", configure, METH_O, "Take the addresses and offsets that replay/layout.py found."},
    {"hold", hold, METH_O, "Count up or down who wants every call to take its ordinary path."},
    {"tls_words", tls_words, METH_NOARGS, "The dispatch keys that this thread includes and excludes, as torch has them."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dotcu._native", "dotcu's native part.", -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    PyObject *plans = PyType_FromSpec(&dotcu_plans_spec), *entry = PyType_FromSpec(&entry_spec);
    if (!module || !plans || !entry || PyModule_AddObject(module, "Plans", plans) ||
        PyModule_AddObject(module, "Entry", entry))
        return NULL;
    return module;
}
