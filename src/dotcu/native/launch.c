/* Launcher: the prepared launches of one kernel. kernel/launch.py has checked and prepared everything that follows
 * from kernel, device, block, cluster and flags, for a range of dynamic shared memory. The rest happens here, in
 * one pass over the arguments. A call that does not fit goes to Python, which launches it or raises the error. */
#include "native.h"

#include <math.h>
#include <string.h>

/* The layout that kernel/launch.py writes. */
typedef struct {
    int32_t kind, offset, size, dtypes[2], alignment, rank, flags;
} Parameter;
enum { POINTER, VIEW, INTEGER, BOOLEAN, FLOATING, MAP, BYTES };
enum { WRITTEN = 1, SIGNED = 2, EITHER = 4, AT_LEAST = 8, AT_MOST = 16 };

typedef struct {
    int64_t block[3], cluster[3]; /* zeros without clusters */
    int cooperative, programmatic, device_index;
} Shape;

/* The part of a launch that every launch of one shape shares. `config` points into it, and lacks grid and stream. */
typedef struct {
    LaunchConfig config;
    LaunchAttribute attributes[3];
    int64_t multiple[3];  /* the grid is a multiple of it, in each dimension */
    uint64_t most_blocks; /* of a cooperative launch; 0: no limit */
} LaunchTemplate;

/* Reference counted: a launch that runs without the GIL points into it. */
typedef struct LaunchPlan {
    Shape shape;
    int64_t least_smem_bytes, most_smem_bytes; /* dynamic; equal for a cooperative launch */
    void *function, *context;
    LaunchTemplate template;
    PyObject *label;
    int references; /* the launcher's included */
    struct LaunchPlan *next;
} LaunchPlan;

/* A tensor map that was encoded: of what tensors, with which values, and what a kernel takes for the one at `address`. */
enum { FORM_COUNT = 7, MAX_MAPS = 32, MAX_MAP_DIMENSIONS = 5, MAP_ALIGNMENT = 16 };
typedef struct {
    int64_t address, sizes[MAX_MAP_DIMENSIONS], strides[MAX_MAP_DIMENSIONS];
    int32_t dtype, dimensions, device_index;
    PyObject *form[FORM_COUNT];
    char bytes[128];
} Map;

enum { MAX_STAGES = 256 }; /* of one kernel; beyond, the least recently used one is dropped */

typedef struct {
    PyObject_HEAD
    PyObject *parameters, *packs, *on_failure, *on_writes;
    int parameter_count, parameter_bytes;
    LaunchPlan *plans; /* the latest first */
    Map maps[MAX_MAPS];
    unsigned next_map;
} Launcher;

/* One launch in preparation. */
typedef struct {
    Launcher *of;
    _Alignas(16) char bytes[MAX_PARAMETER_BYTES];
    PyObject *written[MAX_PARAMETERS]; /* owned */
    int written_count, device_type, device_index;
    bool outside;
} Packed;

enum { NO_DEVICE = -1 };

/* ---------------------------------------------------------------- the configuration */

static bool dimensions(PyObject *value, int64_t *into) {
    into[1] = into[2] = 1;
    const bool is_tuple = PyTuple_CheckExact(value), is_list = PyList_CheckExact(value);
    const Py_ssize_t count = is_tuple ? PyTuple_Size(value) : is_list ? PyList_Size(value) : 0;
    if (!is_tuple && !is_list) return dotcu_as_int64(value, into);
    if (count < 1 || count > 3) return false;
    for (Py_ssize_t i = 0; i < count; ++i)
        if (!dotcu_as_int64(is_tuple ? PyTuple_GetItem(value, i) : PyList_GetItem(value, i), &into[i])) return false;
    return true;
}

static bool read_shape(PyObject *const *given, Shape *shape, int64_t *smem_bytes) {
    memset(shape, 0, sizeof *shape);
    if (!dimensions(given[0], shape->block) || !dotcu_as_int64(given[1], smem_bytes)) return false;
    if (given[2] != Py_None) { /* zeros mean none */
        if (!dimensions(given[2], shape->cluster)) return false;
        if (shape->cluster[0] < 1 || shape->cluster[1] < 1 || shape->cluster[2] < 1) return false;
    }
    if (!PyBool_Check(given[3]) || !PyBool_Check(given[4])) return false;
    shape->cooperative = given[3] == Py_True;
    shape->programmatic = given[4] == Py_True;
    return true;
}

