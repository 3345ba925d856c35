/* Allocations and launches of a plan that fits a call. */
#include "native.h"

#include <string.h>

enum { CUDA = 1 }; /* a device type: c10/core/DeviceType.h */
enum { ARGUMENT_ADDRESS, ALLOCATION_ADDRESS, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT32 };

/* What one run holds; `made` are new references. */
typedef struct {
    const Plan *plan;
    const Argument *arguments;
    const Value *values;
    PyObject *made[MAX_ALLOCATIONS];
    Tensor tensors[MAX_ALLOCATIONS];
    int count;
    bool elsewhere; /* torch has another device in mind than the driver */
} Run;

static PyObject *whole_numbers(const int32_t *steps, int32_t dim, const Value *values) {
    PyObject *made = PyTuple_New(dim);
    for (int32_t i = 0; made && i < dim; ++i) {
        PyObject *number = PyLong_FromLongLong(values[steps[i]].i);
        if (!number || PyTuple_SetItem(made, i, number)) Py_CLEAR(made);
    }
    return made;
}

static PyObject *allocate(const Allocation *allocation, const Value *values) {
    PyObject *sizes = whole_numbers(allocation->sizes, allocation->dim, values);
    PyObject *strides = whole_numbers(allocation->strides, allocation->dim, values);
    PyObject *made = sizes && strides ? dotcu_allocate(sizes, strides, allocation->dtype) : NULL;
    Py_XDECREF(sizes);
    Py_XDECREF(strides);
    return made;
}

static bool allocate_all(Run *run) {
    const Plan *plan = run->plan;
    for (; run->count < plan->allocation_count; ++run->count) {
        const Allocation *allocation = &plan->allocations[run->count];
        Tensor *tensor = &run->tensors[run->count];
        PyObject *made = run->made[run->count] = allocate(allocation, run->values);
        if (!made) return false;
        const bool read = dotcu_read_memory(made, tensor);
        run->elsewhere = read && tensor->device_type == CUDA && tensor->device_index != plan->device_index;
        if (read && !run->elsewhere && (!allocation->zeroed || dotcu_zero(tensor))) continue;
        ++run->count;
        return false;
    }
    return true;
}

static void release(Run *run) {
    while (run->count > 0) Py_DECREF(run->made[--run->count]);
}

static void write_field(const Run *run, const Field *field, char *parameters) {
    char *at = parameters + field->offset;
    const Value *value = field->step >= 0 ? &run->values[field->step] : NULL;
    int64_t whole = value ? value->i : 0;
    if (field->kind <= ALLOCATION_ADDRESS) {
        const bool given = field->kind == ARGUMENT_ADDRESS;
        whole += given ? run->arguments[field->source].tensor.address : run->tensors[field->source].address;
        memcpy(at, &whole, 8);
    } else if (field->kind == FLOAT32) {
        const float narrow = (float)value->f;
        memcpy(at, &narrow, 4);
    } else {
        /* Little endian, as every machine with a GPU is: the low bytes come first. */
        static const unsigned char size[] = {1, 2, 4, 8, 1, 2, 4, 8, 0, 8};
        memcpy(at, value, size[field->kind - INT8]);
    }
}

/* Needs no GIL: a full launch queue makes the driver wait, for work that may need Python's other threads. */
static int launch(const Run *run, const Launch *launch, void *stream) {
    _Alignas(16) char parameters[MAX_PARAMETER_BYTES];
    void *pointers[MAX_PARAMETERS];
    LaunchConfig config = launch->template.config;
    config.stream = stream;
    for (int axis = 0; axis < 3; ++axis) {
        config.grid[axis] = (uint32_t)run->values[launch->grid[axis]].i;
        if (!config.grid[axis]) return 0;
    }
    memcpy(parameters, PyBytes_AsString(launch->parameters), (size_t)launch->parameter_bytes);
    const Field *fields = (const Field *)PyBytes_AsString(launch->fields);
    for (int i = 0; i < launch->field_count; ++i) write_field(run, &fields[i], parameters);
    const int32_t *offsets = (const int32_t *)PyBytes_AsString(launch->offsets);
    for (int i = 0; i < launch->offset_count; ++i) pointers[i] = parameters + offsets[i];
    return dotcu_launch(&config, launch->function, pointers);
}

static bool launch_all(const Run *run, Outcome *outcome) {
    PyThreadState *thread = PyEval_SaveThread();
    void *stream;
    /* On a thread that is new to CUDA no context is current. */
    const bool entered = !dotcu_context_is(run->plan->context) && dotcu_enter_context(run->plan->context);
    outcome->launch = 0;
    outcome->status = dotcu_stream(run->plan->device_index, &stream);
    for (int i = 0; i < run->plan->launch_count && !outcome->status; ++i) {
        outcome->launch = i;
        outcome->status = launch(run, &run->plan->launches[i], stream);
    }
    if (entered) dotcu_leave_context();
    PyEval_RestoreThread(thread);
    const int taken = outcome->status ? outcome->launch : run->plan->launch_count;
    for (int i = 0; i < taken; ++i) dotcu_note(run->plan->launches[i].note, NULL, NULL);
    return !outcome->status;
}

static PyObject *results(const Run *run) {
    const Plan *plan = run->plan;
    const int32_t *which = (const int32_t *)PyBytes_AsString(plan->results);
    if (!plan->result_count) Py_RETURN_NONE;
    PyObject *tuple = plan->single ? NULL : PyTuple_New(plan->result_count);
    for (int i = 0; i < plan->result_count; ++i) {
        PyObject *made = run->made[which[i]];
        Py_INCREF(made);
        if (plan->single) return made;
        if (!tuple) Py_DECREF(made);
        else if (PyTuple_SetItem(tuple, i, made)) Py_CLEAR(tuple);
    }
    return tuple;
}

/* Runs a plan. Aside: nothing was launched, the body should say why. Failed: the driver refused. Raised: an
 * error is set. */
int dotcu_run(const Plan *plan, const Argument *arguments, const Value *values, Outcome *outcome) {
    Run run = {.plan = plan, .arguments = arguments, .values = values};
    void *guard = NULL;
    int how = RUN_ASIDE;
    bool allocated = allocate_all(&run);
    if (!allocated && run.elsewhere) { /* another device is torch's current one */
        release(&run);
        run.elsewhere = false;
        guard = dotcu_enter_device(plan->device_index);
        allocated = guard && allocate_all(&run);
    }
    if (!allocated) {
        how = dotcu_forgive() ? RUN_ASIDE : RUN_RAISED; /* out of memory, say: the body meets it too */
    } else if (launch_all(&run, outcome)) {
        outcome->result = results(&run);
        how = outcome->result ? RUN_DONE : RUN_RAISED;
    } else {
        how = RUN_FAILED;
    }
    release(&run);
    if (guard) dotcu_leave_device(guard);
    return how;
}
