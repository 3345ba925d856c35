/* Operator: the calls of one overload that need nothing but its body: plain tensors of one GPU, and nobody who watches.
 *
 *     autograd(...)  the kernel for autograd's dispatch key: runs the body, or records the call for a gradient
 *     compute(...)   the kernel for CUDA's dispatch key
 *     call(...)      a call of the Python object, of this overload or of those after it: NotImplemented where torch
 *                    has to choose
 *
 * Whatever else comes, one of the functions in Python takes: they do the same steps. */
#include "native.h"

#include <string.h>

/* The kinds of value that an argument takes, a set of bits. The same numbers are in operator/register.py. */
enum {
    KIND_TENSOR = 1, KIND_NONE = 2, KIND_INT = 4, KIND_FLOAT = 8, KIND_BOOL = 16, KIND_STR = 32, KIND_DTYPE = 64,
    KIND_DEVICE = 128
};
enum { MAX_TENSORS = 128 };

typedef struct {
    PyObject_HEAD
    PyObject *body, *names, *scope, *next; /* next: the overload that torch tries after this one, or NULL */
    PyObject *on_autograd, *on_compute, *on_record, *on_scope, *on_check, *on_error, *on_dispatch;
    int scope_index, argument_count, positional_count, returns; /* returns: -1 where Python checks them */
    int kinds[MAX_ARGUMENTS]; /* 0 for an argument whose values torch may convert */
    bool is_optional[MAX_ARGUMENTS], may_skip; /* may_skip: a call of the Python object may pass over the dispatcher */
} Operator;

enum { CALLBACKS = 7 };
static PyObject **callbacks(Operator *self) { return &self->on_autograd; }

/* The tensors of a call, and the ends of their memory. */
typedef struct {
    Tensor tensors[MAX_TENSORS];
    int64_t ends[MAX_TENSORS];
    int count;
    bool resolved; /* the dispatcher has conjugated and negated what was to be */
} Given;

/* ---------------------------------------------------------------- arguments */

static bool take_tensor(Given *given, PyObject *value) {
    if (given->count == MAX_TENSORS) return false;
    Tensor *tensor = &given->tensors[given->count];
    const bool plain = given->resolved ? dotcu_look(value, tensor) : dotcu_look_at_plain(value, tensor);
    return plain && dotcu_is_on_gpu(tensor) && dotcu_extent(tensor, &given->ends[given->count++]);
}

/* Returns the kind of a value, which is added if it is a tensor; 0 if Python has to look at it. */
static int take(Given *given, PyObject *value) {
    if (dotcu_is_tensor(value)) return take_tensor(given, value) ? KIND_TENSOR : 0;
    if (value == Py_None) return KIND_NONE;
    if (PyLong_CheckExact(value)) return KIND_INT;
    if (PyFloat_CheckExact(value)) return KIND_FLOAT;
    if (PyBool_Check(value)) return KIND_BOOL;
    if (PyUnicode_CheckExact(value)) return KIND_STR;
    if (Py_TYPE(value) == dotcu_dtype_type) return KIND_DTYPE;
    return Py_TYPE(value) == dotcu_device_class ? KIND_DEVICE : 0;
}

/* Takes what the dispatcher passes on: lists of tensors or numbers too. */
static bool take_any(Given *given, PyObject *value) {
    if (take(given, value)) return true;
    if (!PyList_CheckExact(value)) return false;
    for (Py_ssize_t i = 0; i < PyList_Size(value); ++i)
        if (!take(given, PyList_GetItem(value, i))) return false;
    return true;
}

static bool take_all(Given *given, PyObject *args, PyObject *kwargs, bool resolved) {
    PyObject *name, *value;
    given->count = 0;
    given->resolved = resolved;
    for (Py_ssize_t i = 0; i < PyTuple_Size(args); ++i)
        if (!take_any(given, PyTuple_GetItem(args, i))) return false;
    for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &name, &value);)
        if (!take_any(given, value)) return false;
    return given->count > 0;
}

