/* Recorded calls as native data; whether one fits a call. call_cache/record.py has the same numbers of ops and
 * fields, and describes them. */
#include "native.h"

#include <math.h>
#include <string.h>

enum Op {
    INT, FLOAT, SIZE, STRIDE, NUMEL, OFFSET, ADDRESS, CONTIGUOUS, INT_ARGUMENT, FLOAT_ARGUMENT,
    ADD = 16, SUB, MUL, FLOORDIV, MOD, NEG, ABS, MIN, MAX, LSHIFT, RSHIFT, AND, OR, XOR,
    EQ = 32, NE, LT, LE, GT, GE,
    TO_FLOAT = 48, FADD, FSUB, FMUL, FDIV, FNEG, FABS,
    FEQ = 56, FNE, FLT, FLE, FGT, FGE, SAME, TRUNC, FLOOR, CEIL
};
enum FieldKind {
    ARGUMENT_ADDRESS, ALLOCATION_ADDRESS, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64,
    FLOAT32, FLOAT64
};

/* ---------------------------------------------------------------- reading and freeing */

static PyObject *new_reference(PyObject *value) {
    Py_INCREF(value);
    return value;
}

static int32_t count(PyObject *bytes, size_t size) { return (int32_t)((size_t)PyBytes_Size(bytes) / size); }

static bool read_allocation(PyObject *packed, Allocation *created) {
    PyObject *dtype, *steps;
    int dim, zeroed;
    if (!PyArg_ParseTuple(packed, "OiiS", &dtype, &dim, &zeroed, &steps)) return false;
    if (dim > MAX_DEPTH || count(steps, 4) != 2 * dim) return false;
    created->dtype = new_reference(dtype);
    created->steps = new_reference(steps);
    created->dim = dim;
    created->zeroed = zeroed;
    created->sizes = (const int32_t *)PyBytes_AsString(steps);
    created->strides = created->sizes + dim;
    return true;
}

static bool read_launch(PyObject *packed, Launch *created) {
    unsigned long long function, most_blocks;
    PyObject *parameters, *offsets, *fields, *maps, *note;
    unsigned block[3], smem_bytes, cluster[3];
    int cooperative, programmatic;
    if (!PyArg_ParseTuple(packed, "KSSSSO(iii)(III)I(III)iiK", &function, &parameters, &offsets, &fields, &maps, &note,
                          &created->grid[0], &created->grid[1], &created->grid[2], &block[0], &block[1], &block[2], &smem_bytes,
                          &cluster[0], &cluster[1], &cluster[2], &cooperative, &programmatic, &most_blocks))
        return false;
    if (PyBytes_Size(parameters) > MAX_PARAMETER_BYTES || count(offsets, 4) > MAX_PARAMETERS) return false;
    created->function = (void *)(uintptr_t)function;
    created->parameters = new_reference(parameters);
    created->offsets = new_reference(offsets);
    created->fields = new_reference(fields);
    created->maps = new_reference(maps);
    created->note = new_reference(note);
    created->parameter_bytes = count(parameters, 1);
    created->offset_count = count(offsets, 4);
    created->field_count = count(fields, sizeof(Field));
    created->map_count = count(maps, sizeof(Map));
    dotcu_fill_template(&created->template, block, smem_bytes, cluster, cooperative, programmatic);
    created->template.most_blocks = most_blocks;
    return true;
}

static bool read_parts(RecordedCall *call, PyObject *allocations, PyObject *launches) {
    const Py_ssize_t some = PyTuple_Size(allocations), others = PyTuple_Size(launches);
    if (some > MAX_ALLOCATIONS || others > MAX_LAUNCHES || call->step_count > MAX_STEPS) return false;
    call->allocations = PyMem_Calloc((size_t)some + 1, sizeof *call->allocations);
    call->launches = PyMem_Calloc((size_t)others + 1, sizeof *call->launches);
    if (!call->allocations || !call->launches) return false;
    for (; call->allocation_count < some; ++call->allocation_count)
        if (!read_allocation(PyTuple_GetItem(allocations, call->allocation_count),
                             &call->allocations[call->allocation_count]))
            return false;
    for (; call->launch_count < others; ++call->launch_count)
        if (!read_launch(PyTuple_GetItem(launches, call->launch_count), &call->launches[call->launch_count]))
            return false;
    return true;
}

