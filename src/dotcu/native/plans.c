/* Plans: what Python sees of the plans of one overload, and a call of it. */
#include "native.h"

#include <string.h>

/* ---------------------------------------------------------------- binding */

/* Whether an int is one of torch's, of 64 bits or as a double. */
static bool fits_torch(PyObject *value, bool as_float) {
    int overflow = 0;
    if (!as_float) return PyLong_AsLongLongAndOverflow(value, &overflow), !overflow;
    const bool fits = PyLong_AsDouble(value) != -1 || !PyErr_Occurred();
    PyErr_Clear();
    return fits;
}

static bool set(const Plans *self, Argument *arguments, int index, PyObject *value) {
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

static int index_of(const Plans *self, PyObject *name) {
    for (int i = 0; i < self->argument_count; ++i) {
        PyObject *known = PyTuple_GetItem(self->names, i);
        if (known == name || (PyUnicode_Check(name) && PyUnicode_Compare(known, name) == 0)) return i;
    }
    return -1;
}

/* Whether torch refuses a value that is not of an argument's kinds, or may convert it. */
static bool refused(const Plans *self, int index, const Argument *given) {
    if (given->kind & (KIND_INT | KIND_FLOAT | KIND_BOOL)) return self->kinds[index] == KIND_TENSOR;
    return given->kind == KIND_TENSOR && self->kinds[index] && dotcu_numel(given->value) != 1;
}

/* Whether the schema takes these values as they are. No is certain; what torch may convert is left to it. */
int dotcu_bind(const Plans *self, PyObject *args, PyObject *kwargs, Argument *arguments) {
    const Py_ssize_t given = PyTuple_Size(args);
    bool as_they_are = true;
    if (given > self->positional_count) return BIND_NO;
    for (int i = 0; i < self->argument_count; ++i) arguments[i].value = NULL;
    for (int i = 0; i < given; ++i) as_they_are &= set(self, arguments, i, PyTuple_GetItem(args, i));
    PyObject *name, *value;
    for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &name, &value);) {
        const int index = index_of(self, name);
        if (index < 0 || arguments[index].value) return BIND_NO;
        as_they_are &= set(self, arguments, index, value);
    }
    for (int i = (int)given; i < self->argument_count; ++i) {
        if (arguments[i].value) continue;
        if (!self->has_default[i]) return BIND_NO;
        as_they_are &= set(self, arguments, i, PyTuple_GetItem(self->defaults, i));
    }
    if (as_they_are) return BIND_YES;
    for (int i = 0; i < self->argument_count; ++i)
        if (!(self->kinds[i] & arguments[i].kind) && refused(self, i, &arguments[i])) return BIND_NO;
    return BIND_MAYBE;
}

/* A value for each argument, whether it could be given by position or not. */
static bool take(const Plans *self, PyObject *values, Argument *arguments) {
    bool taken = PyTuple_Size(values) == self->argument_count;
    for (int i = 0; taken && i < self->argument_count; ++i)
        taken = set(self, arguments, i, PyTuple_GetItem(values, i));
    return taken;
}

/* ---------------------------------------------------------------- a call */

static PyObject *list_of(PyObject *values) {
    if (PyList_Check(values)) return PyList_GetSlice(values, 0, PyList_Size(values));
    const Py_ssize_t count = PyTuple_Size(values);
    PyObject *made = PyList_New(count);
    for (Py_ssize_t i = 0; made && i < count; ++i) {
        PyObject *item = PyTuple_GetItem(values, i);
        Py_INCREF(item);
        if (PyList_SetItem(made, i, item)) Py_CLEAR(made);
    }
    return made;
}

/* A value as torch passes it on: a list of its own for ints, and a float where the schema makes one of an int. */
static PyObject *passed_on(const Plans *self, const Argument *arguments, int i) {
    PyObject *value = arguments[i].value;
    if (arguments[i].kind == KIND_INTS) return list_of(value);
    if (arguments[i].kind == KIND_INT && self->floats[i]) return PyNumber_Float(value);
    Py_INCREF(value);
    return value;
}