static int index_of(const Operator *self, PyObject *name) {
    for (int i = 0; i < self->argument_count; ++i) {
        PyObject *known = PyTuple_GetItem(self->names, i);
        if (known == name || (PyUnicode_Check(name) && PyUnicode_Compare(known, name) == 0)) return i;
    }
    return -1;
}

static bool fits_int64(PyObject *value) {
    int overflow = 0;
    PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow;
}

enum { BINDS_NOT, BINDS_PERHAPS, BINDS };

static bool is_one_number(PyObject *value) {
    Tensor tensor;
    const bool seen = dotcu_look(value, &tensor);
    PyErr_Clear();
    for (int32_t i = 0; seen && i < tensor.dimensions; ++i)
        if (tensor.sizes[i] != 1) return false;
    return true;
}

/* BINDS if the dispatcher would hand over this very value; BINDS_PERHAPS if it might convert it; else it refuses it. */
static int binds(const Operator *self, Given *given, bool *seen, int index, PyObject *value) {
    if (index < 0 || seen[index]) return BINDS_NOT;
    seen[index] = true;
    const int kind = take(given, value), taken = self->kinds[index];
    if ((taken & kind) && (kind != KIND_INT || fits_int64(value))) return BINDS;
    if (taken == KIND_TENSOR && (kind & (KIND_INT | KIND_FLOAT | KIND_BOOL))) return BINDS_NOT;
    return taken && dotcu_is_tensor(value) && !(taken & KIND_TENSOR) && !is_one_number(value) ? BINDS_NOT : BINDS_PERHAPS;
}

/* Tells whether torch would take a call of the Python object for this overload. */
static int bind_all(const Operator *self, Given *given, PyObject *args, PyObject *kwargs) {
    bool seen[MAX_ARGUMENTS] = {false};
    int found = BINDS, one;
    const Py_ssize_t count = PyTuple_Size(args);
    PyObject *name, *value;
    given->count = 0;
    given->resolved = false;
    if (count > self->positional_count) return BINDS_NOT;
    for (int i = 0; i < count; ++i) {
        if ((one = binds(self, given, seen, i, PyTuple_GetItem(args, i))) == BINDS_NOT) return one;
        if (one < found) found = one;
    }
    for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &name, &value);) {
        if ((one = binds(self, given, seen, index_of(self, name), value)) == BINDS_NOT) return one;
        if (one < found) found = one;
    }
    for (int i = 0; i < self->argument_count; ++i)
        if (!seen[i] && !self->is_optional[i]) return BINDS_NOT;
    return found;
}

/* True if a call has a gradient to record. An error counts: Python raises it again. */
static bool records(const Given *given) {
    if (!dotcu_grad_enabled()) return false;
    for (int i = 0; i < given->count; ++i)
        if (dotcu_requires_grad(given->tensors[i].object)) return true;
    return false;
}

/* ---------------------------------------------------------------- results */

/* True if a body returned as many tensors of new memory as the schema says. If in doubt, Python checks. */
static bool matches_schema(const Operator *self, Given *given, PyObject *result) {
    if (self->returns == 0) return result == Py_None;
    if (self->returns < 0 || (self->returns > 1 && (!PyTuple_CheckExact(result) || PyTuple_Size(result) != self->returns)))
        return false;
    for (int i = 0; i < self->returns; ++i) {
        const int at = given->count;
        if (at == MAX_TENSORS || !dotcu_look(self->returns == 1 ? result : PyTuple_GetItem(result, i), &given->tensors[at]))
            return false;
        if (!dotcu_extent(&given->tensors[at], &given->ends[at])) return false;
        for (int j = 0; j < at; ++j)
            if (given->tensors[j].address < given->ends[at] && given->tensors[at].address < given->ends[j]) return false;
        ++given->count;
    }
    return true;
}

