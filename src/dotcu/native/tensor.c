/* What native code knows of torch: tensors and streams by DLPack, the rest by functions that Python hands over. */
#include "native.h"

#include <string.h>

/* DLPack 1.3, dlpack.h: the C exchange API. */
typedef struct {
    int32_t type, index;
} DLDevice;

typedef struct {
    void *data;
    DLDevice device;
    int32_t dimensions;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *sizes, *strides;
    uint64_t byte_offset;
} DLTensor;

typedef struct Header {
    uint32_t major, minor;
    struct Header *previous;
} Header;

typedef struct {
    Header header;
    void *allocate, *to_managed, *from_managed;
    int (*look)(void *, DLTensor *);
    int (*stream)(int32_t, int32_t, void **);
} ExchangeApi;

enum { DLPACK_MAJOR = 1, COMPLEX = 5, NO_STATUS = 0, UNKNOWN_FAILURE = 999 }; /* kDLComplex; CUDA_ERROR_UNKNOWN */

static struct {
    const ExchangeApi *api;
    int32_t device_type; /* of the tensors that are launched on: kDLCUDA */
    PyObject *tensor_type, *parameter_type, *integer_type;
    PyObject *is_neg, *is_conj, *grad_enabled, *increment_version;
    PyObject *watchers[BY_COMPUTE + 1]; /* tuples: see `watches` */
    PyObject *scope, *enter_scope, *leave_scope, *outside, *in_body, *fault;
    PyObject *policy_name, *requires_grad_name;
    /* the driver */
    int (*context)(void **), (*enter)(void *), (*leave)(void **);
    int (*launch)(const LaunchConfig *, void *, void **, void **);
    int (*move_map)(void *, void *);
} torch_;

int dotcu_observers = 0;
PyTypeObject *dotcu_strided_type, *dotcu_extents_type, *dotcu_map_type, *dotcu_dtype_type, *dotcu_device_class;

static void *address(PyObject *values, const char *name) {
    PyObject *value = PyDict_GetItemString(values, name);
    return value ? PyLong_AsVoidPtr(value) : NULL;
}

static void set(PyObject **into, PyObject *values, const char *name) {
    PyObject *before = *into, *value = PyDict_GetItemString(values, name);
    Py_XINCREF(value);
    *into = value;
    Py_XDECREF(before);
}

/* Returns the newest exchange API of the known major version, or NULL with an error set. */
static const ExchangeApi *exchange_api(PyObject *capsule) {
    const bool there = capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api");
    const Header *first = there ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    for (const Header *at = first; at; at = at->previous) {
        const ExchangeApi *api = (const ExchangeApi *)at;
        if (at->major == DLPACK_MAJOR && api->look && api->stream) return api;
    }
    if (first)
        PyErr_Format(PyExc_ImportError, "this torch has DLPack's C exchange API in version %u.%u; dotcu knows version %d",
                     first->major, first->minor, DLPACK_MAJOR);
    else
        PyErr_SetString(PyExc_ImportError, "this torch has no C exchange API of DLPack");
    return NULL;
}

/* Sets objects and addresses by name; see kernel/native.py. Returns -1 with an error set. */
int dotcu_configure(PyObject *values) {
    const struct {
        const char *name;
        PyObject **into;
    } objects[] = {
        {"tensor_type", &torch_.tensor_type}, {"parameter_type", &torch_.parameter_type},
        {"integer_type", &torch_.integer_type}, {"is_neg", &torch_.is_neg}, {"is_conj", &torch_.is_conj},
        {"grad_enabled", &torch_.grad_enabled}, {"increment_version", &torch_.increment_version},
        {"watchers_of_launches", &torch_.watchers[BY_LAUNCH]}, {"watchers_of_autograd", &torch_.watchers[BY_AUTOGRAD]},
        {"watchers_of_calls", &torch_.watchers[BY_CALL]}, {"watchers_of_bodies", &torch_.watchers[BY_COMPUTE]},
        {"scope", &torch_.scope}, {"enter_scope", &torch_.enter_scope}, {"leave_scope", &torch_.leave_scope},
        {"outside", &torch_.outside}, {"in_body", &torch_.in_body}, {"fault", &torch_.fault},
        {"strided_type", (PyObject **)&dotcu_strided_type}, {"extents_type", (PyObject **)&dotcu_extents_type},
        {"map_type", (PyObject **)&dotcu_map_type}, {"dtype_type", (PyObject **)&dotcu_dtype_type},
        {"device_class", (PyObject **)&dotcu_device_class},
    };
    const struct {
        const char *name;
        void *into;
    } functions[] = {
        {"context", &torch_.context}, {"enter", &torch_.enter}, {"leave", &torch_.leave}, {"launch", &torch_.launch},
        {"move_map", &torch_.move_map},
    };
    const ExchangeApi *api = exchange_api(PyDict_GetItemString(values, "exchange_api"));
    if (!api) return -1;
    torch_.api = api;
    torch_.device_type = (int32_t)(intptr_t)address(values, "device_type");
    for (size_t i = 0; i < sizeof objects / sizeof *objects; ++i) set(objects[i].into, values, objects[i].name);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i)
        *(void **)functions[i].into = address(values, functions[i].name);
    if (!torch_.policy_name) torch_.policy_name = PyUnicode_InternFromString("policy");
    if (!torch_.requires_grad_name) torch_.requires_grad_name = PyUnicode_InternFromString("requires_grad");
    return PyErr_Occurred() ? -1 : 0;
}