static PyObject *values_of(const Plans *self, const Argument *arguments) {
    PyObject *made = PyTuple_New(self->argument_count);
    for (int i = 0; made && i < self->argument_count; ++i) {
        PyObject *value = passed_on(self, arguments, i);
        if (!value || PyTuple_SetItem(made, i, value)) Py_CLEAR(made);
    }
    return made;
}

/* Whether what the body reads beside its arguments is still the same: rows of (dict, name, value), and of
 * (address, word there, what must live as long). See call_cache/purity.py. */
static bool row_holds(PyObject *row) {
    PyObject *where = PyTuple_GetItem(row, 0), *what = PyTuple_GetItem(row, 1);
    if (PyDict_Check(where)) return PyDict_GetItemWithError(where, what) == PyTuple_GetItem(row, 2);
    return *(void *const *)PyLong_AsVoidPtr(where) == PyLong_AsVoidPtr(what);
}

static bool reads_hold(const Plans *self) {
    const Py_ssize_t count = PyTuple_Size(self->reads);
    bool hold = true;
    for (Py_ssize_t i = 0; i < count && hold; ++i) hold = row_holds(PyTuple_GetItem(self->reads, i));
    PyErr_Clear();
    return hold;
}

/* Drops the plans where that is not so. False where an error is set. */
static bool refresh(Plans *self) {
    if (reads_hold(self)) return true;
    PyObject *done = PyObject_CallFunctionObjArgs(self->on_stale, NULL);
    Py_XDECREF(done);
    return done != NULL;
}

static Plan *fitting(Plans *self, const Argument *arguments, Value *values) {
    if (!dotcu_replays) return NULL;
    for (int i = 0; i < self->plan_count; ++i) {
        const int at = (self->latest + i) % self->plan_count;
        if (!dotcu_fits(self->plans[at], arguments, self->floats, values)) continue;
        self->latest = at;
        return self->plans[at];
    }
    return NULL;
}

/* Whether a call of this kind was followed less than MOST_ATTEMPTS times: the branches of a body may be endless. */
static bool may_follow(Plans *self, const Argument *arguments) {
    uint32_t hash = 2166136261u;
    for (int i = 0; i < self->argument_count; ++i) {
        const Argument *given = &arguments[i];
        const bool is_tensor = given->kind == KIND_TENSOR;
        hash = (hash ^ (uint32_t)given->kind) * 16777619u;
        if (is_tensor) hash = (hash ^ (uint32_t)(given->tensor.dtype * 64 + given->tensor.dim)) * 16777619u;
    }
    uint8_t *attempts = &self->attempts[hash % sizeof self->attempts];
    return *attempts < MOST_ATTEMPTS && ++*attempts;
}

/* Whether a body returned as many tensors of new memory as the schema says. Where it is in doubt, Python looks. */
static bool is_as_promised(const Plans *self, const Argument *arguments, PyObject *result) {
    PyObject *results[MAX_RESULTS];
    if (self->returns > MAX_RESULTS || self->returns < 0) return false;
    if (self->returns == 0) return result == Py_None;
    if (self->returns == 1) return dotcu_new_memory(&result, 1, arguments, self->argument_count);
    if (!PyTuple_CheckExact(result) || PyTuple_Size(result) != self->returns) return false;
    for (int i = 0; i < self->returns; ++i) results[i] = PyTuple_GetItem(result, i);
    return dotcu_new_memory(results, self->returns, arguments, self->argument_count);
}

static void count_writes(const Plans *self, const Argument *arguments) {
    for (int i = 0; i < self->argument_count; ++i)
        if (self->written[i] && arguments[i].kind == KIND_TENSOR) dotcu_count_write(arguments[i].tensor.handle);
}

