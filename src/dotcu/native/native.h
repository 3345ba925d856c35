/* dotcu's native part: staged launches, and operator calls that replay recorded calls.
 *
 *     torch.c          torch's state and tensors: may native code handle this call?
 *     recorded_call.c  recorded calls as native data; whether one fits a call
 *     replay.c         the allocations and launches of a recorded call that fits
 *     call_cache.c     CallCache: the recorded calls of one overload; calling the overload
 *     entry.c          Entry: called in place of the function that torch made for an operator; the module
 *     launch.c         Launcher: the staged launches of one kernel
 *
 * Nothing here links to torch or to CUDA: addresses come from Python (kernel/native.py), so one library for
 * the limited API serves every Python, torch and CUDA. Calls that native code cannot handle go to Python,
 * which does the same steps and raises the errors.
 */
#ifndef DOTCU_NATIVE_H
#define DOTCU_NATIVE_H

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

enum { MAX_ARGUMENTS = 64, MAX_DEPTH = 64, MAX_STEPS = 1024, MAX_PARAMETER_BYTES = 4096 };
enum { MAX_PARAMETERS = 256, MAX_ALLOCATIONS = 32, MAX_LAUNCHES = 64, MAX_RANK = 5 };

/* The kinds of value that an argument takes, a set of bits. The same numbers are in call_cache/native.py. */
enum {
    KIND_TENSOR = 1, KIND_NONE = 2, KIND_INT = 4, KIND_FLOAT = 8, KIND_BOOL = 16, KIND_STR = 32, KIND_DTYPE = 64,
    KIND_DEVICE = 128, KIND_INTS = 256, KIND_OTHER = 512
};

/* A tensor, read once per call. */
typedef struct {
    void *handle; /* at::Tensor *, as torch's C functions take it */
    const int64_t *sizes, *strides;
    int64_t numel, offset, address;
    int64_t dim;
    int32_t dtype, device_type, device_index;
} Tensor;

/* An argument of one call: a borrowed reference, its kind, and its metadata if it is a tensor. */
typedef struct {
    PyObject *value;
    int kind;
    Tensor tensor;
} Argument;

typedef union {
    int64_t i;
    double f;
} Value;

/* The layout that call_cache/native.py writes. */
typedef struct {
    int32_t kind, dtype, dim, device_type, device_index;
} Key;
enum { KEY_TENSOR = 0, KEY_INT = 1, KEY_FLOAT = 2, KEY_CONSTANT = 3 };

typedef struct {
    int32_t op, a, b, unused;
    Value value;
} Step;

typedef struct {
    int32_t step, unused;
    int64_t value;
} Guard;

typedef struct {
    int32_t offset, kind, source, step;
} Field;

/* A tensor map: its place and address, numbers of cuda.h, steps, and what never changes. */
typedef struct {
    Field address;
    int32_t type, rank, interleave, swizzle, promotion, fill;
    int32_t sizes[MAX_RANK], strides[MAX_RANK];
    uint32_t box[MAX_RANK], element_strides[MAX_RANK];
} Map;

typedef struct {
    PyObject *dtype;
    int32_t dim, zeroed;
    const int32_t *sizes, *strides;
    PyObject *steps; /* the bytes that `sizes` and `strides` point into */
} Allocation;

/* CUlaunchAttribute, CUlaunchConfig: cuda.h, the same since CUDA 12.0. */
typedef struct {
    int32_t id;
    char pad[4];
    union {
        char bytes[64];
        uint32_t cluster[3];
        int32_t flag;
    } value;
} LaunchAttribute;

typedef struct {
    uint32_t grid[3], block[3], smem_bytes;
    void *stream;
    LaunchAttribute *attributes;
    uint32_t attribute_count;
} LaunchConfig;

/* The part of a launch that every launch of one shape shares. `config` points into it, and lacks grid and stream. */
typedef struct {
    LaunchConfig config;
    LaunchAttribute attributes[3];
    int64_t multiple[3];  /* the grid is a multiple of it, in each dimension */
    uint64_t most_blocks; /* of a cooperative launch; 0: no limit */
} LaunchTemplate;

typedef struct {
    void *function;
    PyObject *parameters, *offsets, *fields, *maps; /* bytes */
    PyObject *note; /* the label under which dotcu_note remembers the launch */
    int32_t parameter_bytes, offset_count, field_count, map_count;
    int32_t grid[3]; /* steps */
    LaunchTemplate template;
} Launch;

typedef struct {
    PyObject *keys, *constants, *steps, *guards, *results; /* bytes, except constants, a tuple */
    int32_t key_count, step_count, guard_count, allocation_count, launch_count, result_count;
    bool single, distinct;
    int32_t references, number; /* a reference count, the cache's own included; the index among those of an overload */
    void *context; /* the CUcontext that launches need, or NULL */
    int32_t device_index;
    Allocation *allocations;
    Launch *launches;
} RecordedCall;

