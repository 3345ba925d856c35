/* Plans: what Python sees of the plans of one overload, and a call of it. */
#include "native.h"

#include <string.h>

/* ---------------------------------------------------------------- binding */

static bool set(const Plans *self, Argument *arguments, int index, PyObject *value) {
    const int kind = dotcu_kind(value);
    arguments[index].value = value;
    arguments[index].kind = kind;
    return (self->kinds[index] & kind) != 0;
}

static int index_of(const Plans *self, PyObject *name) {
    for (int i = 0; i < self->argument_count; ++i) {
        PyObject *known = PyTuple_GetItem(self->names, i);
        if (known == name || PyUnicode_Compare(known, name) == 0) return i;
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

static PyObject *values_of(const Plans *self, const Argument *arguments) {
    PyObject *made = PyTuple_New(self->argument_count);
    for (int i = 0; made && i < self->argument_count; ++i) {
        Py_INCREF(arguments[i].value);
        if (PyTuple_SetItem(made, i, arguments[i].value)) Py_CLEAR(made);
    }
    return made;
}

/* Whether what the body reads beside its arguments is still the same: rows of (dict, name, value), and of
 * (address, word there, what must live as long). See replay/rows.py. */
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

static Plan *fitting(Plans *self, const Argument *arguments, Value *values) {
    for (int i = 0; i < self->plan_count; ++i) {
        const int at = (self->latest + i) % self->plan_count;
        if (!dotcu_fits(self->plans[at], arguments, self->floats, values)) continue;
        self->latest = at;
        return self->plans[at];
    }
    return NULL;
}

/* Counts the writes of a call that writes its arguments. */
static bool count_writes(const Plans *self, const Plan *plan, const Argument *arguments) {
    const int32_t *which = (const int32_t *)PyBytes_AsString(plan->writes);
    PyObject *written = PyList_New(0), *done = NULL;
    for (int i = 0; written && i < plan->write_count; ++i)
        if (arguments[which[i]].kind == KIND_TENSOR && PyList_Append(written, arguments[which[i]].value))
            Py_CLEAR(written);
    if (written) done = PyObject_CallFunctionObjArgs(self->on_write, written, NULL);
    Py_XDECREF(written);
    Py_XDECREF(done);
    return done != NULL;
}

static PyObject *finished(Plans *self, const Argument *arguments, const Plan *plan, int how, Outcome outcome) {
    PyObject *given = NULL, *result = NULL;
    switch (how) {
    case RUN_DONE:
        if (plan->write_count && !count_writes(self, plan, arguments)) Py_CLEAR(outcome.result);
        return outcome.result;
    case RUN_ELSEWHERE:
        given = values_of(self, arguments);
        if (given)
            result = PyObject_CallFunction(self->on_elsewhere, "iO", (int)plan->device_index, given);
        Py_XDECREF(given);
        if (result != Py_NotImplemented) return result;
        Py_CLEAR(result);
        return NULL;
    case RUN_FAILED:
        result = PyObject_CallFunction(self->on_failure, "iii", (int)plan->number, outcome.launch, outcome.status);
        Py_CLEAR(result); /* it raises */
        return NULL;
    }
    return NULL;
}

/* A call below autograd. NULL without an error set: the fallback is to be called. */
static PyObject *replay(Plans *self, const Argument *arguments, Plan *plan, const Value *values) {
    Outcome outcome = {0};
    ++plan->users; /* other threads run meanwhile, and may drop the overload's plans */
    const int how = dotcu_run(plan, arguments, values, &outcome);
    PyObject *result = finished(self, arguments, plan, how, outcome);
    dotcu_release_plan(plan);
    return result;
}

/* A call that was found to fit, and is recorded before it runs: autograd hands the same values to `run`,
 * which then need not look at them again. */
static __thread struct {
    const Plans *of;
    Plan *plan;
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
        if (found.arguments[i].value != PyTuple_GetItem(given, i)) return false;
    return true;
}

static PyObject *recorded(Plans *self, const Argument *arguments) {
    PyObject *given = values_of(self, arguments), *result = NULL;
    forget();
    memcpy(found.arguments, arguments, sizeof *arguments * (size_t)self->argument_count);
    found.plan = fitting(self, found.arguments, found.values);
    if (PyErr_Occurred()) PyErr_Clear();
    if (found.plan) ++found.plan->users;
    found.of = self;
    if (given) result = PyObject_CallObject(self->on_record, given);
    forget();
    Py_XDECREF(given);
    return result;
}

static PyObject *missed(const Plans *self, PyObject *fallback, PyObject *args, PyObject *kwargs) {
    return PyObject_CallFunctionObjArgs(self->on_miss, fallback, args, kwargs ? kwargs : Py_None, NULL);
}

PyObject *dotcu_call(Plans *self, Argument *arguments, PyObject *fallback, PyObject *args, PyObject *kwargs) {
    Value values[MAX_STEPS];
    bool records = false;
    if (!reads_hold(self)) {
        PyObject *done = PyObject_CallFunctionObjArgs(self->on_stale, NULL);
        Py_XDECREF(done);
        return done ? missed(self, fallback, args, kwargs) : NULL;
    }
    for (int i = 0; i < self->argument_count; ++i) {
        if (arguments[i].kind != KIND_TENSOR) continue;
        const int how = dotcu_read(&arguments[i]);
        if (PyErr_Occurred()) PyErr_Clear();
        if (how == READ_STRANGE) return PyObject_Call(fallback, args, kwargs);
        records |= how == READ_RECORDED;
    }
    if (records && dotcu_grad_enabled()) return recorded(self, arguments);
    Plan *plan = fitting(self, arguments, values);
    if (PyErr_Occurred()) PyErr_Clear();
    if (!plan) return missed(self, fallback, args, kwargs);
    PyObject *result = replay(self, arguments, plan, values);
    if (result || PyErr_Occurred()) return result;
    return PyObject_Call(fallback, args, kwargs);
}

/* ---------------------------------------------------------------- Plans */

static int plans_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"names", "kinds", "floats", "defaults", "positional", "on_miss", "on_record",
                            "on_stale", "on_elsewhere", "on_failure", "on_write", NULL};
    Plans *self = (Plans *)object;
    PyObject *kinds, *floats, *defaults;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!O!O!iOOOOOO", names, &PyTuple_Type, &self->names,
                                     &PyTuple_Type, &kinds, &PyTuple_Type, &floats, &PyTuple_Type, &defaults,
                                     &self->positional_count, &self->on_miss, &self->on_record, &self->on_stale,
                                     &self->on_elsewhere, &self->on_failure, &self->on_write)) {
        self->names = self->on_miss = self->on_record = self->on_stale = NULL;
        self->on_elsewhere = self->on_failure = self->on_write = NULL;
        return -1;
    }
    PyObject *held[] = {self->names, self->on_miss, self->on_record, self->on_stale, self->on_elsewhere,
                        self->on_failure, self->on_write};
    for (size_t i = 0; i < sizeof held / sizeof *held; ++i) Py_INCREF(held[i]);
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