static void release(LaunchPlan *plan) {
    if (--plan->references > 0) return;
    Py_XDECREF(plan->label);
    PyMem_Free(plan);
}

/* Drops the rest of a list of plans. */
static void drop(LaunchPlan **from) {
    LaunchPlan *plan = *from;
    *from = NULL;
    while (plan) {
        LaunchPlan *next = plan->next;
        release(plan);
        plan = next;
    }
}

/* Returns the plan of a shape, moved to the front, or NULL. */
static LaunchPlan *find(Launcher *self, const Shape *shape, int64_t smem_bytes) {
    for (LaunchPlan **at = &self->plans; *at; at = &(*at)->next) {
        LaunchPlan *plan = *at;
        if (memcmp(&plan->shape, shape, sizeof *shape)) continue;
        if (smem_bytes < plan->least_smem_bytes || smem_bytes > plan->most_smem_bytes) continue;
        *at = plan->next;
        plan->next = self->plans;
        self->plans = plan;
        return plan;
    }
    return NULL;
}

/* Source of the limits: CUDA Programming Guide, "Technical Specifications per Compute Capability". */
static bool grid_fits(const LaunchTemplate *template, const int64_t grid[3]) {
    static const int64_t limit[] = {INT32_MAX, 65535, 65535};
    uint64_t blocks = 1;
    for (int axis = 0; axis < 3; ++axis) {
        if (grid[axis] < 0 || grid[axis] > limit[axis] || grid[axis] % template->multiple[axis]) return false;
        blocks *= (uint64_t)grid[axis]; /* 31 + 16 + 16 bits */
    }
    return !template->most_blocks || blocks <= template->most_blocks;
}

/* CUlaunchAttributeID in cuda.h: CLUSTER_DIMENSION, COOPERATIVE, PROGRAMMATIC_STREAM_SERIALIZATION. */
enum { ATTRIBUTE_CLUSTER = 4, ATTRIBUTE_COOPERATIVE = 2, ATTRIBUTE_PROGRAMMATIC = 6 };

/* Fills a template; without clusters, `cluster` is zeros. */
static void fill_template(LaunchTemplate *into, const unsigned block[3], unsigned smem_bytes, const unsigned cluster[3],
                         int cooperative, int programmatic) {
    LaunchAttribute *next = into->attributes;
    for (int axis = 0; axis < 3; ++axis) {
        into->config.block[axis] = block[axis];
        into->multiple[axis] = cluster[axis] ? cluster[axis] : 1;
    }
    if (cluster[0]) {
        next->id = ATTRIBUTE_CLUSTER;
        memcpy((next++)->value.cluster, cluster, 3 * sizeof *cluster);
    }
    if (cooperative) *next++ = (LaunchAttribute){.id = ATTRIBUTE_COOPERATIVE, .value.flag = 1};
    if (programmatic) *next++ = (LaunchAttribute){.id = ATTRIBUTE_PROGRAMMATIC, .value.flag = 1};
    into->config.smem_bytes = smem_bytes;
    into->config.attributes = into->attributes;
    into->config.attribute_count = (uint32_t)(next - into->attributes);
}

/* ---------------------------------------------------------------- arguments */

/* Reads a tensor. False if it is not plain memory on the launch's device, or if a gradient would be lost. */
static bool take_tensor(Packed *packed, PyObject *value, Tensor *tensor) {
    if (!dotcu_look_at_plain(value, tensor) || !dotcu_is_on_gpu(tensor)) return false;
    if (packed->outside && dotcu_requires_grad(value) && dotcu_grad_enabled()) return false;
    if (packed->device_index == NO_DEVICE) {
        packed->device_type = tensor->device_type;
        packed->device_index = tensor->device_index;
    }
    return packed->device_index == tensor->device_index;
}

