/* CallCache: the recorded calls of one overload, and calling the overload. */
#include "native.h"

#include <string.h>

/* ---------------------------------------------------------------- binding */

/* True if an int has 64 bits, or as a float fits a double. */
static bool fits_torch(PyObject *value, bool as_float) {
    int overflow = 0;
    if (!as_float) return PyLong_AsLongLongAndOverflow(value, &overflow), !overflow;
    const bool fits = PyLong_AsDouble(value) != -1 || !PyErr_Occurred();
    PyErr_Clear();
    return fits;
}

static bool set(const CallCache *self, Argument *arguments, int index, PyObject *value) {
    const int kind = dotcu_kind(value);
    arguments[index].value = value;
    arguments[index].kind = kind;
    if (kind == KIND_INT && !fits_torch(value, self->floats[index])) return false;
    if (kind == KIND_STR && !PyUnicode_AsUTF8AndSize(value, NULL)) {
        PyErr_Clear();
        return false;
    }
    return (self->kinds[index] & kind) != 0;
}

static int index_of(const CallCache *self, PyObject *name) {
    for (int i = 0; i < self->argument_count; ++i) {
        PyObject *known = PyTuple_GetItem(self->names, i);
        if (known == name || (PyUnicode_Check(name) && PyUnicode_Compare(known, name) == 0)) return i;
    }
    return -1;
}

/* True if torch would refuse a value that is not of an argument's kinds, rather than perhaps convert it. */
static bool refused(const CallCache *self, int index, const Argument *given) {
    if (given->kind & (KIND_INT | KIND_FLOAT | KIND_BOOL)) return self->kinds[index] == KIND_TENSOR;
    return given->kind == KIND_TENSOR && self->kinds[index] && dotcu_numel(given->value) != 1;
}

/* Binds a call to the schema. BIND_NO is certain; BIND_MAYBE: torch may convert a value. */
int dotcu_bind(const CallCache *self, PyObject *args, PyObject *kwargs, Argument *arguments) {
    const Py_ssize_t given = PyTuple_Size(args);
    bool exact = true;
    if (!self->argument_count) return BIND_MAYBE; /* more than MAX_ARGUMENTS, or none: torch reads them */
    if (given > self->positional_count) return BIND_NO;
    for (int i = 0; i < self->argument_count; ++i) arguments[i].value = NULL;
    for (int i = 0; i < given; ++i) exact &= set(self, arguments, i, PyTuple_GetItem(args, i));
    PyObject *name, *value;
    for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &name, &value);) {
        const int index = index_of(self, name);
        if (index < 0 || arguments[index].value) return BIND_NO;
        exact &= set(self, arguments, index, value);
    }
    for (int i = (int)given; i < self->argument_count; ++i) {
        if (arguments[i].value) continue;
        if (!self->has_default[i]) return BIND_NO;
        exact &= set(self, arguments, i, PyTuple_GetItem(self->defaults, i));
    }
    if (exact) return BIND_YES;
    for (int i = 0; i < self->argument_count; ++i)
        if (!(self->kinds[i] & arguments[i].kind) && refused(self, i, &arguments[i])) return BIND_NO;
    return BIND_MAYBE;
}

/* Binds one value per argument, keyword-only arguments included. */
static bool bind_all(const CallCache *self, PyObject *values, Argument *arguments) {
    bool taken = PyTuple_Size(values) == self->argument_count;
    for (int i = 0; taken && i < self->argument_count; ++i)
        taken = set(self, arguments, i, PyTuple_GetItem(values, i));
    return taken;
}

/* ---------------------------------------------------------------- a call */

static PyObject *list_of(PyObject *values) {
    if (PyList_Check(values)) return PyList_GetSlice(values, 0, PyList_Size(values));
    const Py_ssize_t count = PyTuple_Size(values);
    PyObject *created = PyList_New(count);
    for (Py_ssize_t i = 0; created && i < count; ++i) {
        PyObject *item = PyTuple_GetItem(values, i);
        Py_INCREF(item);
        if (PyList_SetItem(created, i, item)) Py_CLEAR(created);
    }
    return created;
}

