/* torch's state and tensors. The C functions (aoti_torch_*) are torch's stable ABI; kernel/native.py locates the
 * rest, and tests it on known tensors, before anything here runs. */
#define _GNU_SOURCE
#include "native.h"

#include <dlfcn.h>

typedef int32_t Status; /* of torch's C functions: 0 is success */

static struct {
    /* torch's types of tensors, and offsets into them */
    PyObject *tensor_type, *parameter_type, *dtype_type, *device_class;
    Py_ssize_t impl, key_set, storage, autograd_meta;
    uint64_t plain_keys, inference_keys;
    /* a thread's included and excluded dispatch keys: the default state, and the keys that change it */
    void *library;
    char tls_symbol[128];
    uint64_t rest[2], inference_included, autograd_excluded, autocast[2];
    /* functions */
    bool (*function_mode)(void), (*has_callbacks)(void), (*grad_mode)(void);
    void *(*global_context)(void);
    bool (*deterministic)(const void *);
    Status (*data_ptr)(void *, void **), (*sizes)(void *, const int64_t **), (*strides)(void *, const int64_t **);
    Status (*dim)(void *, int64_t *), (*numel)(void *, int64_t *), (*offset)(void *, int64_t *);
    Status (*dtype)(void *, int32_t *), (*device_type)(void *, int32_t *), (*device_index)(void *, int32_t *);
    Status (*is_contiguous)(void *, bool *), (*zero)(void *);
    Status (*stream)(int32_t, void **);
    void (*bump_version)(void *);
    Status (*enter_device)(int32_t, void **), (*leave_device)(void *);
    int (*context)(void **), (*enter)(void *), (*leave)(void **);
    int (*launch)(const LaunchConfig *, void *, void **, void **);
    int (*encode)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, int,
                  int, int, int);
    PyObject *allocate, *forward_ad, *level_name, *requires_grad_name, *integer_type;
    PyObject *scope, *enter_scope, *leave_scope, *outside, *in_body, *policy_name, *recorder_name, *operator_name, *fault;
} torch_;

int dotcu_observers = 0;
bool dotcu_replays = true;
PyTypeObject *dotcu_strided_type, *dotcu_extents_type, *dotcu_map_type;

static int masks(PyObject *values, const char *name, uint64_t *into, int limit) {
    PyObject *list = PyDict_GetItemString(values, name);
    Py_ssize_t count = list ? PySequence_Size(list) : 0;
    if (count < 0 || count > limit) return -1;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *item = PySequence_GetItem(list, i);
        into[i] = item ? PyLong_AsUnsignedLongLongMask(item) : 0;
        Py_XDECREF(item);
    }
    return (int)count;
}

static void *address(PyObject *values, const char *name) {
    PyObject *value = PyDict_GetItemString(values, name);
    return value ? PyLong_AsVoidPtr(value) : NULL;
}

static PyObject *object(PyObject *values, const char *name) {
    PyObject *value = PyDict_GetItemString(values, name);
    Py_XINCREF(value);
    return value;
}