static PyObject *checked(Operator *self, PyObject *result, PyObject *args, PyObject *kwargs) {
    PyObject *named = kwargs ? kwargs : PyDict_New();
    PyObject *found = named ? PyObject_CallFunctionObjArgs(self->on_check, result, args, named, NULL) : NULL;
    if (!kwargs) Py_XDECREF(named);
    return found; /* NULL: it raised what is wrong */
}

/* ---------------------------------------------------------------- calls */

/* Returns the scope for a GPU, which Python makes once for each. Owned. */
static PyObject *scope_of(Operator *self, int index) {
    if (!self->scope || self->scope_index != index) {
        PyObject *made = PyObject_CallFunction(self->on_scope, "i", index), *before = self->scope;
        if (!made) return NULL;
        self->scope = made;
        self->scope_index = index;
        Py_XDECREF(before);
    }
    Py_INCREF(self->scope);
    return self->scope;
}

static PyObject *run(Operator *self, Given *given, PyObject *args, PyObject *kwargs) {
    PyObject *scope = scope_of(self, given->tensors[0].device_index);
    PyObject *token = scope ? dotcu_enter_scope(scope) : NULL;
    if (!token) {
        Py_XDECREF(scope);
        return NULL;
    }
    PyObject *around = dotcu_enter_body(scope), *result = PyObject_Call(self->body, args, kwargs);
    dotcu_enter_body(around);
    Py_DECREF(scope);
    dotcu_leave_scope(token);
    if (!result) return dotcu_explain(self->on_error);
    const bool matches = matches_schema(self, given, result);
    if (!dotcu_clear_error()) Py_CLEAR(result);
    if (matches || !result) return result;
    PyObject *found = checked(self, result, args, kwargs);
    Py_DECREF(result);
    return found;
}

static PyObject *operator_autograd(PyObject *object, PyObject *args, PyObject *kwargs) {
    Operator *self = (Operator *)object;
    Given given;
    const bool plain = self->returns && dotcu_unwatched(BY_AUTOGRAD) && take_all(&given, args, kwargs, false);
    const bool recorded = plain && records(&given);
    if (!dotcu_clear_error()) return NULL;
    if (!plain) return PyObject_Call(self->on_autograd, args, kwargs);
    return recorded ? PyObject_Call(self->on_record, args, kwargs) : run(self, &given, args, kwargs);
}

static PyObject *operator_compute(PyObject *object, PyObject *args, PyObject *kwargs) {
    Operator *self = (Operator *)object;
    Given given;
    const bool plain = dotcu_unwatched(BY_COMPUTE) && take_all(&given, args, kwargs, true);
    if (!dotcu_clear_error()) return NULL;
    return plain ? run(self, &given, args, kwargs) : PyObject_Call(self->on_compute, args, kwargs);
}

static PyObject *operator_call(PyObject *object, PyObject *args, PyObject *kwargs) {
    Operator *self = (Operator *)object;
    Given given;
    int found = bind_all(self, &given, args, kwargs);
    while (found == BINDS_NOT && self->next) {
        self = (Operator *)self->next;
        found = bind_all(self, &given, args, kwargs);
    }
    if (!dotcu_clear_error()) return NULL;
    if (found != BINDS) Py_RETURN_NOTIMPLEMENTED;
    const bool skips = self->may_skip && given.count && dotcu_unwatched(BY_CALL);
    const bool recorded = skips && records(&given);
    if (!dotcu_clear_error()) return NULL;
    if (!skips) return PyObject_Call(self->on_dispatch, args, kwargs);
    return recorded ? PyObject_Call(self->on_record, args, kwargs) : run(self, &given, args, kwargs);
}

/* ---------------------------------------------------------------- the type */