/* The schema of an operator says what its body writes, so writes are counted for launches outside alone. */
static void note_write(Packed *packed, const Parameter *parameter, const Tensor *tensor) {
    if (!(parameter->flags & WRITTEN) || !packed->outside) return;
    Py_INCREF(tensor->object);
    packed->written[packed->written_count++] = tensor->object;
}

static bool has_dtype(const Parameter *parameter, const Tensor *tensor) {
    return parameter->dtypes[0] < 0 || tensor->dtype == parameter->dtypes[0] || tensor->dtype == parameter->dtypes[1];
}

static bool pack_address(Packed *packed, const Parameter *parameter, const Tensor *tensor) {
    if (!has_dtype(parameter, tensor) || tensor->address % parameter->alignment) return false;
    memcpy(packed->bytes + parameter->offset, &tensor->address, 8);
    note_write(packed, parameter, tensor);
    return true;
}

static bool pack_view(Packed *packed, const Parameter *parameter, PyObject *value) {
    Tensor tensor;
    char *at = packed->bytes + parameter->offset;
    if (value == Py_None) return memset(at, 0, (size_t)parameter->size), true;
    if (!take_tensor(packed, value, &tensor) || !has_dtype(parameter, &tensor) || tensor.dimensions != parameter->rank)
        return false;
    const size_t bytes = 8 * (size_t)tensor.dimensions;
    memcpy(at, &tensor.address, 8);
    memcpy(at + 8, tensor.sizes, bytes);
    memcpy(at + 8 + bytes, tensor.strides, bytes);
    note_write(packed, parameter, &tensor);
    return true;
}

/* A tile kernel assumes that an integer is a multiple of one number, and within the bounds that stand for dtypes. */
static bool is_as_assumed(const Parameter *parameter, int64_t value) {
    if (value % parameter->alignment) return false;
    if (parameter->flags & AT_LEAST && value < parameter->dtypes[0]) return false;
    return !(parameter->flags & AT_MOST && value > parameter->dtypes[1]);
}

static bool integer_fits(const Parameter *parameter, int64_t value) {
    const int bits = 8 * parameter->size;
    const bool is_signed = parameter->flags & SIGNED, either = parameter->flags & EITHER;
    if (bits == 64) return is_signed || either || value >= 0;
    const int64_t low = is_signed || either ? -(INT64_C(1) << (bits - 1)) : 0;
    const int64_t high = INT64_C(1) << (is_signed && !either ? bits - 1 : bits);
    return value >= low && value < high;
}

/* Every host of an NVIDIA GPU is little endian: the low bytes come first. */
static bool pack_integer(Packed *packed, const Parameter *parameter, int64_t value) {
    if (!integer_fits(parameter, value) || !is_as_assumed(parameter, value)) return false;
    memcpy(packed->bytes + parameter->offset, &value, (size_t)parameter->size);
    return true;
}

static bool pack_float(Packed *packed, const Parameter *parameter, PyObject *value) {
    const double number = PyFloat_AsDouble(value);
    if (parameter->size == 8) return memcpy(packed->bytes + parameter->offset, &number, 8), true;
    const float narrow = (float)number;
    if (isfinite(number) && !isfinite(narrow)) return false;
    memcpy(packed->bytes + parameter->offset, &narrow, 4);
    return true;
}

/* Copies what the packer in Python returned; NULL if it raised, since the value does not fit. */
static bool pack_bytes(Packed *packed, const Parameter *parameter, PyObject *bytes) {
    const bool fits = bytes && PyBytes_Check(bytes) && PyBytes_Size(bytes) == parameter->size;
    if (fits) memcpy(packed->bytes + parameter->offset, PyBytes_AsString(bytes), (size_t)parameter->size);
    Py_XDECREF(bytes);
    dotcu_clear_error();
    return fits;
}

/* The values of a map besides its tensor, in the order of Map.form. */
static const char *const FORM[FORM_COUNT] = {"box", "swizzle", "l2_promotion", "fill", "element_strides", "lower_corner",
                                             "upper_corner"};