/* ---------------------------------------------------------------- tensors */

bool dotcu_is_tensor(PyObject *value) {
    PyObject *type = (PyObject *)Py_TYPE(value);
    return type == torch_.tensor_type || type == torch_.parameter_type;
}

/* True if a method of a tensor returns False: it has no such bit. */
static bool lacks(PyObject *method, PyObject *value) {
    PyObject *answer = PyObject_CallFunctionObjArgs(method, value, NULL);
    Py_XDECREF(answer);
    return answer == Py_False;
}

static bool is_empty(const DLTensor *seen) {
    for (int32_t i = 0; i < seen->dimensions; ++i)
        if (!seen->sizes[i]) return true;
    return false;
}

/* Reads a tensor. False if it has no memory of its own: a subclass, a wrapper of functorch, a functional or zero tensor
 * or a storage that was freed (no address), another layout (DLPack refuses it). */
bool dotcu_look(PyObject *value, Tensor *tensor) {
    DLTensor seen;
    if (!dotcu_is_tensor(value) || torch_.api->look(value, &seen)) return false;
    if (seen.dimensions < 0 || seen.dimensions > MAX_DIMENSIONS) return false;
    if (seen.dimensions && (!seen.sizes || !seen.strides)) return false;
    if (!seen.data && !is_empty(&seen)) return false;
    tensor->object = value;
    tensor->sizes = seen.sizes;
    tensor->strides = seen.strides;
    tensor->address = (int64_t)(intptr_t)seen.data + (int64_t)seen.byte_offset;
    tensor->dimensions = seen.dimensions;
    tensor->dtype = seen.dtype.code | seen.dtype.bits << 8 | seen.dtype.lanes << 16;
    tensor->device_type = seen.device.type;
    tensor->device_index = seen.device.index;
    return true;
}

bool dotcu_is_contiguous(const Tensor *tensor) {
    int64_t expected = 1;
    for (int32_t i = tensor->dimensions; i-- > 0; expected *= tensor->sizes[i])
        if (tensor->sizes[i] != 1 && tensor->strides[i] != expected) return false;
    return true;
}

/* True for a contiguous tensor of two or more real numbers. */
static bool is_row_of_real_numbers(const Tensor *tensor) {
    bool several = false;
    for (int32_t i = 0; i < tensor->dimensions; ++i) several |= tensor->sizes[i] > 1;
    return several && (tensor->dtype & 255) != COMPLEX && dotcu_is_contiguous(tensor);
}

/* The same, and false if the memory is yet to be conjugated or negated. The public way to a negative bit is the imaginary
 * part of conjugated numbers. That is every second number, so contiguous real numbers need not be asked. */
bool dotcu_look_at_plain(PyObject *value, Tensor *tensor) {
    if (!dotcu_look(value, tensor)) return false;
    if (is_row_of_real_numbers(tensor)) return true;
    return lacks(torch_.is_neg, value) && ((tensor->dtype & 255) != COMPLEX || lacks(torch_.is_conj, value));
}

bool dotcu_is_on_gpu(const Tensor *tensor) { return tensor->device_type == torch_.device_type; }

/* Sets the end of a tensor's memory. False if that is beyond 64 bits, or for negative strides. */
bool dotcu_extent(const Tensor *tensor, int64_t *end) {
    const int64_t bits = (tensor->dtype >> 8 & 255) * (tensor->dtype >> 16);
    int64_t last = 0, part;
    if (!tensor->address) return *end = 0, true; /* an empty tensor */
    for (int32_t i = 0; i < tensor->dimensions; ++i) {
        if (tensor->strides[i] < 0 || __builtin_mul_overflow(tensor->sizes[i] - 1, tensor->strides[i], &part)) return false;
        if (__builtin_add_overflow(last, part, &last)) return false;
    }
    if (__builtin_mul_overflow(last + 1, (bits + 7) / 8, &last)) return false;
    return !__builtin_add_overflow(tensor->address, last, end);
}