/* torch.c */
enum { NO_DEVICE = -1000, UNKNOWN_FAILURE = 999 }; /* CUDA_ERROR_UNKNOWN */
int dotcu_configure(PyObject *values);
enum { STATE_WATCHED, STATE_RECORDS, STATE_BELOW };
int dotcu_state(bool autocasts);
bool dotcu_unobserved(void);
enum { POLICY_OTHER, POLICY_OUTSIDE, POLICY_BODY };
int dotcu_launch_policy(PyObject **operator);
PyObject *dotcu_enter_scope(PyObject *scope);
void dotcu_leave_scope(PyObject *token);
PyObject *dotcu_explain(PyObject *on_error);
bool dotcu_clear_error(void);
int dotcu_kind(PyObject *value);
bool dotcu_as_int64(PyObject *value, int64_t *into);
enum { READ_PLAIN, READ_RECORDED, READ_UNSUPPORTED };
int dotcu_read(Argument *argument);
bool dotcu_read_memory(PyObject *value, Tensor *tensor);
int64_t dotcu_numel(PyObject *value);
bool dotcu_grad_enabled(void);
bool dotcu_is_contiguous(const Tensor *tensor);
bool dotcu_zero(const Tensor *tensor);
int dotcu_stream(int32_t device_index, void **stream);
bool dotcu_context_is(void *context);
bool dotcu_enter_context(void *context);
void dotcu_leave_context(void);
void *dotcu_enter_device(int32_t index);
void dotcu_leave_device(void *guard);
uint64_t dotcu_exclude_autograd(void);
void dotcu_restore_autograd(uint64_t before);
void dotcu_count_write(void *handle);
bool dotcu_new_memory(PyObject *const *results, int count, const Argument *arguments, int argument_count);
int dotcu_encode(const Map *map, void *at, int64_t address, const uint64_t *sizes, const uint64_t *strides);
int dotcu_launch(const LaunchConfig *config, void *function, void **parameters);
PyObject *dotcu_allocate(PyObject *sizes, PyObject *strides, PyObject *dtype);
void dotcu_note(PyObject *launched, PyObject *operator, const LaunchConfig *config);
PyObject *dotcu_launches(void);
PyObject *dotcu_dispatch_keys(void);
extern int dotcu_observers;
extern bool dotcu_replays;
extern PyTypeObject *dotcu_strided_type, *dotcu_extents_type, *dotcu_map_type;

/* launch.c */
void dotcu_fill_template(LaunchTemplate *into, const unsigned block[3], unsigned smem_bytes, const unsigned cluster[3],
                         int cooperative, int programmatic);
bool dotcu_grid_fits(const LaunchTemplate *template, const int64_t grid[3]);
extern PyType_Spec dotcu_launcher_spec;

/* recorded_call.c */
RecordedCall *dotcu_read_call(PyObject *packed);
void dotcu_release_call(RecordedCall *call);
int dotcu_visit_call(RecordedCall *call, visitproc visit, void *arg);
bool dotcu_fits(const RecordedCall *call, const Argument *arguments, const bool *floats, Value *values);

/* replay.c */
enum { RUN_DONE, RUN_DECLINED, RUN_FAILED, RUN_RAISED };
typedef struct {
    PyObject *result;   /* of RUN_DONE */
    int status, launch; /* of RUN_FAILED: the driver's status, and the index of the launch */
} Outcome;
int dotcu_run(const RecordedCall *call, const Argument *arguments, const Value *values, Outcome *outcome);

/* call_cache.c */
enum { MOST_CALLS = 256, MOST_TRACES = 64, MAX_RESULTS = 32 };
typedef struct {
    PyObject_HEAD
    PyObject *names, *defaults, *dependencies, *scope;
    PyObject *body, *on_scope, *on_trace, *on_check, *on_record, *on_stale, *on_failure, *on_error;
    int scope_index;
    int argument_count, positional_count, returns, call_count, latest;
    int kinds[MAX_ARGUMENTS];
    bool floats[MAX_ARGUMENTS], has_default[MAX_ARGUMENTS], written[MAX_ARGUMENTS];
    bool traces;          /* the body may be traced, to record a call */
    uint8_t attempts[256]; /* traces so far, by the hash of a call's kinds */
    uint32_t refused[256]; /* hashes of calls that cannot be recorded though others of their kinds may be */
    RecordedCall *calls[MOST_CALLS];
} CallCache;
extern PyType_Spec dotcu_call_cache_spec;
enum { BIND_NO, BIND_YES, BIND_MAYBE };
int dotcu_bind(const CallCache *self, PyObject *args, PyObject *kwargs, Argument *arguments);
PyObject *dotcu_call(CallCache *self, Argument *arguments, int state, PyObject *fallback, PyObject *args, PyObject *kwargs);

#endif