/* True if a map was encoded with such values, which are then equal. An error counts as a difference. */
static bool has_form(const Map *map, PyObject *const *form) {
    for (int i = 0; i < FORM_COUNT; ++i)
        if (map->form[i] != form[i] && (!map->form[i] || PyObject_RichCompareBool(map->form[i], form[i], Py_EQ) != 1)) return false;
    return true;
}

static bool is_of(const Map *map, const Tensor *tensor) {
    const size_t bytes = sizeof *tensor->sizes * (size_t)tensor->dimensions;
    return map->dtype == tensor->dtype && map->dimensions == tensor->dimensions &&
           map->device_index == tensor->device_index && !memcmp(map->sizes, tensor->sizes, bytes) &&
           !memcmp(map->strides, tensor->strides, bytes);
}

/* Makes a map that of a tensor of the same layout elsewhere. False if Python has to encode one. */
static bool move_map(Map *map, int64_t address) {
    if (map->address == address) return true;
    if (address % MAP_ALIGNMENT || !dotcu_move_map(map->bytes, address)) return false;
    map->address = address;
    return true;
}

static void keep_map(Map *map, const Tensor *tensor, PyObject **form, const char *bytes) {
    const size_t size = sizeof *tensor->sizes * (size_t)tensor->dimensions;
    PyObject *before[FORM_COUNT];
    for (int i = 0; i < FORM_COUNT; ++i) {
        before[i] = map->form[i];
        map->form[i] = form[i];
        Py_INCREF(form[i]);
    }
    map->address = tensor->address;
    map->dtype = tensor->dtype;
    map->dimensions = tensor->dimensions;
    map->device_index = tensor->device_index;
    memcpy(map->sizes, tensor->sizes, size);
    memcpy(map->strides, tensor->strides, size);
    memcpy(map->bytes, bytes, sizeof map->bytes);
    for (int i = 0; i < FORM_COUNT; ++i) Py_XDECREF(before[i]);
}

/* Packs a map of a tensor: as it was encoded before, or as Python encodes it now. */
static bool pack_encoded(Packed *packed, const Parameter *parameter, PyObject *pack, PyObject *value, const Tensor *tensor) {
    Launcher *self = packed->of;
    PyObject *form[FORM_COUNT] = {NULL};
    bool known = tensor->dimensions <= MAX_MAP_DIMENSIONS && parameter->size == sizeof self->maps[0].bytes, fits = false;
    for (int i = 0; known && i < FORM_COUNT; ++i) known = (form[i] = PyObject_GetAttrString(value, FORM[i])) != NULL;
    for (int i = 0; known && !fits && i < MAX_MAPS; ++i) {
        if (!is_of(&self->maps[i], tensor) || !has_form(&self->maps[i], form)) continue;
        if (!move_map(&self->maps[i], tensor->address)) continue;
        memcpy(packed->bytes + parameter->offset, self->maps[i].bytes, sizeof self->maps[i].bytes);
        fits = true;
    }
    PyErr_Clear();
    if (!fits) {
        fits = pack_bytes(packed, parameter, PyObject_CallFunction(pack, "Oi", value, packed->device_index));
        if (fits && known) keep_map(&self->maps[self->next_map++ % MAX_MAPS], tensor, form, packed->bytes + parameter->offset);
    }
    for (int i = 0; i < FORM_COUNT; ++i) Py_XDECREF(form[i]);
    return fits;
}

static bool pack_map(Packed *packed, const Parameter *parameter, PyObject *pack, PyObject *value) {
    Tensor tensor;
    if (Py_TYPE(value) != dotcu_map_type) return pack_bytes(packed, parameter, PyObject_CallFunctionObjArgs(pack, value, NULL));
    PyObject *inner = PyObject_GetAttrString(value, "tensor");
    const bool fits = inner && take_tensor(packed, inner, &tensor) && pack_encoded(packed, parameter, pack, value, &tensor);
    if (fits) note_write(packed, parameter, &tensor);
    Py_XDECREF(inner);
    dotcu_clear_error();
    return fits;
}

/* Packs the pointer and the strides of dotcu.strided(tensor), or the sizes of dotcu.extents(tensor), which is contiguous.
 * Returns the number of parameters; 0 if one does not fit. */