/* The value that torch would pass on: a new list of ints, a float for an int where the schema says float. */
static PyObject *converted(const CallCache *self, const Argument *arguments, int i) {
    PyObject *value = arguments[i].value;
    if (arguments[i].kind == KIND_INTS) return list_of(value);
    if (arguments[i].kind == KIND_INT && self->floats[i]) return PyNumber_Float(value);
    Py_INCREF(value);
    return value;
}

static PyObject *values_of(const CallCache *self, const Argument *arguments) {
    PyObject *created = PyTuple_New(self->argument_count);
    for (int i = 0; created && i < self->argument_count; ++i) {
        PyObject *value = converted(self, arguments, i);
        if (!value || PyTuple_SetItem(created, i, value)) Py_CLEAR(created);
    }
    return created;
}

/* True if something that the body reads besides its arguments is unchanged. A row is (dict, name, value), or
 * (address, pointer stored there, object to keep alive). See call_cache/purity.py. */
static bool dependency_holds(PyObject *row) {
    PyObject *where = PyTuple_GetItem(row, 0), *what = PyTuple_GetItem(row, 1);
    if (PyDict_Check(where)) return PyDict_GetItemWithError(where, what) == PyTuple_GetItem(row, 2);
    return *(void *const *)PyLong_AsVoidPtr(where) == PyLong_AsVoidPtr(what);
}

static bool dependencies_hold(const CallCache *self) {
    const Py_ssize_t count = PyTuple_Size(self->dependencies);
    bool hold = true;
    for (Py_ssize_t i = 0; i < count && hold; ++i) hold = dependency_holds(PyTuple_GetItem(self->dependencies, i));
    PyErr_Clear();
    return hold;
}

/* Drops the recorded calls if a dependency changed. Returns false with an error set. */
static bool refresh(CallCache *self) {
    if (dependencies_hold(self)) return true;
    PyObject *done = PyObject_CallFunctionObjArgs(self->on_stale, NULL);
    Py_XDECREF(done);
    return done != NULL;
}

static RecordedCall *fitting(CallCache *self, const Argument *arguments, Value *values) {
    if (!dotcu_replays) return NULL;
    for (int i = 0; i < self->call_count; ++i) {
        const int at = (self->latest + i) % self->call_count;
        if (!dotcu_fits(self->calls[at], arguments, self->floats, values)) continue;
        self->latest = at;
        return self->calls[at];
    }
    return NULL;
}

/* Returns how often calls of this kind were traced; at most MOST_TRACES times, as a body may have endlessly many branches. */
static uint8_t *attempts_of(CallCache *self, const Argument *arguments) {
    uint32_t hash = 2166136261u;
    for (int i = 0; i < self->argument_count; ++i) {
        const Argument *given = &arguments[i];
        const bool is_tensor = given->kind == KIND_TENSOR;
        hash = (hash ^ (uint32_t)given->kind) * 16777619u;
        if (is_tensor) hash = (hash ^ (uint32_t)(given->tensor.dtype * 64 + given->tensor.dim)) * 16777619u;
    }
    return &self->attempts[hash % sizeof self->attempts];
}

/* True if a body returned as many tensors of new memory as the schema says. If in doubt, Python checks. */
static bool matches_schema(const CallCache *self, const Argument *arguments, PyObject *result) {
    PyObject *results[MAX_RESULTS];
    if (self->returns > MAX_RESULTS || self->returns < 0) return false;
    if (self->returns == 0) return result == Py_None;
    if (self->returns == 1) return dotcu_new_memory(&result, 1, arguments, self->argument_count);
    if (!PyTuple_CheckExact(result) || PyTuple_Size(result) != self->returns) return false;
    for (int i = 0; i < self->returns; ++i) results[i] = PyTuple_GetItem(result, i);
    return dotcu_new_memory(results, self->returns, arguments, self->argument_count);
}

static void count_writes(const CallCache *self, const Argument *arguments) {
    for (int i = 0; i < self->argument_count; ++i)
        if (self->written[i] && arguments[i].kind == KIND_TENSOR) dotcu_count_write(arguments[i].tensor.handle);
}