/* Reads what call_cache/native.py wrote. Returns NULL, with an error set, if it is too large. */
RecordedCall *dotcu_read_call(PyObject *packed) {
    PyObject *keys, *constants, *steps, *guards, *allocations, *launches, *results;
    unsigned long long context;
    int single, distinct, device;
    if (!PyArg_ParseTuple(packed, "SO!SSO!O!SppKi", &keys, &PyTuple_Type, &constants, &steps, &guards,
                          &PyTuple_Type, &allocations, &PyTuple_Type, &launches, &results, &single,
                          &distinct, &context, &device))
        return NULL;
    RecordedCall *call = PyMem_Calloc(1, sizeof *call);
    if (!call) return (RecordedCall *)PyErr_NoMemory();
    call->references = 1;
    call->keys = new_reference(keys);
    call->constants = new_reference(constants);
    call->steps = new_reference(steps);
    call->guards = new_reference(guards);
    call->results = new_reference(results);
    call->key_count = count(keys, sizeof(Key));
    call->step_count = count(steps, sizeof(Step));
    call->guard_count = count(guards, sizeof(Guard));
    call->result_count = count(results, 4);
    call->single = single;
    call->distinct = distinct;
    call->context = (void *)(uintptr_t)context;
    call->device_index = device;
    if (read_parts(call, allocations, launches)) return call;
    dotcu_release_call(call);
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the recorded call is larger than native code takes");
    return NULL;
}

int dotcu_visit_call(RecordedCall *call, visitproc visit, void *arg) {
    Py_VISIT(call->constants);
    return 0;
}

void dotcu_release_call(RecordedCall *call) {
    if (--call->references > 0) return;
    PyObject *held[] = {call->keys, call->constants, call->steps, call->guards, call->results};
    for (size_t i = 0; i < sizeof held / sizeof *held; ++i) Py_XDECREF(held[i]);
    for (int i = 0; call->allocations && i < call->allocation_count; ++i) {
        Py_XDECREF(call->allocations[i].dtype);
        Py_XDECREF(call->allocations[i].steps);
    }
    for (int i = 0; call->launches && i < call->launch_count; ++i) {
        Py_XDECREF(call->launches[i].parameters);
        Py_XDECREF(call->launches[i].offsets);
        Py_XDECREF(call->launches[i].fields);
        Py_XDECREF(call->launches[i].maps);
        Py_XDECREF(call->launches[i].note);
    }
    PyMem_Free(call->allocations);
    PyMem_Free(call->launches);
    PyMem_Free(call);
}

/* ---------------------------------------------------------------- fitting */

static PyObject *item(PyObject *values, Py_ssize_t i) {
    return PyTuple_Check(values) ? PyTuple_GetItem(values, i) : PyList_GetItem(values, i);
}

/* Compares two lists or tuples of 64-bit ints. */
static bool same_ints(PyObject *a, PyObject *b) {
    const Py_ssize_t count = PyTuple_Size(b);
    if ((PyTuple_Check(a) ? PyTuple_Size(a) : PyList_Size(a)) != count) return false;
    for (Py_ssize_t i = 0; i < count; ++i)
        if (PyLong_AsLongLong(item(a, i)) != PyLong_AsLongLong(item(b, i))) return false;
    return true;
}

static bool same(const Argument *given, PyObject *constant) {
    PyObject *value = given->value;
    if (value == constant) return true;
    if (given->kind == KIND_INTS) return PyTuple_CheckExact(constant) && same_ints(value, constant);
    if (Py_TYPE(value) != Py_TYPE(constant)) return false;
    const int equal = PyObject_RichCompareBool(value, constant, Py_EQ);
    if (equal < 0) PyErr_Clear();
    return equal > 0;
}

