/* Replays a recorded call that fits: its allocations and its launches. */
#include "native.h"

#include <string.h>

enum { CUDA = 1 }; /* a device type: c10/core/DeviceType.h */
enum { ARGUMENT_ADDRESS, ALLOCATION_ADDRESS, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT32 };

/* The state of one replay; `created` are new references. */
typedef struct {
    const RecordedCall *call;
    const Argument *arguments;
    const Value *values;
    PyObject *created[MAX_ALLOCATIONS];
    Tensor tensors[MAX_ALLOCATIONS];
    int count;
    bool wrong_device; /* torch allocated on another device than the recorded call's */
} Run;

static PyObject *int_tuple(const int32_t *steps, int32_t dim, const Value *values) {
    PyObject *created = PyTuple_New(dim);
    for (int32_t i = 0; created && i < dim; ++i) {
        PyObject *number = PyLong_FromLongLong(values[steps[i]].i);
        if (!number || PyTuple_SetItem(created, i, number)) Py_CLEAR(created);
    }
    return created;
}

static PyObject *allocate(const Allocation *allocation, const Value *values) {
    PyObject *sizes = int_tuple(allocation->sizes, allocation->dim, values);
    PyObject *strides = int_tuple(allocation->strides, allocation->dim, values);
    PyObject *created = sizes && strides ? dotcu_allocate(sizes, strides, allocation->dtype) : NULL;
    Py_XDECREF(sizes);
    Py_XDECREF(strides);
    return created;
}

static bool allocate_all(Run *run) {
    const RecordedCall *call = run->call;
    for (; run->count < call->allocation_count; ++run->count) {
        const Allocation *allocation = &call->allocations[run->count];
        Tensor *tensor = &run->tensors[run->count];
        PyObject *created = run->created[run->count] = allocate(allocation, run->values);
        if (!created) return false;
        const bool read = dotcu_read_memory(created, tensor);
        run->wrong_device = read && tensor->device_type == CUDA && tensor->device_index != call->device_index;
        if (read && !run->wrong_device && (!allocation->zeroed || dotcu_zero(tensor))) continue;
        ++run->count;
        return false;
    }
    return true;
}

static void release(Run *run) {
    while (run->count > 0) Py_DECREF(run->created[--run->count]);
}

static int64_t address(const Run *run, const Field *field) {
    const Tensor *tensor = field->kind == ARGUMENT_ADDRESS ? &run->arguments[field->source].tensor : &run->tensors[field->source];
    return tensor->address + (field->step >= 0 ? run->values[field->step].i : 0);
}

static void write_field(const Run *run, const Field *field, char *parameters) {
    char *at = parameters + field->offset;
    const Value *value = &run->values[field->step];
    if (field->kind <= ALLOCATION_ADDRESS) {
        const int64_t whole = address(run, field);
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

static int write_map(const Run *run, const Map *map, char *parameters) {
    uint64_t sizes[MAX_RANK], strides[MAX_RANK];
    for (int i = 0; i < map->rank; ++i) sizes[i] = (uint64_t)run->values[map->sizes[i]].i;
    for (int i = 0; i + 1 < map->rank; ++i) strides[i] = (uint64_t)run->values[map->strides[i]].i;
    return dotcu_encode(map, parameters + map->address.offset, address(run, &map->address), sizes, strides);
}

/* Runs without the GIL: if the launch queue is full the driver waits for work that may need Python's other threads. */
static int launch(const Run *run, const Launch *launch, void *stream) {
    _Alignas(64) char parameters[MAX_PARAMETER_BYTES]; /* where the driver encodes maps */
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
    const Map *maps = (const Map *)PyBytes_AsString(launch->maps);
    for (int i = 0; i < launch->map_count; ++i) {
        const int status = write_map(run, &maps[i], parameters);
        if (status) return status;
    }
    const int32_t *offsets = (const int32_t *)PyBytes_AsString(launch->offsets);
    for (int i = 0; i < launch->offset_count; ++i) pointers[i] = parameters + offsets[i];
    return dotcu_launch(&config, launch->function, pointers);
}

static bool launch_all(const Run *run, Outcome *outcome) {
    PyThreadState *thread = PyEval_SaveThread();
    void *stream;
    /* A thread that is new to CUDA has no current context. */
    const bool entered = !dotcu_context_is(run->call->context) && dotcu_enter_context(run->call->context);
    outcome->launch = 0;
    outcome->status = dotcu_stream(run->call->device_index, &stream);
    for (int i = 0; i < run->call->launch_count && !outcome->status; ++i) {
        outcome->launch = i;
        outcome->status = launch(run, &run->call->launches[i], stream);
    }
    if (entered) dotcu_leave_context();
    PyEval_RestoreThread(thread);
    const int taken = outcome->status ? outcome->launch : run->call->launch_count;
    for (int i = 0; i < taken; ++i) dotcu_note(run->call->launches[i].note, NULL, NULL);
    return !outcome->status;
}

static PyObject *results(const Run *run) {
    const RecordedCall *call = run->call;
    const int32_t *which = (const int32_t *)PyBytes_AsString(call->results);
    if (!call->result_count) Py_RETURN_NONE;
    PyObject *tuple = call->single ? NULL : PyTuple_New(call->result_count);
    for (int i = 0; i < call->result_count; ++i) {
        PyObject *created = run->created[which[i]];
        Py_INCREF(created);
        if (call->single) return created;
        if (!tuple) Py_DECREF(created);
        else if (PyTuple_SetItem(tuple, i, created)) Py_CLEAR(tuple);
    }
    return tuple;
}

/* Replays a recorded call. Declined: nothing was launched, and the body must run. Failed: the driver refused a
 * launch. Raised: an error is set. */
int dotcu_run(const RecordedCall *call, const Argument *arguments, const Value *values, Outcome *outcome) {
    Run run = {.call = call, .arguments = arguments, .values = values};
    void *guard = NULL;
    int how = RUN_DECLINED;
    bool allocated = allocate_all(&run);
    if (!allocated && run.wrong_device) { /* torch's current device is another one */
        release(&run);
        run.wrong_device = false;
        guard = dotcu_enter_device(call->device_index);
        allocated = guard && allocate_all(&run);
    }
    if (!allocated) {
        how = dotcu_clear_error() ? RUN_DECLINED : RUN_RAISED; /* out of memory, for example: the body will raise it as well */
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