/* Returns the scope for the device of the first tensor, which Python creates once per device. Borrowed. */
static PyObject *scope_of(CallCache *self, const Argument *arguments) {
    int index = -1;
    for (int i = self->argument_count - 1; i >= 0; --i)
        if (arguments[i].kind == KIND_TENSOR) index = arguments[i].tensor.device_index;
    if (self->scope && self->scope_index == index) return self->scope;
    PyObject *created = PyObject_CallFunction(self->on_scope, "i", index), *before = self->scope;
    if (!created) return NULL;
    self->scope = created;
    self->scope_index = index;
    Py_XDECREF(before);
    return created;
}

/* Calls a Python function, with keyword-only arguments by keyword. */
static PyObject *call_with(const CallCache *self, PyObject *function, const Argument *arguments) {
    PyObject *args = PyTuple_New(self->positional_count), *kwargs = NULL, *result = NULL;
    bool ok = args != NULL;
    for (int i = 0; ok && i < self->positional_count; ++i) {
        PyObject *value = converted(self, arguments, i);
        ok = value && !PyTuple_SetItem(args, i, value);
    }
    if (ok && self->positional_count < self->argument_count) ok = (kwargs = PyDict_New()) != NULL;
    for (int i = self->positional_count; ok && i < self->argument_count; ++i) {
        PyObject *value = converted(self, arguments, i);
        ok = value && !PyDict_SetItem(kwargs, PyTuple_GetItem(self->names, i), value);
        Py_XDECREF(value);
    }
    if (ok) result = PyObject_Call(function, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return result;
}

static uint32_t mixed(uint32_t hash, uint64_t value) { return (hash ^ (uint32_t)(value ^ value >> 32)) * 16777619u; }

/* Returns the entry for calls with these layouts and values, and their hash; a collision costs a recording only. */
static uint32_t *refused_of(CallCache *self, const Argument *arguments, uint32_t *hash) {
    *hash = 2166136261u;
    for (int i = 0; i < self->argument_count; ++i) {
        const Argument *given = &arguments[i];
        const Tensor *tensor = &given->tensor;
        Value value = {.i = (int64_t)(intptr_t)given->value};
        if (given->kind == KIND_TENSOR) value.i = tensor->address % 64 + 64 * tensor->dtype;
        if (given->kind == KIND_INT) value.i = PyLong_AsLongLong(given->value);
        if (given->kind == KIND_FLOAT) value.f = PyFloat_AsDouble(given->value);
        *hash = mixed(*hash, (uint64_t)value.i);
        for (int64_t j = 0; given->kind == KIND_TENSOR && j < tensor->dim; ++j)
            *hash = mixed(mixed(*hash, (uint64_t)tensor->sizes[j]), (uint64_t)tensor->strides[j]);
    }
    PyErr_Clear(); /* an int beyond 64 bits */
    *hash |= !*hash;
    return &self->refused[*hash % (sizeof self->refused / sizeof *self->refused)];
}

/* Traces the body, unless Python knows that this call cannot be recorded; then that is no attempt. */
static PyObject *trace_with(CallCache *self, const Argument *arguments, uint8_t *attempts) {
    uint32_t hash, *refused = refused_of(self, arguments, &hash);
    if (*refused == hash) return call_with(self, self->body, arguments);
    ++*attempts;
    PyObject *pair = call_with(self, self->on_trace, arguments), *result = NULL;
    int counts = 1;
    if (pair && PyArg_ParseTuple(pair, "Op", &result, &counts)) Py_INCREF(result);
    if (!counts) *refused = hash;
    if (!counts && *attempts) --*attempts;
    Py_XDECREF(pair);
    return result;
}

/* Calls the body, below autograd and in its scope. */
static PyObject *call_body(CallCache *self, const Argument *arguments) {
    uint8_t *attempts = attempts_of(self, arguments);
    const bool traces = self->traces && dotcu_replays && *attempts < MOST_TRACES;
    PyObject *scope = scope_of(self, arguments), *token = scope ? dotcu_enter_scope(scope) : NULL;
    if (!token) return NULL;
    const uint64_t before = dotcu_exclude_autograd();
    PyObject *result = traces ? trace_with(self, arguments, attempts) : call_with(self, self->body, arguments);
    dotcu_restore_autograd(before);
    dotcu_leave_scope(token);
    if (!result) return dotcu_explain(self->on_error);
    if (matches_schema(self, arguments, result)) return result;
    PyObject *given = values_of(self, arguments);
    PyObject *checked = given ? PyObject_CallFunctionObjArgs(self->on_check, result, given, NULL) : NULL; /* may raise */
    Py_XDECREF(given);
    Py_DECREF(result);
    return checked;
}

/* Computes a call below autograd: replays a recorded call, or runs the body. */
static PyObject *compute(CallCache *self, const Argument *arguments, RecordedCall *call, const Value *values) {
    Outcome outcome = {0};
    int how = RUN_DECLINED;
    if (call) {
        ++call->references; /* other threads may drop the overload's recorded calls meanwhile */
        how = dotcu_run(call, arguments, values, &outcome);
        if (how == RUN_FAILED) {
            PyObject *raised = PyObject_CallFunction(self->on_failure, "iii", (int)call->number, outcome.launch, outcome.status);
            Py_XDECREF(raised);
            if (outcome.launch) count_writes(self, arguments); /* the launches before it have written */
        }
        dotcu_release_call(call);
    }
    if (how == RUN_DECLINED) outcome.result = call_body(self, arguments);
    if (outcome.result) count_writes(self, arguments);
    return outcome.result;
}

/* The recorded call that was chosen for a call with a gradient. Autograd passes the same values to `run`, which
 * then need not read them again. */
static __thread struct {
    const CallCache *of;
    RecordedCall *call;
    PyObject *given; /* the values that were passed to autograd; borrowed for the duration of the call */
    Argument arguments[MAX_ARGUMENTS];
    Value values[MAX_STEPS];
} pending;

static void clear_pending(void) {
    RecordedCall *call = pending.call;
    pending.of = NULL;
    pending.call = NULL;
    if (call) dotcu_release_call(call);
}

static bool is_pending(const CallCache *self, PyObject *given) {
    if (pending.of != self || !pending.call || PyTuple_Size(given) != self->argument_count) return false;
    for (int i = 0; i < self->argument_count; ++i)
        if (PyTuple_GetItem(pending.given, i) != PyTuple_GetItem(given, i)) return false;
    return true;
}

static PyObject *record_call(CallCache *self, const Argument *arguments) {
    PyObject *given = values_of(self, arguments), *result = NULL;
    clear_pending();
    memcpy(pending.arguments, arguments, sizeof *arguments * (size_t)self->argument_count);
    pending.call = fitting(self, pending.arguments, pending.values);
    PyErr_Clear();
    if (pending.call) ++pending.call->references;
    pending.of = given ? self : NULL;
    pending.given = given;
    if (given) result = PyObject_CallObject(self->on_record, given);
    clear_pending();
    Py_XDECREF(given);
    return result;
}

PyObject *dotcu_call(CallCache *self, Argument *arguments, int state, PyObject *fallback, PyObject *args, PyObject *kwargs) {
    Value values[MAX_STEPS];
    bool records = false, has_tensor = false;
    if (!self->body) return PyObject_Call(fallback, args, kwargs); /* the interpreter is shutting down */
    for (int i = 0; i < self->argument_count; ++i) {
        if (arguments[i].kind != KIND_TENSOR) continue;
        const int how = dotcu_read(&arguments[i]);
        PyErr_Clear();
        if (how == READ_UNSUPPORTED) return PyObject_Call(fallback, args, kwargs);
        records |= how == READ_RECORDED;
        has_tensor = true;
    }
    if (!has_tensor) return PyObject_Call(fallback, args, kwargs);
    if (!refresh(self)) return NULL;
    if (records && state == STATE_RECORDS && dotcu_grad_enabled()) return record_call(self, arguments);
    RecordedCall *call = fitting(self, arguments, values);
    PyErr_Clear();
    return compute(self, arguments, call, values);
}

/* ---------------------------------------------------------------- CallCache */

enum { CALLBACKS = 8 };

static PyObject **callbacks(CallCache *self, int i) {
    PyObject **all[CALLBACKS] = {&self->body, &self->on_scope, &self->on_trace, &self->on_check,
                                 &self->on_record, &self->on_stale, &self->on_failure, &self->on_error};
    return all[i];
}

static int cache_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"names", "kinds", "floats", "defaults", "written", "positional", "returns", "body", "on_scope",
                            "on_trace", "on_check", "on_record", "on_stale", "on_failure", "on_error", NULL};
    CallCache *self = (CallCache *)object;
    PyObject *kinds, *floats, *defaults, *written, *argument_names, *calls[CALLBACKS];
    if (self->names) return PyErr_SetString(PyExc_TypeError, "this cache is initialized already"), -1;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!O!O!O!O!iiOOOOOOOO", names, &PyTuple_Type, &argument_names, &PyTuple_Type, &kinds, &PyTuple_Type,
            &floats, &PyTuple_Type, &defaults, &PyTuple_Type, &written, &self->positional_count, &self->returns,
            &calls[0], &calls[1], &calls[2], &calls[3], &calls[4], &calls[5], &calls[6], &calls[7]))
        return -1;
    Py_INCREF(argument_names);
    self->names = argument_names;
    for (int i = 0; i < CALLBACKS; ++i) {
        Py_INCREF(calls[i]);
        *callbacks(self, i) = calls[i];
    }
    const Py_ssize_t count = PyTuple_Size(self->names);
    self->dependencies = PyTuple_New(0);
    self->defaults = PyTuple_New(count);
    if (!self->dependencies || !self->defaults) return -1;
    self->argument_count = count <= MAX_ARGUMENTS ? (int)count : 0;
    for (int i = 0; i < self->argument_count; ++i) {
        PyObject *row = PyTuple_GetItem(defaults, i); /* () or (default,) */
        PyObject *value = PyTuple_Size(row) ? PyTuple_GetItem(row, 0) : Py_None;
        self->has_default[i] = PyTuple_Size(row) == 1;
        self->kinds[i] = (int)PyLong_AsLong(PyTuple_GetItem(kinds, i));
        self->floats[i] = PyTuple_GetItem(floats, i) == Py_True;
        self->written[i] = PyTuple_GetItem(written, i) == Py_True;
        Py_INCREF(value);
        PyTuple_SetItem(self->defaults, i, value);
    }
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *cache_add(PyObject *object, PyObject *packed) {
    CallCache *self = (CallCache *)object;
    if (self->call_count == MOST_CALLS) Py_RETURN_FALSE;
    RecordedCall *call = dotcu_read_call(packed);
    if (!call) return NULL;
    call->number = self->call_count;
    self->calls[self->call_count++] = call;
    Py_RETURN_TRUE;
}

