/* dotcu's native part: launches and calls of operators without Python in between.
 *
 *     tensor.c    what a tensor says of itself by DLPack; who watches this thread; the latest launches
 *     launch.c    Launcher: the prepared launches of one kernel
 *     operator.c  Operator: the calls of one operator that need nothing but its body
 *     module.c    the module; Choice: what a function chose, by layout
 *
 * Nothing here links to torch or to CUDA, and nothing reads an object of either but by a documented interface:
 * tensors by the C exchange API of DLPack, the driver by the functions of cuda.h. kernel/native.py passes both. What
 * native code cannot decide goes to Python, which does the same steps and raises the errors.
 */
#ifndef DOTCU_NATIVE_H
#define DOTCU_NATIVE_H

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030A0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

enum { MAX_ARGUMENTS = 64, MAX_DIMENSIONS = 64, MAX_PARAMETERS = 256, MAX_PARAMETER_BYTES = 4096 };

/* A tensor as DLPack describes it. The pointers are the tensor's own: they hold while it lives and the GIL is held. */
typedef struct {
    PyObject *object; /* borrowed */
    const int64_t *sizes, *strides;
    int64_t address;
    int32_t dimensions, dtype; /* code, bits and lanes of a DLDataType, in its three lowest bytes */
    int32_t device_type, device_index;
} Tensor;

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

/* tensor.c */
int dotcu_configure(PyObject *values);
bool dotcu_is_tensor(PyObject *value);
bool dotcu_look(PyObject *value, Tensor *tensor);
bool dotcu_look_at_plain(PyObject *value, Tensor *tensor);
bool dotcu_is_contiguous(const Tensor *tensor);
bool dotcu_extent(const Tensor *tensor, int64_t *end);
bool dotcu_is_on_gpu(const Tensor *tensor);
int dotcu_requires_grad(PyObject *tensor);
bool dotcu_grad_enabled(void);
bool dotcu_count_writes(PyObject *const *tensors, int count);
bool dotcu_as_int64(PyObject *value, int64_t *into);
bool dotcu_clear_error(void);
PyObject *dotcu_explain(PyObject *on_error);
enum { BY_LAUNCH, BY_AUTOGRAD, BY_CALL, BY_COMPUTE };
bool dotcu_unwatched(int by);
enum { POLICY_OTHER, POLICY_OUTSIDE, POLICY_BODY };
int dotcu_launch_policy(PyObject **scope);
PyObject *dotcu_enter_scope(PyObject *scope);
PyObject *dotcu_enter_body(PyObject *scope);
bool dotcu_is_in_body(void);
void dotcu_leave_scope(PyObject *token);
int dotcu_stream(int32_t device_type, int32_t device_index, void **stream);
bool dotcu_context_is(void *context);
bool dotcu_enter_context(void *context);
void dotcu_leave_context(void);
bool dotcu_move_map(char *map, int64_t address);
int dotcu_launch(const LaunchConfig *config, void *function, void **parameters);
void dotcu_note(PyObject *launched, PyObject *scope, const LaunchConfig *config);
PyObject *dotcu_launches(void);
extern int dotcu_observers;
extern PyTypeObject *dotcu_strided_type, *dotcu_extents_type, *dotcu_map_type, *dotcu_dtype_type, *dotcu_device_class;

/* launch.c, operator.c */
extern PyType_Spec dotcu_launcher_spec, dotcu_operator_spec;

#endif