/* The scope of the body on the device of the first tensor, as Python makes it once for each. Borrowed. */
static PyObject *scope_of(Plans *self, const Argument *arguments) {
    int index = -1;
    for (int i = self->argument_count - 1; i >= 0; --i)
        if (arguments[i].kind == KIND_TENSOR) index = arguments[i].tensor.device_index;
    if (self->scope && self->scope_index == index) return self->scope;
    PyObject *made = PyObject_CallFunction(self->on_scope, "i", index), *before = self->scope;
    if (!made) return NULL;
    self->scope = made;
    self->scope_index = index;
    Py_XDECREF(before);
    return made;
}

/* The values as a Python function takes them: those by keyword only apart. */
static PyObject *call_with(const Plans *self, PyObject *function, const Argument *arguments) {
    PyObject *args = PyTuple_New(self->positional_count), *kwargs = NULL, *result = NULL;
    bool made = args != NULL;
    for (int i = 0; made && i < self->positional_count; ++i) {
        PyObject *value = passed_on(self, arguments, i);
        made = value && !PyTuple_SetItem(args, i, value);
    }
    if (made && self->positional_count < self->argument_count) made = (kwargs = PyDict_New()) != NULL;
    for (int i = self->positional_count; made && i < self->argument_count; ++i) {
        PyObject *value = passed_on(self, arguments, i);
        made = value && !PyDict_SetItem(kwargs, PyTuple_GetItem(self->names, i), value);
        Py_XDECREF(value);
    }
    if (made) result = PyObject_Call(function, args, kwargs);
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return result;
}

/* A call of the body, below autograd and in its scope. */
static PyObject *call_body(Plans *self, const Argument *arguments) {
    const bool follows = self->follows && dotcu_replays && may_follow(self, arguments);
    PyObject *scope = scope_of(self, arguments), *token = scope ? dotcu_enter_scope(scope) : NULL;
    if (!token) return NULL;
    const uint64_t before = dotcu_exclude_autograd();
    PyObject *result = call_with(self, follows ? self->on_follow : self->body, arguments);
    dotcu_restore_autograd(before);
    dotcu_leave_scope(token);
    if (!result) return dotcu_explain(self->on_error);
    if (is_as_promised(self, arguments, result)) return result;
    PyObject *given = values_of(self, arguments);
    PyObject *checked = given ? PyObject_CallFunctionObjArgs(self->on_check, result, given, NULL) : NULL; /* it may raise */
    Py_XDECREF(given);
    Py_DECREF(result);
    return checked;
}

/* A call below autograd, by the plan that fits it or by the body. */
static PyObject *compute(Plans *self, const Argument *arguments, Plan *plan, const Value *values) {
    Outcome outcome = {0};
    int how = RUN_ASIDE;
    if (plan) {
        ++plan->users; /* other threads run meanwhile, and may drop the overload's plans */
        how = dotcu_run(plan, arguments, values, &outcome);
        if (how == RUN_FAILED) {
            PyObject *raised = PyObject_CallFunction(self->on_failure, "iii", (int)plan->number, outcome.launch, outcome.status);
            Py_XDECREF(raised);
            if (outcome.launch) count_writes(self, arguments); /* of the launches before it */
        }
        dotcu_release_plan(plan);
    }
    if (how == RUN_ASIDE) outcome.result = call_body(self, arguments);
    if (outcome.result) count_writes(self, arguments);
    return outcome.result;
}

/* A call that was found to fit, and is recorded before it runs: autograd hands the same values to `run`,
 * which then need not look at them again. */
static __thread struct {
    const Plans *of;
    Plan *plan;
    PyObject *given; /* the values that were handed to autograd; borrowed, while the call lasts */
    Argument arguments[MAX_ARGUMENTS];
    Value values[MAX_STEPS];
} found;

static void forget(void) {
    Plan *plan = found.plan;
    found.of = NULL;
    found.plan = NULL;
    if (plan) dotcu_release_plan(plan);
}

static bool is_found(const Plans *self, PyObject *given) {
    if (found.of != self || !found.plan || PyTuple_Size(given) != self->argument_count) return false;
    for (int i = 0; i < self->argument_count; ++i)
        if (PyTuple_GetItem(found.given, i) != PyTuple_GetItem(given, i)) return false;
    return true;
}