/* Sets addresses, offsets and objects by name; see kernel/native.py. Returns -1 with an error set. */
int dotcu_configure(PyObject *values) {
    const struct {
        const char *name;
        void *into;
    } functions[] = {
        {"function_mode", &torch_.function_mode}, {"has_callbacks", &torch_.has_callbacks},
        {"grad_mode", &torch_.grad_mode}, {"global_context", &torch_.global_context},
        {"deterministic", &torch_.deterministic}, {"data_ptr", &torch_.data_ptr}, {"sizes", &torch_.sizes},
        {"strides", &torch_.strides}, {"dim", &torch_.dim}, {"numel", &torch_.numel},
        {"offset", &torch_.offset}, {"dtype", &torch_.dtype}, {"device_type", &torch_.device_type},
        {"device_index", &torch_.device_index}, {"is_contiguous", &torch_.is_contiguous},
        {"zero", &torch_.zero}, {"bump_version", &torch_.bump_version}, {"stream", &torch_.stream},
        {"enter_device", &torch_.enter_device}, {"leave_device", &torch_.leave_device},
        {"context", &torch_.context}, {"enter", &torch_.enter}, {"leave", &torch_.leave},
        {"launch", &torch_.launch}, {"encode", &torch_.encode}, {"library", &torch_.library},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i)
        *(void **)functions[i].into = address(values, functions[i].name);
    torch_.impl = (Py_ssize_t)address(values, "impl");
    torch_.key_set = (Py_ssize_t)address(values, "key_set");
    torch_.storage = (Py_ssize_t)address(values, "storage");
    torch_.autograd_meta = (Py_ssize_t)address(values, "autograd_meta");
    torch_.tensor_type = object(values, "tensor_type");
    torch_.parameter_type = object(values, "parameter_type");
    torch_.dtype_type = object(values, "dtype_type");
    torch_.device_class = object(values, "device_class");
    torch_.allocate = object(values, "allocate");
    torch_.forward_ad = object(values, "forward_ad");
    torch_.integer_type = object(values, "integer_type");
    torch_.scope = object(values, "scope");
    torch_.enter_scope = object(values, "enter_scope");
    torch_.leave_scope = object(values, "leave_scope");
    torch_.fault = object(values, "fault");
    torch_.outside = object(values, "outside");
    torch_.in_body = object(values, "in_body");
    dotcu_strided_type = (PyTypeObject *)object(values, "strided_type");
    dotcu_extents_type = (PyTypeObject *)object(values, "extents_type");
    dotcu_map_type = (PyTypeObject *)object(values, "map_type");
    torch_.level_name = PyUnicode_InternFromString("_current_level");
    torch_.requires_grad_name = PyUnicode_InternFromString("requires_grad");
    torch_.policy_name = PyUnicode_InternFromString("policy");
    torch_.recorder_name = PyUnicode_InternFromString("recorder");
    torch_.operator_name = PyUnicode_InternFromString("operator");
    masks(values, "plain_keys", &torch_.plain_keys, 1);
    masks(values, "inference_keys", &torch_.inference_keys, 1);
    masks(values, "rest", torch_.rest, 2);
    masks(values, "inference_included", &torch_.inference_included, 1);
    masks(values, "autograd_excluded", &torch_.autograd_excluded, 1);
    masks(values, "autocast", torch_.autocast, 2);
    PyObject *symbol = PyDict_GetItemString(values, "tls_symbol");
    PyObject *bytes = symbol ? PyUnicode_AsUTF8String(symbol) : NULL;
    if (bytes) PyOS_snprintf(torch_.tls_symbol, sizeof torch_.tls_symbol, "%s", PyBytes_AsString(bytes));
    Py_XDECREF(bytes);
    return PyErr_Occurred() ? -1 : 0;
}

/* A thread's keys stay at one address for the thread's life, so this is looked up once. */
static uint64_t *dispatch_keys(void) {
    static __thread uint64_t *found;
    if (!found && torch_.library) found = dlsym(torch_.library, torch_.tls_symbol);
    return found;
}

PyObject *dotcu_dispatch_keys(void) {
    const uint64_t *now = dispatch_keys();
    if (!now) Py_RETURN_NONE;
    return Py_BuildValue("KK", (unsigned long long)now[0], (unsigned long long)now[1]);
}

/* Returns what this thread's dispatch keys mean for an operator's call. Modes, functorch transforms and traces
 * include keys and must see the call, as must autocast if the operator has a rule for it. Of the excluded keys
 * only those of autograd matter: below autograd all of them are excluded. */
int dotcu_state(bool autocasts) {
    const uint64_t *now = dispatch_keys();
    if (!now || dotcu_observers) return STATE_WATCHED;
    const uint64_t included = now[0] ^ torch_.rest[0], excluded = now[1] ^ torch_.rest[1];
    const uint64_t without = torch_.inference_included | (autocasts ? 0 : torch_.autocast[0]);
    if (included & ~without || (autocasts && excluded & torch_.autocast[1])) return STATE_WATCHED;
    const uint64_t autograd = excluded & torch_.autograd_excluded;
    if (!autograd) return STATE_RECORDS;
    return autograd == torch_.autograd_excluded ? STATE_BELOW : STATE_WATCHED;
}

/* Excludes autograd's keys on this thread, as torch's guard for kernels below autograd does. Returns those that
 * were excluded before. */
uint64_t dotcu_exclude_autograd(void) {
    uint64_t *now = dispatch_keys();
    const uint64_t before = now[1] & torch_.autograd_excluded;
    now[1] |= torch_.autograd_excluded;
    return before;
}

void dotcu_restore_autograd(uint64_t before) {
    uint64_t *now = dispatch_keys();
    now[1] = (now[1] & ~torch_.autograd_excluded) | before;
}

/* True if no function mode, profiler or deterministic mode must see what a replayed call skips. */
bool dotcu_unobserved(void) {
    return !torch_.function_mode() && !torch_.has_callbacks() && !torch_.deterministic(torch_.global_context());
}