/* Returns 1 or 0; -1 with an error set. */
int dotcu_requires_grad(PyObject *tensor) {
    PyObject *answer = PyObject_GetAttr(tensor, torch_.requires_grad_name);
    Py_XDECREF(answer);
    return !answer ? -1 : answer == Py_True;
}

bool dotcu_grad_enabled(void) {
    PyObject *answer = PyObject_CallNoArgs(torch_.grad_enabled);
    Py_XDECREF(answer);
    return answer != Py_False;
}

/* Increments the versions of tensors. False with an error set. */
bool dotcu_count_writes(PyObject *const *tensors, int count) {
    PyObject *written = count ? PyTuple_New(count) : NULL;
    if (!written) return !count;
    for (int i = 0; i < count; ++i) {
        Py_INCREF(tensors[i]);
        PyTuple_SetItem(written, i, tensors[i]);
    }
    PyObject *done = PyObject_CallFunctionObjArgs(torch_.increment_version, written, NULL);
    Py_DECREF(written);
    Py_XDECREF(done);
    return done != NULL;
}

/* Reads an int or a NumPy integer. False if it is neither, or exceeds 64 bits. */
bool dotcu_as_int64(PyObject *value, int64_t *into) {
    int overflow = 0;
    if (PyLong_CheckExact(value)) {
        *into = PyLong_AsLongLongAndOverflow(value, &overflow);
        return !overflow;
    }
    if (!torch_.integer_type || PyObject_IsInstance(value, torch_.integer_type) != 1) return false;
    PyObject *number = PyNumber_Index(value);
    const bool fits = number && PyLong_CheckExact(number) && dotcu_as_int64(number, into);
    Py_XDECREF(number);
    return fits;
}

/* ---------------------------------------------------------------- errors */

/* Clears an error, except one that ends the program, such as KeyboardInterrupt. True if none is left. */
bool dotcu_clear_error(void) {
    if (!PyErr_Occurred()) return true;
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
    PyErr_Clear();
    return true;
}

/* If the current error is a fault of the GPU, lets Python add what it knows. Returns NULL. */
PyObject *dotcu_explain(PyObject *on_error) {
    PyObject *type, *value, *traceback;
    if (!PyErr_Occurred() || !PyErr_ExceptionMatches(torch_.fault)) return NULL;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (value && traceback) PyException_SetTraceback(value, traceback);
    PyObject *raised = value ? PyObject_CallFunctionObjArgs(on_error, value, NULL) : NULL;
    if (!PyErr_Occurred()) {
        PyErr_Restore(type, value, traceback);
    } else {
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(traceback);
    }
    Py_XDECREF(raised);
    return NULL;
}

/* ---------------------------------------------------------------- who watches */

/* Asks one watcher: a function; (module, name) for a variable, which is negative while nothing watches; or functions, of
 * which the last has the say and is asked last, since it takes longest. An error counts as a watcher. */
static bool watches(PyObject *watcher) {
    PyObject *answer = NULL;
    if (!PyTuple_CheckExact(watcher)) {
        answer = PyObject_CallNoArgs(watcher);
    } else if (PyUnicode_CheckExact(PyTuple_GetItem(watcher, PyTuple_Size(watcher) - 1))) {
        answer = PyObject_GetAttr(PyTuple_GetItem(watcher, 0), PyTuple_GetItem(watcher, 1));
        const bool idle = answer && PyLong_CheckExact(answer) && PyLong_AsLong(answer) < 0;
        Py_XDECREF(answer);
        return !idle;
    } else {
        for (Py_ssize_t i = 0; i < PyTuple_Size(watcher); ++i)
            if (!watches(PyTuple_GetItem(watcher, i))) return false;
        return true;
    }
    const int found = answer == Py_False || answer == Py_None ? 0 : answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return found != 0;
}

/* True if nothing on this thread must see what native code would pass over. */
bool dotcu_unwatched(int by) {
    PyObject *watchers = torch_.watchers[by];
    if (dotcu_observers || !watchers) return false;
    const Py_ssize_t count = PyTuple_Size(watchers);
    for (Py_ssize_t i = 0; i < count; ++i)
        if (watches(PyTuple_GetItem(watchers, i))) return false;
    return true;
}

/* The scope of the body that native code runs on this thread. Nothing watched when it began. */
static __thread PyObject *body_scope;

/* Sets it, and returns the one before. */
PyObject *dotcu_enter_body(PyObject *scope) {
    PyObject *before = body_scope;
    body_scope = scope;
    return before;
}