static int pack_wrapped(Packed *packed, const Parameter *parameter, int left, PyObject *value) {
    const bool strided = Py_TYPE(value) == dotcu_strided_type;
    Tensor tensor;
    PyObject *inner = PyObject_GetAttrString(value, "tensor");
    bool fits = inner && take_tensor(packed, inner, &tensor) && tensor.dimensions < left &&
                (strided || dotcu_is_contiguous(&tensor)) && pack_address(packed, parameter, &tensor);
    Py_XDECREF(inner); /* the wrapper keeps it alive */
    PyErr_Clear();
    for (int32_t i = 0; fits && i < tensor.dimensions; ++i)
        fits = parameter[1 + i].kind == INTEGER && pack_integer(packed, &parameter[1 + i], (strided ? tensor.strides : tensor.sizes)[i]);
    return fits ? 1 + (int)tensor.dimensions : 0;
}

static bool pack_pointer(Packed *packed, const Parameter *parameter, PyObject *value) {
    Tensor tensor;
    if (value == Py_None) return memset(packed->bytes + parameter->offset, 0, 8), true;
    return take_tensor(packed, value, &tensor) && dotcu_is_contiguous(&tensor) && pack_address(packed, parameter, &tensor);
}

static bool pack_one(Packed *packed, const Parameter *parameter, PyObject *pack, PyObject *value) {
    int64_t whole;
    switch (parameter->kind) {
    case POINTER: return pack_pointer(packed, parameter, value);
    case VIEW: return pack_view(packed, parameter, value);
    case MAP: return pack_map(packed, parameter, pack, value);
    case INTEGER:
        if (PyLong_CheckExact(value) && dotcu_as_int64(value, &whole)) return pack_integer(packed, parameter, whole);
        break;
    case FLOATING:
        if (PyFloat_CheckExact(value)) return pack_float(packed, parameter, value);
        break;
    case BOOLEAN:
        if (PyBool_Check(value)) return packed->bytes[parameter->offset] = value == Py_True, true;
        break;
    }
    return pack_bytes(packed, parameter, PyObject_CallFunctionObjArgs(pack, value, NULL));
}

static bool pack_all(Packed *packed, PyObject *args) {
    const Launcher *self = packed->of;
    const Parameter *parameters = (const Parameter *)PyBytes_AsString(self->parameters);
    const Py_ssize_t count = PyTuple_Size(args);
    int at = 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *value = PyTuple_GetItem(args, i);
        if (at == self->parameter_count) return false;
        const Parameter *parameter = &parameters[at];
        const bool wrapped = parameter->kind == POINTER &&
                             (Py_TYPE(value) == dotcu_strided_type || Py_TYPE(value) == dotcu_extents_type);
        const int taken = wrapped ? pack_wrapped(packed, parameter, self->parameter_count - at, value)
                                  : pack_one(packed, parameter, PyTuple_GetItem(self->packs, at), value);
        if (!taken) return false;
        at += taken;
    }
    return at == self->parameter_count && packed->device_index != NO_DEVICE;
}

/* ---------------------------------------------------------------- the launch */

/* Runs without the GIL: if the launch queue is full the driver waits for work that may need Python's other threads. */
static int run(const LaunchPlan *plan, LaunchConfig *config, Packed *packed) {
    const Parameter *parameters = (const Parameter *)PyBytes_AsString(packed->of->parameters);
    void *pointers[MAX_PARAMETERS];
    int status = dotcu_stream(packed->device_type, packed->device_index, &config->stream);
    if (status) return status;
    for (int i = 0; i < packed->of->parameter_count; ++i) pointers[i] = packed->bytes + parameters[i].offset;
    PyThreadState *thread = PyEval_SaveThread();
    const bool entered = !dotcu_context_is(plan->context) && dotcu_enter_context(plan->context);
    status = dotcu_launch(config, plan->function, pointers);
    if (entered) dotcu_leave_context();
    PyEval_RestoreThread(thread);
    return status;
}