static PyObject *recorded(Plans *self, const Argument *arguments) {
    PyObject *given = values_of(self, arguments), *result = NULL;
    forget();
    memcpy(found.arguments, arguments, sizeof *arguments * (size_t)self->argument_count);
    found.plan = fitting(self, found.arguments, found.values);
    PyErr_Clear();
    if (found.plan) ++found.plan->users;
    found.of = given ? self : NULL;
    found.given = given;
    if (given) result = PyObject_CallObject(self->on_record, given);
    forget();
    Py_XDECREF(given);
    return result;
}

PyObject *dotcu_call(Plans *self, Argument *arguments, int state, PyObject *fallback, PyObject *args, PyObject *kwargs) {
    Value values[MAX_STEPS];
    bool records = false, has_tensor = false;
    if (!self->body) return PyObject_Call(fallback, args, kwargs); /* it is being taken apart */
    for (int i = 0; i < self->argument_count; ++i) {
        if (arguments[i].kind != KIND_TENSOR) continue;
        const int how = dotcu_read(&arguments[i]);
        PyErr_Clear();
        if (how == READ_STRANGE) return PyObject_Call(fallback, args, kwargs);
        records |= how == READ_RECORDED;
        has_tensor = true;
    }
    if (!has_tensor) return PyObject_Call(fallback, args, kwargs);
    if (!refresh(self)) return NULL;
    if (records && state == STATE_RECORDS && dotcu_grad_enabled()) return recorded(self, arguments);
    Plan *plan = fitting(self, arguments, values);
    PyErr_Clear();
    return compute(self, arguments, plan, values);
}

/* ---------------------------------------------------------------- Plans */

enum { CALLBACKS = 8 };

static PyObject **callbacks(Plans *self, int i) {
    PyObject **all[CALLBACKS] = {&self->body, &self->on_scope, &self->on_follow, &self->on_check,
                                 &self->on_record, &self->on_stale, &self->on_failure, &self->on_error};
    return all[i];
}

static int plans_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"names", "kinds", "floats", "defaults", "written", "positional", "returns", "body", "on_scope",
                            "on_follow", "on_check", "on_record", "on_stale", "on_failure", "on_error", NULL};
    Plans *self = (Plans *)object;
    PyObject *kinds, *floats, *defaults, *written, *given, *calls[CALLBACKS];
    if (self->names) return PyErr_SetString(PyExc_TypeError, "these plans were made already"), -1;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "O!O!O!O!O!iiOOOOOOOO", names, &PyTuple_Type, &given, &PyTuple_Type, &kinds, &PyTuple_Type,
            &floats, &PyTuple_Type, &defaults, &PyTuple_Type, &written, &self->positional_count, &self->returns,
            &calls[0], &calls[1], &calls[2], &calls[3], &calls[4], &calls[5], &calls[6], &calls[7]))
        return -1;
    Py_INCREF(given);
    self->names = given;
    for (int i = 0; i < CALLBACKS; ++i) {
        Py_INCREF(calls[i]);
        *callbacks(self, i) = calls[i];
    }
    const Py_ssize_t count = PyTuple_Size(self->names);
    self->reads = PyTuple_New(0);
    self->defaults = PyTuple_New(count);
    if (!self->reads || !self->defaults) return -1;
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

static PyObject *plans_add(PyObject *object, PyObject *packed) {
    Plans *self = (Plans *)object;
    if (self->plan_count == MOST_PLANS) Py_RETURN_FALSE;
    Plan *plan = dotcu_plan(packed);
    if (!plan) return NULL;
    plan->number = self->plan_count;
    self->plans[self->plan_count++] = plan;
    Py_RETURN_TRUE;
}

static void drop_plans(Plans *self) {
    const int count = self->plan_count;
    self->plan_count = self->latest = 0;
    for (int i = 0; i < count; ++i) dotcu_release_plan(self->plans[i]);
}