static void drop_calls(CallCache *self) {
    const int count = self->call_count;
    self->call_count = self->latest = 0;
    for (int i = 0; i < count; ++i) dotcu_release_call(self->calls[i]);
}

static PyObject *cache_clear(PyObject *object, PyObject *args) {
    CallCache *self = (CallCache *)object;
    PyObject *before = self->dependencies, *dependencies;
    int traces;
    if (!PyArg_ParseTuple(args, "O!p", &PyTuple_Type, &dependencies, &traces)) return NULL;
    drop_calls(self);
    memset(self->attempts, 0, sizeof self->attempts);
    memset(self->refused, 0, sizeof self->refused);
    self->traces = traces;
    Py_INCREF(dependencies);
    self->dependencies = dependencies;
    Py_DECREF(before);
    Py_RETURN_NONE;
}

/* Used once, and copied: code that runs during the call may get here again. */
static PyObject *compute_pending(CallCache *self, Argument *arguments, Value *values) {
    RecordedCall *call = pending.call;
    pending.call = NULL;
    memcpy(arguments, pending.arguments, sizeof *arguments * (size_t)self->argument_count);
    memcpy(values, pending.values, sizeof *values * (size_t)call->step_count);
    PyObject *result = compute(self, arguments, call, values);
    dotcu_release_call(call);
    return result;
}