static PyObject *count_writes(const Launcher *self, const Packed *packed) {
    if (dotcu_count_writes(packed->written, packed->written_count)) Py_RETURN_TRUE;
    if (!dotcu_clear_error()) return NULL;
    PyObject *written = PyList_New(0); /* one of them is of inference mode, and has no version */
    for (int i = 0; written && i < packed->written_count; ++i)
        if (PyList_Append(written, packed->written[i])) Py_CLEAR(written);
    PyObject *done = written ? PyObject_CallFunctionObjArgs(self->on_writes, written, NULL) : NULL;
    Py_XDECREF(written);
    if (!done) return NULL;
    Py_DECREF(done);
    Py_RETURN_TRUE;
}

/* Returns True if it has launched; NULL with an error set if the driver refused. */
static PyObject *launch_with(Launcher *self, LaunchPlan *plan, const int64_t grid[3], int64_t smem_bytes, Packed *packed, PyObject *scope) {
    LaunchConfig config = plan->template.config;
    config.smem_bytes = (uint32_t)smem_bytes;
    for (int axis = 0; axis < 3; ++axis) config.grid[axis] = (uint32_t)grid[axis];
    ++plan->references;
    const int status = run(plan, &config, packed);
    PyObject *result = NULL;
    if (status) {
        result = PyObject_CallFunction(self->on_failure, "O(III)Ii", plan->label, config.grid[0], config.grid[1],
                                       config.grid[2], config.smem_bytes, status);
        Py_CLEAR(result); /* on_failure raises */
    } else {
        dotcu_note(plan->label, scope, &config);
        result = count_writes(self, packed);
    }
    release(plan);
    return result;
}

static PyObject *launch(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Launcher *self = (Launcher *)object;
    Packed packed; /* not cleared: every byte that is read is written first */
    Shape shape;
    int64_t grid[3], smem_bytes;
    if (count != 8) return PyErr_Format(PyExc_TypeError, "launch takes 8 arguments, got %zd", count);
    PyObject *scope = NULL, *result = NULL;
    LaunchPlan *plan = NULL;
    packed.of = self;
    packed.written_count = 0;
    packed.device_index = NO_DEVICE;
    if (self->plans && given[7] == Py_None && dimensions(given[1], grid) && read_shape(given + 2, &shape, &smem_bytes)) {
        const int policy = dotcu_launch_policy(&scope);
        packed.outside = policy == POLICY_OUTSIDE;
        if (policy != POLICY_OTHER && pack_all(&packed, given[0])) {
            shape.device_index = packed.device_index;
            plan = find(self, &shape, smem_bytes);
        }
    }
    if (dotcu_clear_error()) {
        if (!plan || !grid_fits(&plan->template, grid)) {
            result = Py_False;
            Py_INCREF(result);
        } else if (!grid[0] || !grid[1] || !grid[2]) {
            result = Py_True;
            Py_INCREF(result);
        } else {
            result = launch_with(self, plan, grid, smem_bytes, &packed, scope);
        }
    }
    for (int i = 0; i < packed.written_count; ++i) Py_DECREF(packed.written[i]);
    Py_XDECREF(scope);
    return result;
}

/* ---------------------------------------------------------------- Launcher */

static PyObject *add(PyObject *object, PyObject *packed) {
    Launcher *self = (Launcher *)object;
    unsigned long long function, context, most_blocks;
    PyObject *label;
    Shape shape;
    unsigned block[3], cluster[3];
    long long least_smem_bytes, most_smem_bytes, multiple[3];
    int with_programmatic; /* GPUs before sm_90 lack the attribute */
    memset(&shape, 0, sizeof shape);
    if (!PyArg_ParseTuple(packed, "((III)(III)ppi)(LL)KKK(LLL)pO", &block[0], &block[1], &block[2], &cluster[0],
                          &cluster[1], &cluster[2], &shape.cooperative, &shape.programmatic, &shape.device_index,
                          &least_smem_bytes, &most_smem_bytes, &function, &context, &most_blocks, &multiple[0],
                          &multiple[1], &multiple[2], &with_programmatic, &label))
        return NULL;
    LaunchPlan *created = PyMem_Calloc(1, sizeof *created);
    if (!created) return PyErr_NoMemory();
    fill_template(&created->template, block, 0, cluster, shape.cooperative, with_programmatic);
    for (int axis = 0; axis < 3; ++axis) {
        shape.block[axis] = block[axis];
        shape.cluster[axis] = cluster[axis];
        created->template.multiple[axis] = multiple[axis]; /* a kernel may declare its own cluster size */
    }
    created->shape = shape;
    created->least_smem_bytes = least_smem_bytes;
    created->most_smem_bytes = most_smem_bytes;
    created->function = (void *)(uintptr_t)function;
    created->context = (void *)(uintptr_t)context;
    created->template.most_blocks = most_blocks;
    LaunchPlan *before = find(self, &shape, least_smem_bytes);
    if (before) {
        self->plans = before->next;
        release(before);
    }
    created->references = 1;
    Py_INCREF(label);
    created->label = label;
    created->next = self->plans;
    self->plans = created;
    LaunchPlan **last = &self->plans;
    for (int i = 0; i < MAX_STAGES && *last; ++i) last = &(*last)->next;
    drop(last);
    Py_RETURN_NONE;
}