static PyObject *plans_clear(PyObject *object, PyObject *args) {
    Plans *self = (Plans *)object;
    PyObject *before = self->reads, *reads;
    int follows;
    if (!PyArg_ParseTuple(args, "O!p", &PyTuple_Type, &reads, &follows)) return NULL;
    drop_plans(self);
    memset(self->attempts, 0, sizeof self->attempts);
    self->follows = follows;
    Py_INCREF(reads);
    self->reads = reads;
    Py_DECREF(before);
    Py_RETURN_NONE;
}

/* Once, and from a copy: what a run calls may come here again. */
static PyObject *compute_found(Plans *self, Argument *arguments, Value *values) {
    Plan *plan = found.plan;
    found.plan = NULL;
    memcpy(arguments, found.arguments, sizeof *arguments * (size_t)self->argument_count);
    memcpy(values, found.values, sizeof *values * (size_t)plan->step_count);
    PyObject *result = compute(self, arguments, plan, values);
    dotcu_release_plan(plan);
    return result;
}

static PyObject *plans_run(PyObject *object, PyObject *given) {
    Plans *self = (Plans *)object;
    Argument arguments[MAX_ARGUMENTS];
    Value values[MAX_STEPS];
    if (!self->body || !PyTuple_Check(given) || !take(self, given, arguments))
        return PyErr_Format(PyExc_TypeError, "run takes a value for each argument, as the call had them");
    if (is_found(self, given)) return compute_found(self, arguments, values);
    for (int i = 0; i < self->argument_count; ++i)
        if (arguments[i].kind == KIND_TENSOR && !dotcu_read_memory(arguments[i].value, &arguments[i].tensor))
            return PyErr_Format(PyExc_TypeError, "argument %d has no memory", i + 1);
    if (!refresh(self)) return NULL;
    Plan *plan = fitting(self, arguments, values);
    PyErr_Clear();
    return compute(self, arguments, plan, values);
}

static int plans_traverse(PyObject *object, visitproc visit, void *arg) {
    Plans *self = (Plans *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->defaults);
    Py_VISIT(self->reads);
    for (int i = 0; i < CALLBACKS; ++i) Py_VISIT(*callbacks(self, i));
    for (int i = 0; i < self->plan_count; ++i) {
        const int stop = dotcu_visit_plan(self->plans[i], visit, arg);
        if (stop) return stop;
    }
    return 0;
}

static int plans_tp_clear(PyObject *object) {
    Plans *self = (Plans *)object;
    drop_plans(self);
    for (int i = 0; i < CALLBACKS; ++i) Py_CLEAR(*callbacks(self, i));
    Py_CLEAR(self->scope);
    return 0;
}

static void plans_dealloc(PyObject *object) {
    Plans *self = (Plans *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    plans_tp_clear(object);
    Py_CLEAR(self->names);
    Py_CLEAR(self->defaults);
    Py_CLEAR(self->reads);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static Py_ssize_t plans_length(PyObject *object) { return ((Plans *)object)->plan_count; }

static PyMethodDef plans_methods[] = {
    {"add", plans_add, METH_O, "Keep a packed plan; False where there are too many."},
    {"clear", plans_clear, METH_VARARGS,
     "Drop every plan; take the rows that must hold for later ones, and whether the body is followed at all."},
    {"run", plans_run, METH_O, "Compute below autograd with a value for each argument."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot plans_slots[] = {
    {Py_tp_doc, "The plans of one overload."}, {Py_tp_new, PyType_GenericNew}, {Py_tp_init, plans_init},
    {Py_tp_dealloc, plans_dealloc}, {Py_tp_traverse, plans_traverse}, {Py_tp_clear, plans_tp_clear},
    {Py_tp_methods, plans_methods}, {Py_sq_length, plans_length}, {0, NULL},
};
PyType_Spec dotcu_plans_spec = {"dotcu._native.Plans", sizeof(Plans), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, plans_slots};