static bool keys_match(const RecordedCall *call, const Argument *arguments, const bool *floats) {
    const Key *keys = (const Key *)PyBytes_AsString(call->keys);
    for (int i = 0; i < call->key_count; ++i) {
        const Argument *given = &arguments[i];
        const Tensor *tensor = &given->tensor;
        bool fits = false;
        switch (keys[i].kind) {
        case KEY_TENSOR:
            fits = given->kind == KIND_TENSOR && tensor->dtype == keys[i].dtype && tensor->dim == keys[i].dim &&
                   tensor->device_type == keys[i].device_type && tensor->device_index == keys[i].device_index;
            break;
        case KEY_INT: fits = given->kind == KIND_INT && !floats[i]; break;
        case KEY_FLOAT: fits = given->kind == KIND_FLOAT || (given->kind == KIND_INT && floats[i]); break;
        case KEY_CONSTANT:
            fits = given->kind != KIND_TENSOR && same(given, PyTuple_GetItem(call->constants, i));
        }
        if (!fits) return false;
    }
    return true;
}

/* True if no tensor is passed twice, for a body that tests whether two are the same object. */
static bool distinct(const RecordedCall *call, const Argument *arguments) {
    for (int i = 0; i < call->key_count; ++i)
        for (int j = 0; j < i; ++j)
            if (arguments[i].kind == KIND_TENSOR && arguments[i].value == arguments[j].value) return false;
    return true;
}

static bool as_int(PyObject *value, int64_t *into) {
    int overflow;
    *into = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow;
}

static const int64_t MOST_EXACT = INT64_C(1) << 53;

static bool as_double(const Argument *given, double *into) {
    int64_t to_int64;
    if (given->kind == KIND_FLOAT) {
        *into = PyFloat_AsDouble(given->value);
        return true;
    }
    if (!as_int(given->value, &to_int64) || to_int64 > MOST_EXACT || to_int64 < -MOST_EXACT) return false;
    *into = (double)to_int64;
    return true;
}

static bool divide(int64_t a, int64_t b, int64_t *quotient, int64_t *remainder) {
    if (!b || (a == INT64_MIN && b == -1)) return false;
    *quotient = a / b;
    *remainder = a % b;
    if (*remainder && (*remainder < 0) != (b < 0)) {
        --*quotient;
        *remainder += b;
    }
    return true;
}

static bool to_int64(double rounded, int64_t *into) {
    if (!(rounded >= -0x1p63 && rounded < 0x1p63)) return false;
    *into = (int64_t)rounded;
    return true;
}

static bool shift_left(int64_t a, int64_t by, int64_t *into) {
    if (by < 0 || (a && by > 63)) return false;
    if (!a || by == 63) return *into = a ? INT64_MIN : 0, !a || a == -1;
    return !__builtin_mul_overflow(a, INT64_C(1) << by, into);
}

static bool leaf(const Step *step, const Argument *arguments, Value *into) {
    const Argument *given = &arguments[step->a];
    const Tensor *tensor = &given->tensor;
    switch (step->op) {
    case INT: case FLOAT: *into = step->value; return true;
    case SIZE: into->i = tensor->sizes[step->b]; return true;
    case STRIDE: into->i = tensor->strides[step->b]; return true;
    case NUMEL: into->i = tensor->numel; return true;
    case OFFSET: into->i = tensor->offset; return true;
    case ADDRESS: into->i = tensor->address; return true;
    case CONTIGUOUS: into->i = dotcu_is_contiguous(tensor); return true;
    case INT_ARGUMENT: return as_int(given->value, &into->i);
    case FLOAT_ARGUMENT: return as_double(given, &into->f);
    }
    return false;
}

static bool integer(int op, int64_t a, int64_t b, int64_t *into) {
    int64_t other;
    switch (op) {
    case ADD: return !__builtin_add_overflow(a, b, into);
    case SUB: return !__builtin_sub_overflow(a, b, into);
    case MUL: return !__builtin_mul_overflow(a, b, into);
    case FLOORDIV: return divide(a, b, into, &other);
    case MOD: return b == -1 ? (*into = 0, true) : divide(a, b, &other, into); /* INT64_MIN / -1 overflows */
    case NEG: return !__builtin_sub_overflow(INT64_C(0), a, into);
    case ABS: return a >= 0 ? (*into = a, true) : !__builtin_sub_overflow(INT64_C(0), a, into);
    case MIN: *into = a < b ? a : b; return true;
    case MAX: *into = a > b ? a : b; return true;
    case LSHIFT: return shift_left(a, b, into);
    case RSHIFT: return b < 0 ? false : (*into = a >> (b > 63 ? 63 : b), true);
    case AND: *into = a & b; return true;
    case OR: *into = a | b; return true;
    case XOR: *into = a ^ b; return true;
    case EQ: *into = a == b; return true;
    case NE: *into = a != b; return true;
    case LT: *into = a < b; return true;
    case LE: *into = a <= b; return true;
    case GT: *into = a > b; return true;
    case GE: *into = a >= b; return true;
    }
    return false;
}