static PyObject *cache_run(PyObject *object, PyObject *given) {
    CallCache *self = (CallCache *)object;
    Argument arguments[MAX_ARGUMENTS];
    Value values[MAX_STEPS];
    if (!self->body || !PyTuple_Check(given) || !bind_all(self, given, arguments))
        return PyErr_Format(PyExc_TypeError, "run takes a value for each argument, as the call had them");
    if (is_pending(self, given)) return compute_pending(self, arguments, values);
    for (int i = 0; i < self->argument_count; ++i)
        if (arguments[i].kind == KIND_TENSOR && !dotcu_read_memory(arguments[i].value, &arguments[i].tensor))
            return PyErr_Format(PyExc_TypeError, "argument %d has no memory", i + 1);
    if (!refresh(self)) return NULL;
    RecordedCall *call = fitting(self, arguments, values);
    PyErr_Clear();
    return compute(self, arguments, call, values);
}

/* A call that the dispatcher has brought below autograd, say a rank's part of one on DTensors. NotImplemented where
 * something must see what a replayed call skips. */
static PyObject *cache_serve(PyObject *object, PyObject *args, PyObject *kwargs) {
    CallCache *self = (CallCache *)object;
    Argument arguments[MAX_ARGUMENTS];
    Value values[MAX_STEPS];
    bool has_tensor = false;
    if (!self->body || dotcu_state(false) != STATE_BELOW || !dotcu_unobserved()) Py_RETURN_NOTIMPLEMENTED;
    if (dotcu_bind(self, args, kwargs, arguments) != BIND_YES) Py_RETURN_NOTIMPLEMENTED;
    for (int i = 0; i < self->argument_count; ++i) {
        if (arguments[i].kind != KIND_TENSOR) continue;
        const int how = dotcu_read(&arguments[i]);
        PyErr_Clear();
        if (how == READ_UNSUPPORTED) Py_RETURN_NOTIMPLEMENTED;
        has_tensor = true;
    }
    if (!has_tensor) Py_RETURN_NOTIMPLEMENTED;
    if (!refresh(self)) return NULL;
    RecordedCall *call = fitting(self, arguments, values);
    PyErr_Clear();
    return compute(self, arguments, call, values);
}