static PyObject *plans_clear(PyObject *object, PyObject *reads) {
    Plans *self = (Plans *)object;
    PyObject *before = self->reads;
    if (!PyTuple_Check(reads)) return PyErr_Format(PyExc_TypeError, "reads is a tuple of rows");
    drop_plans(self);
    Py_INCREF(reads);
    self->reads = reads;
    Py_DECREF(before);
    Py_RETURN_NONE;
}

static PyObject *or_not_implemented(PyObject *result) {
    if (!result && !PyErr_Occurred()) Py_RETURN_NOTIMPLEMENTED;
    return result;
}

/* Once, and from a copy: what a run calls may come here again. */
static PyObject *replay_found(Plans *self, Argument *arguments, Value *values) {
    Plan *plan = found.plan;
    found.plan = NULL;
    memcpy(arguments, found.arguments, sizeof *arguments * (size_t)self->argument_count);
    memcpy(values, found.values, sizeof *values * (size_t)plan->step_count);
    PyObject *result = replay(self, arguments, plan, values);
    dotcu_release_plan(plan);
    return result;
}

static PyObject *plans_run(PyObject *object, PyObject *given) {
    Plans *self = (Plans *)object;
    Argument arguments[MAX_ARGUMENTS];
    Value values[MAX_STEPS];
    if (!PyTuple_Check(given)) Py_RETURN_NOTIMPLEMENTED;
    if (is_found(self, given)) return or_not_implemented(replay_found(self, arguments, values));
    if (!take(self, given, arguments)) Py_RETURN_NOTIMPLEMENTED;
    for (int i = 0; i < self->argument_count; ++i)
        if (arguments[i].kind == KIND_TENSOR && !dotcu_read_memory(arguments[i].value, &arguments[i].tensor))
            Py_RETURN_NOTIMPLEMENTED;
    Plan *plan = reads_hold(self) ? fitting(self, arguments, values) : NULL;
    PyErr_Clear();
    PyObject *result = plan ? replay(self, arguments, plan, values) : NULL;
    return or_not_implemented(result);
}

static int plans_traverse(PyObject *object, visitproc visit, void *arg) {
    Plans *self = (Plans *)object;
    Py_VISIT(Py_TYPE(object));
    PyObject *held[] = {self->names, self->defaults, self->reads, self->on_miss, self->on_record, self->on_stale,
                        self->on_elsewhere, self->on_failure, self->on_write};
    for (size_t i = 0; i < sizeof held / sizeof *held; ++i) Py_VISIT(held[i]);
    for (int i = 0; i < self->plan_count; ++i) {
        const int stop = dotcu_visit_plan(self->plans[i], visit, arg);
        if (stop) return stop;
    }
    return 0;
}

static int plans_tp_clear(PyObject *object) {
    Plans *self = (Plans *)object;
    drop_plans(self);
    Py_CLEAR(self->on_miss);
    Py_CLEAR(self->on_record);
    Py_CLEAR(self->on_stale);
    Py_CLEAR(self->on_elsewhere);
    Py_CLEAR(self->on_failure);
    Py_CLEAR(self->on_write);
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
    {"clear", plans_clear, METH_O, "Drop every plan, and take the rows that must hold for later ones."},
    {"run", plans_run, METH_O, "Replay below autograd with a value for each argument, or NotImplemented."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot plans_slots[] = {
    {Py_tp_doc, "The plans of one overload."}, {Py_tp_new, PyType_GenericNew}, {Py_tp_init, plans_init},
    {Py_tp_dealloc, plans_dealloc}, {Py_tp_traverse, plans_traverse}, {Py_tp_clear, plans_tp_clear},
    {Py_tp_methods, plans_methods}, {Py_sq_length, plans_length}, {0, NULL},
};
PyType_Spec dotcu_plans_spec = {"dotcu._native.Plans", sizeof(Plans), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, plans_slots};