static bool floating(int op, Value a, Value b, Value *into) {
    switch (op) {
    case TO_FLOAT:
        into->f = (double)a.i;
        return a.i >= -MOST_EXACT && a.i <= MOST_EXACT;
    case FADD: into->f = a.f + b.f; return true;
    case FSUB: into->f = a.f - b.f; return true;
    case FMUL: into->f = a.f * b.f; return true;
    case FDIV: into->f = a.f / b.f; return b.f != 0;
    case FNEG: into->f = -a.f; return true;
    case FABS: into->f = fabs(a.f); return true;
    case FEQ: into->i = a.f == b.f; return true;
    case FNE: into->i = a.f != b.f; return true;
    case FLT: into->i = a.f < b.f; return true;
    case FLE: into->i = a.f <= b.f; return true;
    case FGT: into->i = a.f > b.f; return true;
    case FGE: into->i = a.f >= b.f; return true;
    case SAME: into->i = a.i == b.i; return true;
    case TRUNC: return to_int64(trunc(a.f), &into->i);
    case FLOOR: return to_int64(floor(a.f), &into->i);
    case CEIL: return to_int64(ceil(a.f), &into->i);
    }
    return false;
}

/* Computes the steps until a guard, which come in the order of their steps, does not hold. */
static bool evaluate(const RecordedCall *call, const Argument *arguments, Value *values) {
    const Step *steps = (const Step *)PyBytes_AsString(call->steps);
    const Guard *guards = (const Guard *)PyBytes_AsString(call->guards), *end = guards + call->guard_count;
    for (int i = 0; i < call->step_count; ++i) {
        const Step *step = &steps[i];
        bool exact;
        if (step->op < ADD) exact = leaf(step, arguments, &values[i]);
        else if (step->op < TO_FLOAT) exact = integer(step->op, values[step->a].i, values[step->b].i, &values[i].i);
        else exact = floating(step->op, values[step->a], values[step->b], &values[i]);
        if (!exact) return false;
        for (; guards < end && guards->step == i; ++guards)
            if (values[i].i != guards->value) return false;
    }
    return guards == end;
}

static bool field_fits(const Field *field, const Value *values) {
    static const int64_t low[] = {INT8_MIN, INT16_MIN, INT32_MIN, INT64_MIN, 0, 0, 0, 0};
    static const int64_t high[] = {INT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX,
                                   UINT8_MAX, UINT16_MAX, UINT32_MAX, INT64_MAX};
    if (field->kind >= INT8 && field->kind <= UINT64) {
        const int64_t value = values[field->step].i;
        return value >= low[field->kind - INT8] && value <= high[field->kind - INT8];
    }
    if (field->kind == FLOAT32) {
        const double value = values[field->step].f;
        return !isfinite(value) || isfinite((float)value);
    }
    return true;
}

static bool grid_fits(const Launch *launch, const Value *values) {
    const int64_t grid[] = {values[launch->grid[0]].i, values[launch->grid[1]].i, values[launch->grid[2]].i};
    return dotcu_grid_fits(&launch->template, grid);
}

static bool launches_fit(const RecordedCall *call, const Value *values) {
    for (int i = 0; i < call->launch_count; ++i) {
        const Launch *launch = &call->launches[i];
        const Field *fields = (const Field *)PyBytes_AsString(launch->fields);
        if (!grid_fits(launch, values)) return false;
        for (int j = 0; j < launch->field_count; ++j)
            if (!field_fits(&fields[j], values)) return false;
    }
    return true;
}

/* True if a recorded call fits a call; `values` then has the values of its steps.
 *
 * floats: for each argument, true if the schema converts an int to a float. */
bool dotcu_fits(const RecordedCall *call, const Argument *arguments, const bool *floats, Value *values) {
    return keys_match(call, arguments, floats) && (!call->distinct || distinct(call, arguments)) && evaluate(call, arguments, values) &&
           launches_fit(call, values);
}