/* True in a body that native code runs, and in no scope within it. */
bool dotcu_is_in_body(void) {
    if (!body_scope || dotcu_observers) return false;
    PyObject *now = PyObject_CallNoArgs(torch_.scope);
    Py_XDECREF(now);
    return now == body_scope;
}

/* Returns the launch policy of the current scope, and sets the scope unless it is POLICY_OTHER.
 * See kernel/launch_policy.py. */
int dotcu_launch_policy(PyObject **scope) {
    if (!torch_.scope || dotcu_observers) return POLICY_OTHER;
    PyObject *now = PyObject_CallNoArgs(torch_.scope);
    if (!now) return POLICY_OTHER;
    int found = POLICY_OTHER;
    if (now == body_scope) {
        found = POLICY_BODY;
    } else if (now == torch_.outside) {
        if (dotcu_unwatched(BY_LAUNCH)) found = POLICY_OUTSIDE;
    } else {
        PyObject *policy = PyObject_GetAttr(now, torch_.policy_name);
        if (policy == torch_.in_body && dotcu_unwatched(BY_COMPUTE)) found = POLICY_BODY;
        Py_XDECREF(policy);
    }
    if (found == POLICY_OTHER)
        Py_DECREF(now);
    else
        *scope = now;
    return found;
}

PyObject *dotcu_enter_scope(PyObject *scope) { return PyObject_CallFunctionObjArgs(torch_.enter_scope, scope, NULL); }

/* Keeps the current error, if any. */
void dotcu_leave_scope(PyObject *token) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *done = PyObject_CallFunctionObjArgs(torch_.leave_scope, token, NULL);
    Py_XDECREF(done);
    Py_DECREF(token);
    PyErr_Restore(type, value, traceback);
}

/* ---------------------------------------------------------------- the driver */

/* Sets torch's current stream. Returns a driver status: 0, or CUDA_ERROR_UNKNOWN. */
int dotcu_stream(int32_t device_type, int32_t device_index, void **stream) {
    *stream = NULL;
    if (!torch_.api->stream(device_type, device_index, stream)) return NO_STATUS;
    PyErr_Clear();
    return UNKNOWN_FAILURE;
}

bool dotcu_context_is(void *context) {
    void *now = NULL;
    return !context || !torch_.context || (!torch_.context(&now) && now == context);
}

bool dotcu_enter_context(void *context) { return torch_.enter && !torch_.enter(context); }

void dotcu_leave_context(void) {
    void *context;
    torch_.leave(&context);
}

/* Sets the address of an encoded tensor map. The 128 bytes are aligned to 64 for it. */
bool dotcu_move_map(char *map, int64_t address) {
    _Alignas(64) char aligned[128];
    if (!torch_.move_map) return false;
    memcpy(aligned, map, sizeof aligned);
    if (torch_.move_map(aligned, (void *)(intptr_t)address)) return false;
    memcpy(map, aligned, sizeof aligned);
    return true;
}

int dotcu_launch(const LaunchConfig *config, void *function, void **parameters) {
    return torch_.launch(config, function, parameters, NULL);
}

/* The latest launches, for the message of a fault: the launch, its scope, and what a prepared launch leaves open. */
enum { LAST_LAUNCHES = 8 };
static struct {
    PyObject *launched, *scope;
    uint32_t grid[3], smem_bytes;
} last[LAST_LAUNCHES];
static unsigned noted;

void dotcu_note(PyObject *launched, PyObject *scope, const LaunchConfig *config) {
    const unsigned at = noted++ % LAST_LAUNCHES;
    PyObject *before = last[at].launched, *scope_before = last[at].scope;
    Py_INCREF(launched);
    Py_XINCREF(scope);
    last[at].launched = launched;
    last[at].scope = scope;
    for (int axis = 0; axis < 3; ++axis) last[at].grid[axis] = config ? config->grid[axis] : 0;
    last[at].smem_bytes = config ? config->smem_bytes : 0;
    Py_XDECREF(before);
    Py_XDECREF(scope_before);
}

/* Newest first: (launch, scope or None, grid, dynamic shared memory); zeros if the launch has its own. */
PyObject *dotcu_launches(void) {
    PyObject *list = PyList_New(0);
    for (unsigned i = 0; list && i < LAST_LAUNCHES && i < noted; ++i) {
        const unsigned at = (noted - 1 - i) % LAST_LAUNCHES;
        PyObject *row = Py_BuildValue("OO(III)I", last[at].launched, last[at].scope ? last[at].scope : Py_None,
                                      last[at].grid[0], last[at].grid[1], last[at].grid[2], last[at].smem_bytes);
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}