static PyObject *replace(PyObject **at, PyObject *by) {
    PyObject *before = *at;
    Py_XINCREF(by);
    *at = by;
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *operator_record_by(PyObject *object, PyObject *function) {
    return replace(&((Operator *)object)->on_record, function);
}

/* The overload after this one, or None; what calls it in the dispatcher; whether calls may pass over that. */
static PyObject *operator_chain(PyObject *object, PyObject *args) {
    Operator *self = (Operator *)object;
    PyObject *next, *dispatch;
    int may_skip;
    if (!PyArg_ParseTuple(args, "OOp", &next, &dispatch, &may_skip)) return NULL;
    if (next != Py_None && Py_TYPE(next) != Py_TYPE(object)) return PyErr_Format(PyExc_TypeError, "chain takes an Operator or None");
    self->may_skip = may_skip && self->returns;
    Py_DECREF(replace(&self->on_dispatch, dispatch));
    return replace(&self->next, next == Py_None ? NULL : next);
}

static int operator_clear(PyObject *object) {
    Operator *self = (Operator *)object;
    for (int i = 0; i < CALLBACKS; ++i) Py_CLEAR(callbacks(self)[i]);
    Py_CLEAR(self->body);
    Py_CLEAR(self->scope);
    Py_CLEAR(self->next);
    return 0;
}

static int operator_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"body", "names", "kinds", "positional", "returns", "on_autograd", "on_compute", "on_record",
                            "on_scope", "on_check", "on_error", NULL};
    Operator *self = (Operator *)object;
    PyObject *body, *arguments, *kinds, *given[CALLBACKS - 1];
    int positional, returns;
    if (self->body || !PyArg_ParseTupleAndKeywords(args, kwargs, "OO!O!iiOOOOOO", names, &body, &PyTuple_Type, &arguments,
                                                   &PyTuple_Type, &kinds, &positional, &returns, &given[0], &given[1],
                                                   &given[2], &given[3], &given[4], &given[5]))
        return -1;
    const Py_ssize_t count = PyTuple_Size(arguments);
    if (count > MAX_ARGUMENTS || PyTuple_Size(kinds) != count || positional > count) {
        PyErr_Format(PyExc_ValueError, "native code takes up to %d arguments, got %zd", MAX_ARGUMENTS, count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; ++i) {
        int optional;
        if (!PyArg_ParseTuple(PyTuple_GetItem(kinds, i), "ip", &self->kinds[i], &optional)) return -1;
        self->is_optional[i] = optional;
    }
    Py_INCREF(body);
    Py_INCREF(arguments);
    self->body = body;
    self->names = arguments;
    for (int i = 0; i < CALLBACKS - 1; ++i) {
        Py_INCREF(given[i]);
        callbacks(self)[i] = given[i];
    }
    self->argument_count = (int)count;
    self->positional_count = positional;
    self->returns = returns;
    return 0;
}

static int operator_traverse(PyObject *object, visitproc visit, void *arg) {
    Operator *self = (Operator *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->body);
    Py_VISIT(self->scope);
    Py_VISIT(self->next);
    for (int i = 0; i < CALLBACKS; ++i) Py_VISIT(callbacks(self)[i]);
    return 0;
}

static void operator_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    operator_clear(object);
    Py_CLEAR(((Operator *)object)->names);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

#define METHOD(function) (PyCFunction)(void (*)(void))function, METH_VARARGS | METH_KEYWORDS
static PyMethodDef operator_methods[] = {
    {"autograd", METHOD(operator_autograd), "The kernel for autograd's dispatch key."},
    {"compute", METHOD(operator_compute), "The kernel for CUDA's dispatch key."},
    {"record_by", operator_record_by, METH_O, "Set what records a call for a gradient."},
    {"chain", operator_chain, METH_VARARGS, "Set the overload after this one, what dispatches this one, and whether a call may skip that."},
    {"call", METHOD(operator_call), "Call the overload that the arguments are for; NotImplemented where torch has to choose."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot operator_slots[] = {
    {Py_tp_doc, "The calls of one overload that need nothing but its body."}, {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, operator_init}, {Py_tp_dealloc, operator_dealloc}, {Py_tp_traverse, operator_traverse},
    {Py_tp_clear, operator_clear}, {Py_tp_methods, operator_methods}, {0, NULL},
};
PyType_Spec dotcu_operator_spec = {"dotcu._native.Operator", sizeof(Operator), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                   operator_slots};