/* Returns the launch policy of the current scope (kernel/scope.py), and sets its operator. */
int dotcu_launch_policy(PyObject **operator) {
    if (!torch_.scope || dotcu_observers || torch_.has_callbacks()) return POLICY_OTHER;
    PyObject *scope = PyObject_CallNoArgs(torch_.scope);
    if (!scope) return POLICY_OTHER;
    int found = POLICY_OTHER;
    if (scope == torch_.outside) {
        if (dotcu_state(false) != STATE_WATCHED) found = POLICY_OUTSIDE;
    } else {
        PyObject *policy = PyObject_GetAttr(scope, torch_.policy_name), *recorder = PyObject_GetAttr(scope, torch_.recorder_name);
        if (policy == torch_.in_body && recorder == Py_None) found = POLICY_BODY;
        Py_XDECREF(policy);
        Py_XDECREF(recorder);
    }
    if (found != POLICY_OTHER) *operator = PyObject_GetAttr(scope, torch_.operator_name);
    Py_DECREF(scope);
    return found != POLICY_OTHER && *operator ? found : POLICY_OTHER;
}

static bool are_ints(PyObject *values) {
    const bool is_tuple = PyTuple_Check(values);
    const Py_ssize_t count = is_tuple ? PyTuple_Size(values) : PyList_Size(values);
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *item = is_tuple ? PyTuple_GetItem(values, i) : PyList_GetItem(values, i);
        int64_t number;
        if (!PyLong_CheckExact(item) || !dotcu_as_int64(item, &number)) return false;
    }
    return true;
}

