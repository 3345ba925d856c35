/* What torch is asked for. Its C functions (aoti_torch_*) are the ABI that torch keeps stable; the
 * rest is found, and tried on known tensors, by replay/layout.py before anything here runs. */
#define _GNU_SOURCE
#include "native.h"

#include <dlfcn.h>

typedef int32_t Status; /* of torch's C functions: 0 is success */

static struct {
    /* torch's types of tensors, and where what stands in them */
    PyObject *tensor_type, *parameter_type;
    Py_ssize_t impl, key_set, autograd_meta;
    uint64_t plain_keys[8];
    int plain_key_count;
    /* the state of a thread: included and excluded dispatch keys */
    void *library;
    char tls_symbol[128];
    uint64_t calm_words[8][2];
    int calm_count;
    uint64_t autocast_words[2];
    /* functions */
    bool (*function_mode)(void), (*has_callbacks)(void), (*grad_mode)(void);
    void *(*global_context)(void);
    bool (*deterministic)(const void *);
    Status (*data_ptr)(void *, void **), (*sizes)(void *, const int64_t **), (*strides)(void *, const int64_t **);
    Status (*dim)(void *, int64_t *), (*numel)(void *, int64_t *), (*offset)(void *, int64_t *);
    Status (*dtype)(void *, int32_t *), (*device_type)(void *, int32_t *), (*device_index)(void *, int32_t *);
    Status (*is_contiguous)(void *, bool *), (*zero)(void *);
    Status (*stream)(int32_t, void **);
    int (*context)(void **), (*launch)(const LaunchConfig *, void *, void **, void **);
    PyObject *allocate, *note, *forward_ad, *level_name, *requires_grad_name;
} torch_;

int dotcu_held = 0;

static int words(PyObject *values, const char *name, uint64_t *into, int most) {
    PyObject *list = PyDict_GetItemString(values, name);
    Py_ssize_t count = list ? PySequence_Size(list) : 0;
    if (count < 0 || count > most) return -1;
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

/* Takes addresses, offsets and objects by name; see Layout in replay/layout.py. Gives -1 with an error set. */
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
        {"zero", &torch_.zero}, {"stream", &torch_.stream}, {"context", &torch_.context},
        {"launch", &torch_.launch}, {"library", &torch_.library},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i)
        *(void **)functions[i].into = address(values, functions[i].name);
    torch_.impl = (Py_ssize_t)address(values, "impl");
    torch_.key_set = (Py_ssize_t)address(values, "key_set");
    torch_.autograd_meta = (Py_ssize_t)address(values, "autograd_meta");
    torch_.tensor_type = object(values, "tensor_type");
    torch_.parameter_type = object(values, "parameter_type");
    torch_.allocate = object(values, "allocate");
    torch_.note = object(values, "note");
    torch_.forward_ad = object(values, "forward_ad");
    torch_.level_name = PyUnicode_InternFromString("_current_level");
    torch_.requires_grad_name = PyUnicode_InternFromString("requires_grad");
    torch_.plain_key_count = words(values, "plain_keys", torch_.plain_keys, 8);
    torch_.calm_count = words(values, "calm_words", torch_.calm_words[0], 16) / 2;
    words(values, "autocast_words", torch_.autocast_words, 2);
    PyObject *symbol = PyDict_GetItemString(values, "tls_symbol");
    PyObject *bytes = symbol ? PyUnicode_AsUTF8String(symbol) : NULL;
    if (bytes) PyOS_snprintf(torch_.tls_symbol, sizeof torch_.tls_symbol, "%s", PyBytes_AsString(bytes));
    Py_XDECREF(bytes);
    return PyErr_Occurred() ? -1 : 0;
}

/* A thread's own copy stays where it is for the thread's life, so it is looked up once. */
static const uint64_t *tls_words(void) {
    static __thread const uint64_t *found;
    if (!found && torch_.library) found = dlsym(torch_.library, torch_.tls_symbol);
    return found;
}