static PyObject *forget(PyObject *object, PyObject *unused) {
    drop(&((Launcher *)object)->plans);
    Py_RETURN_NONE;
}

static int launcher_init(PyObject *object, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"parameters", "packs", "size", "on_failure", "on_writes", NULL};
    Launcher *self = (Launcher *)object;
    PyObject *parameters, *packs, *on_failure, *on_writes;
    int size;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "SO!iOO", names, &parameters, &PyTuple_Type, &packs, &size, &on_failure,
                                     &on_writes))
        return -1;
    const Py_ssize_t count = PyBytes_Size(parameters) / (Py_ssize_t)sizeof(Parameter);
    if (count > MAX_PARAMETERS || size > MAX_PARAMETER_BYTES || PyTuple_Size(packs) != count || self->parameters) {
        PyErr_SetString(PyExc_ValueError, "native code does not take that many parameters");
        return -1;
    }
    Py_INCREF(parameters);
    Py_INCREF(packs);
    Py_INCREF(on_failure);
    Py_INCREF(on_writes);
    self->parameters = parameters;
    self->packs = packs;
    self->on_failure = on_failure;
    self->on_writes = on_writes;
    self->parameter_count = (int)count;
    self->parameter_bytes = size;
    return 0;
}

static int launcher_traverse(PyObject *object, visitproc visit, void *arg) {
    Launcher *self = (Launcher *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->packs);
    Py_VISIT(self->on_failure);
    Py_VISIT(self->on_writes);
    for (LaunchPlan *plan = self->plans; plan; plan = plan->next) Py_VISIT(plan->label);
    return 0;
}

static int launcher_clear(PyObject *object) {
    Launcher *self = (Launcher *)object;
    drop(&self->plans);
    for (int i = 0; i < MAX_MAPS; ++i)
        for (int j = 0; j < FORM_COUNT; ++j) Py_CLEAR(self->maps[i].form[j]);
    return 0;
}

static void launcher_dealloc(PyObject *object) {
    Launcher *self = (Launcher *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    launcher_clear(object);
    Py_XDECREF(self->parameters);
    Py_XDECREF(self->packs);
    Py_XDECREF(self->on_failure);
    Py_XDECREF(self->on_writes);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef launcher_methods[] = {
    {"launch", (PyCFunction)(void (*)(void))launch, METH_FASTCALL,
     "Launch with (arguments, grid, block, smem_bytes, cluster, cooperative, programmatic, device); False if "
     "nothing was done, since no plan fits."},
    {"add", add, METH_VARARGS, "Add a launch plan."},
    {"forget", forget, METH_NOARGS, "Drop all plans."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot launcher_slots[] = {
    {Py_tp_doc, "The launch plans of one kernel."}, {Py_tp_new, PyType_GenericNew}, {Py_tp_init, launcher_init},
    {Py_tp_dealloc, launcher_dealloc}, {Py_tp_traverse, launcher_traverse}, {Py_tp_clear, launcher_clear},
    {Py_tp_methods, launcher_methods}, {0, NULL},
};
PyType_Spec dotcu_launcher_spec = {"dotcu._native.Launcher", sizeof(Launcher), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, launcher_slots};