int dotcu_kind(PyObject *value) {
    PyTypeObject *type = Py_TYPE(value);
    if (type == (PyTypeObject *)torch_.tensor_type || type == (PyTypeObject *)torch_.parameter_type)
        return KIND_TENSOR;
    if (value == Py_None) return KIND_NONE;
    if (type == &PyLong_Type) return KIND_INT;
    if (type == &PyFloat_Type) return KIND_FLOAT;
    if (type == &PyBool_Type) return KIND_BOOL;
    if (type == &PyUnicode_Type) return KIND_STR;
    if (type == (PyTypeObject *)torch_.dtype_type) return KIND_DTYPE;
    if (type == (PyTypeObject *)torch_.device_class) return KIND_DEVICE;
    return (PyTuple_Check(value) || PyList_CheckExact(value)) && are_ints(value) ? KIND_INTS : KIND_OTHER;
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

bool dotcu_grad_enabled(void) { return torch_.grad_mode(); }

static bool dual_level(void) {
    PyObject *level = PyDict_GetItemWithError(torch_.forward_ad, torch_.level_name);
    return !level || PyLong_AsLong(level) >= 0;
}

static bool requires_grad(PyObject *value) {
    PyObject *answer = PyObject_GetAttr(value, torch_.requires_grad_name);
    Py_XDECREF(answer);
    return answer != Py_False;
}

bool dotcu_read_memory(PyObject *value, Tensor *tensor) {
    void *handle = (char *)value + torch_.impl, *data;
    tensor->handle = handle;
    if (torch_.data_ptr(handle, &data) | torch_.sizes(handle, &tensor->sizes) |
        torch_.strides(handle, &tensor->strides) | torch_.dim(handle, &tensor->dim) |
        torch_.numel(handle, &tensor->numel) | torch_.offset(handle, &tensor->offset) |
        torch_.dtype(handle, &tensor->dtype) | torch_.device_type(handle, &tensor->device_type) |
        torch_.device_index(handle, &tensor->device_index))
        return false;
    tensor->address = (int64_t)(intptr_t)data;
    return true;
}

int64_t dotcu_numel(PyObject *value) {
    int64_t count = 1;
    return torch_.numel((char *)value + torch_.impl, &count) ? 1 : count;
}

/* Reads a tensor. Dispatch keys decide, not the type: functorch's wrappers, conj and neg bits, sparse and other
 * layouts are unsupported, and so is every tensor with autograd metadata while a dual level is open. */
int dotcu_read(Argument *argument) {
    const char *impl = *(const char **)((char *)argument->value + torch_.impl);
    if (!impl) return READ_UNSUPPORTED;
    const uint64_t keys = *(const uint64_t *)(impl + torch_.key_set);
    if (keys != torch_.plain_keys && keys != torch_.inference_keys) return READ_UNSUPPORTED;
    const bool known_to_autograd = *(void *const *)(impl + torch_.autograd_meta) != NULL;
    if (known_to_autograd && dual_level()) return READ_UNSUPPORTED;
    if (!dotcu_read_memory(argument->value, &argument->tensor)) return READ_UNSUPPORTED;
    return known_to_autograd && requires_grad(argument->value) ? READ_RECORDED : READ_PLAIN;
}

bool dotcu_is_contiguous(const Tensor *tensor) {
    bool answer = false;
    return !torch_.is_contiguous(tensor->handle, &answer) && answer;
}

bool dotcu_zero(const Tensor *tensor) { return !torch_.zero(tensor->handle); }

/* Returns a driver status: 0, or CUDA_ERROR_UNKNOWN. */
int dotcu_stream(int32_t device_index, void **stream) {
    *stream = NULL;
    return torch_.stream && torch_.stream(device_index, stream) ? UNKNOWN_FAILURE : 0;
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

/* Makes a device torch's current one. Returns a guard for dotcu_leave_device, or NULL on failure. */
void *dotcu_enter_device(int32_t index) {
    void *guard = NULL;
    return torch_.enter_device && !torch_.enter_device(index, &guard) ? guard : NULL;
}

void dotcu_leave_device(void *guard) { torch_.leave_device(guard); }

/* Increments a tensor's version; a tensor of inference mode has none. */
void dotcu_count_write(void *handle) {
    const uint64_t keys = *(const uint64_t *)(*(const char **)handle + torch_.key_set);
    if (keys != torch_.inference_keys) torch_.bump_version(handle);
}

static bool is_plain(PyObject *tensor) {
    const uint64_t keys = *(const uint64_t *)(*(const char **)((char *)tensor + torch_.impl) + torch_.key_set);
    return keys == torch_.plain_keys || keys == torch_.inference_keys;
}

static const void *storage(PyObject *tensor) {
    const char *impl = *(const char **)((char *)tensor + torch_.impl);
    return *(const void *const *)(impl + torch_.storage);
}

/* True if results are plain tensors, and none shares its storage with an argument or another result. */
bool dotcu_new_memory(PyObject *const *results, int count, const Argument *arguments, int argument_count) {
    for (int i = 0; i < count; ++i) {
        if (dotcu_kind(results[i]) != KIND_TENSOR || !is_plain(results[i])) return false;
        for (int j = 0; j < argument_count; ++j)
            if (arguments[j].kind == KIND_TENSOR && storage(results[i]) == storage(arguments[j].value)) return false;
        for (int j = 0; j < i; ++j)
            if (storage(results[i]) == storage(results[j])) return false;
    }
    return true;
}

/* Encodes a tensor map at a multiple of 64 bytes, with sizes and strides, in bytes, from the innermost one on. */
int dotcu_encode(const Map *map, void *at, int64_t address, const uint64_t *sizes, const uint64_t *strides) {
    if (!torch_.encode) return UNKNOWN_FAILURE;
    return torch_.encode(at, map->type, (uint32_t)map->rank, (void *)(intptr_t)address, sizes, strides, map->box,
                         map->element_strides, map->interleave, map->swizzle, map->promotion, map->fill);
}

int dotcu_launch(const LaunchConfig *config, void *function, void **parameters) {
    return torch_.launch(config, function, parameters, NULL);
}

PyObject *dotcu_allocate(PyObject *sizes, PyObject *strides, PyObject *dtype) {
    return PyObject_CallFunctionObjArgs(torch_.allocate, sizes, strides, dtype, NULL);
}

/* The latest launches, for the message of a fault: the launch, its operator, and what a stage leaves open. */
enum { LAST_LAUNCHES = 8 };
static struct {
    PyObject *launched, *operator;
    uint32_t grid[3], smem_bytes;
} last[LAST_LAUNCHES];
static unsigned noted;

void dotcu_note(PyObject *launched, PyObject *operator, const LaunchConfig *config) {
    const unsigned at = noted++ % LAST_LAUNCHES;
    PyObject *before = last[at].launched, *operator_before = last[at].operator;
    Py_INCREF(launched);
    Py_XINCREF(operator);
    last[at].launched = launched;
    last[at].operator = operator;
    for (int axis = 0; axis < 3; ++axis) last[at].grid[axis] = config ? config->grid[axis] : 0;
    last[at].smem_bytes = config ? config->smem_bytes : 0;
    Py_XDECREF(before);
    Py_XDECREF(operator_before);
}

/* Newest first: (launch, operator or None, grid, dynamic shared memory); zeros if the launch has its own. */
PyObject *dotcu_launches(void) {
    PyObject *list = PyList_New(0);
    for (unsigned i = 0; list && i < LAST_LAUNCHES && i < noted; ++i) {
        const unsigned at = (noted - 1 - i) % LAST_LAUNCHES;
        PyObject *row = Py_BuildValue("OO(III)I", last[at].launched, last[at].operator ? last[at].operator : Py_None,
                                      last[at].grid[0], last[at].grid[1], last[at].grid[2], last[at].smem_bytes);
        if (!row || PyList_Append(list, row)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    return list;
}