PyObject *dotcu_tls_words(void) {
    const uint64_t *now = tls_words();
    if (!now) Py_RETURN_NONE;
    return Py_BuildValue("KK", (unsigned long long)now[0], (unsigned long long)now[1]);
}

/* Whether nothing watches or transforms this thread's calls: no mode, functorch transform, trace,
 * profiler or deterministic mode; and autocast only where the operator has no rule for it. */
bool dotcu_calm(bool autocasts) {
    const uint64_t *now = tls_words();
    if (!now || dotcu_held) return false;
    const uint64_t included = autocasts ? 0 : torch_.autocast_words[0];
    const uint64_t excluded = autocasts ? 0 : torch_.autocast_words[1];
    bool known = false;
    for (int i = 0; i < torch_.calm_count && !known; ++i)
        known = !(((now[0] ^ torch_.calm_words[i][0]) & ~included) | ((now[1] ^ torch_.calm_words[i][1]) & ~excluded));
    return known && !torch_.function_mode() && !torch_.has_callbacks() &&
           !torch_.deterministic(torch_.global_context());
}

int dotcu_kind(PyObject *value) {
    PyTypeObject *type = Py_TYPE(value);
    if (type == (PyTypeObject *)torch_.tensor_type || type == (PyTypeObject *)torch_.parameter_type)
        return KIND_TENSOR;
    if (value == Py_None) return KIND_NONE;
    if (type == &PyLong_Type) return KIND_INT;
    if (type == &PyFloat_Type) return KIND_FLOAT;
    return type == &PyBool_Type ? KIND_BOOL : KIND_OTHER;
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

/* Reads a tensor by its dispatch keys, not by its type: those of functorch's wrappers, conj and neg
 * bits, sparse and other layouts are strange, and so is every tensor that autograd knows while a dual
 * level is open. */
int dotcu_read(Argument *argument) {
    const char *impl = *(const char **)((char *)argument->value + torch_.impl);
    if (!impl) return READ_STRANGE;
    const uint64_t keys = *(const uint64_t *)(impl + torch_.key_set);
    bool plain = false;
    for (int i = 0; i < torch_.plain_key_count && !plain; ++i) plain = keys == torch_.plain_keys[i];
    if (!plain) return READ_STRANGE;
    const bool known_to_autograd = *(void *const *)(impl + torch_.autograd_meta) != NULL;
    if (known_to_autograd && dual_level()) return READ_STRANGE;
    if (!dotcu_read_memory(argument->value, &argument->tensor)) return READ_STRANGE;
    return known_to_autograd && requires_grad(argument->value) ? READ_RECORDED : READ_PLAIN;
}

bool dotcu_is_contiguous(const Tensor *tensor) {
    bool answer = false;
    return !torch_.is_contiguous(tensor->handle, &answer) && answer;
}

bool dotcu_zero(const Tensor *tensor) { return !torch_.zero(tensor->handle); }

void *dotcu_stream(int32_t device_index) {
    void *stream = NULL;
    if (torch_.stream) torch_.stream(device_index, &stream);
    return stream;
}

bool dotcu_context_is(void *context) {
    void *now = NULL;
    return !torch_.context || (!torch_.context(&now) && now == context);
}

int dotcu_launch(const LaunchConfig *config, void *function, void **parameters) {
    return torch_.launch(config, function, parameters, NULL);
}

PyObject *dotcu_allocate(PyObject *sizes, PyObject *strides, PyObject *dtype) {
    return PyObject_CallFunctionObjArgs(torch_.allocate, sizes, strides, dtype, NULL);
}

/* Keeps a launch among the last ones, which a fault names. */
bool dotcu_note(PyObject *launched) {
    PyObject *done = PyObject_CallFunctionObjArgs(torch_.note, launched, NULL);
    Py_XDECREF(done);
    return done != NULL;
}