static int cache_traverse(PyObject *object, visitproc visit, void *arg) {
    CallCache *self = (CallCache *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->defaults);
    Py_VISIT(self->dependencies);
    for (int i = 0; i < CALLBACKS; ++i) Py_VISIT(*callbacks(self, i));
    for (int i = 0; i < self->call_count; ++i) {
        const int stop = dotcu_visit_call(self->calls[i], visit, arg);
        if (stop) return stop;
    }
    return 0;
}

static int cache_tp_clear(PyObject *object) {
    CallCache *self = (CallCache *)object;
    drop_calls(self);
    for (int i = 0; i < CALLBACKS; ++i) Py_CLEAR(*callbacks(self, i));
    Py_CLEAR(self->scope);
    return 0;
}

static void cache_dealloc(PyObject *object) {
    CallCache *self = (CallCache *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    cache_tp_clear(object);
    Py_CLEAR(self->names);
    Py_CLEAR(self->defaults);
    Py_CLEAR(self->dependencies);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static Py_ssize_t cache_length(PyObject *object) { return ((CallCache *)object)->call_count; }

static PyMethodDef cache_methods[] = {
    {"add", cache_add, METH_O, "Add a packed recorded call; False if there are too many."},
    {"clear", cache_clear, METH_VARARGS,
     "Drop every recorded call; set the dependencies of later ones, and whether to trace the body at all."},
    {"run", cache_run, METH_O, "Compute below autograd with a value for each argument."},
    {"serve", (PyCFunction)(void (*)(void))cache_serve, METH_VARARGS | METH_KEYWORDS,
     "Compute a call that is below autograd; NotImplemented if its body must run in sight of something."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot cache_slots[] = {
    {Py_tp_doc, "The recorded calls of one overload."}, {Py_tp_new, PyType_GenericNew}, {Py_tp_init, cache_init},
    {Py_tp_dealloc, cache_dealloc}, {Py_tp_traverse, cache_traverse}, {Py_tp_clear, cache_tp_clear},
    {Py_tp_methods, cache_methods}, {Py_sq_length, cache_length}, {0, NULL},
};
PyType_Spec dotcu_call_cache_spec = {"dotcu._native.CallCache", sizeof(CallCache), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, cache_slots};
