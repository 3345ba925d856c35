// What the operators that `dotcu build --cpp` writes stand on: exact numbers, and launches through
// the CUDA driver. Needs torch 2.10's stable ABI, and neither CUDA's headers nor its libraries.
#pragma once

#ifndef TORCH_TARGET_VERSION
#define TORCH_TARGET_VERSION (((0ULL + 2) << 56) | ((0ULL + 10) << 48))
#endif

#include <dlfcn.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#ifndef DOTCU_DEVICE
#define DOTCU_DEVICE CUDA
#endif

namespace dotcu {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// ---------------------------------------------------------------- numbers

// Python's integers and floats as far as 64 bits hold them. What they do not hold makes `holds` false.
struct Exact {
    bool holds = true;

    int64_t add(int64_t a, int64_t b) { return kept(!__builtin_add_overflow(a, b, &result)); }
    int64_t sub(int64_t a, int64_t b) { return kept(!__builtin_sub_overflow(a, b, &result)); }
    int64_t mul(int64_t a, int64_t b) { return kept(!__builtin_mul_overflow(a, b, &result)); }
    int64_t neg(int64_t a) { return sub(0, a); }
    int64_t abs(int64_t a) { return a < 0 ? neg(a) : a; }
    int64_t floordiv(int64_t a, int64_t b) {
        if (!kept(b != 0 && !(a == INT64_MIN && b == -1), 1)) return 0;
        return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
    }
    int64_t mod(int64_t a, int64_t b) {
        if (!kept(b != 0, 1) || b == -1) return 0;
        const int64_t rest = a % b;
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }

    double to_float(int64_t a) {
        constexpr int64_t most = int64_t{1} << 53;
        holds = holds && a >= -most && a <= most;
        return static_cast<double>(a);
    }
    double fdiv(double a, double b) {
        holds = holds && b != 0;
        return a / b;
    }
    int64_t whole(double rounded) {
        return kept(rounded >= -0x1p63 && rounded < 0x1p63, 1) ? static_cast<int64_t>(rounded) : 0;
    }

private:
    int64_t result = 0;
    int64_t kept(bool exact) {
        holds = holds && exact;
        return exact ? result : 0;
    }
    int64_t kept(bool exact, int64_t given) {
        holds = holds && exact;
        return exact ? given : 0;
    }
};

inline bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

template <typename Narrow>
inline bool fits(int64_t value) {
    if constexpr (sizeof(Narrow) == 8) return std::is_signed_v<Narrow> || value >= 0;
    else return value >= std::numeric_limits<Narrow>::min() && value <= std::numeric_limits<Narrow>::max();
}
inline bool fits_float(double value) {
    return !std::isfinite(value) || std::isfinite(static_cast<float>(value));
}

// Source of the limits: CUDA Programming Guide, "Technical Specifications per Compute Capability".
inline bool fits_grid(int64_t x, int64_t y, int64_t z) {
    return x >= 0 && x <= INT32_MAX && y >= 0 && y <= 65535 && z >= 0 && z <= 65535;
}

// ---------------------------------------------------------------- the driver

// As cuda.h has them.
struct LaunchAttribute {
    int32_t id, pad;
    union {
        uint32_t cluster[3];
        int32_t flag;
        char bytes[64];
    } value;
};
struct LaunchConfig {
    uint32_t grid[3], block[3], smem_bytes;
    void* stream;
    LaunchAttribute* attributes;
    uint32_t attribute_count;
};
enum { ATTRIBUTE_COOPERATIVE = 2, ATTRIBUTE_CLUSTER = 4, ATTRIBUTE_PROGRAMMATIC = 6 };

// The functions of libcuda.so that are used here.
struct Driver {
    int (*init)(unsigned);
    int (*get_error)(int, const char**);
    int (*get_device)(int*, int);
    int (*get_attribute)(int*, int, int);
    int (*retain)(void**, int);
    int (*get_current)(void**);
    int (*push)(void*);
    int (*pop)(void**);
    int (*load)(void**, const void*);
    int (*get_function)(void**, void*, const char*);
    int (*get_function_attribute)(int*, int, void*);
    int (*set_function_attribute)(void*, int, int);
    int (*launch)(const LaunchConfig*, void*, void**, void**);
    int (*is_capturing)(void*, int*);
    int (*exchange_capture_mode)(int*);

    static const Driver& get() {
        static const Driver driver;
        return driver;
    }
    void require(int status, const char* doing, const char* what) const {
        if (status == 0) return;
        const char* text = nullptr;
        if (get_error(status, &text) != 0 || text == nullptr) text = "an unknown error";
        STD_TORCH_CHECK(false, doing, " ", what, ": the CUDA driver says ", text, " (", status, ").");
    }

private:
    void* library;
    Driver() : library(dlopen("libcuda.so.1", RTLD_NOW)) {
        STD_TORCH_CHECK(library != nullptr, "libcuda.so.1 was not found: is NVIDIA's driver installed?");
        find(init, "cuInit");
        find(get_error, "cuGetErrorString");
        find(get_device, "cuDeviceGet");
        find(get_attribute, "cuDeviceGetAttribute");
        find(retain, "cuDevicePrimaryCtxRetain");
        find(get_current, "cuCtxGetCurrent");
        find(push, "cuCtxPushCurrent_v2");
        find(pop, "cuCtxPopCurrent_v2");
        find(load, "cuModuleLoadData");
        find(get_function, "cuModuleGetFunction");
        find(get_function_attribute, "cuFuncGetAttribute");
        find(set_function_attribute, "cuFuncSetAttribute");
        find(launch, "cuLaunchKernelEx");
        find(is_capturing, "cuStreamIsCapturing");
        find(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
        require(init(0), "Starting", "it");
    }
    template <typename Function>
    void find(Function& into, const char* name) {
        into = reinterpret_cast<Function>(dlsym(library, name));
        STD_TORCH_CHECK(into != nullptr, "libcuda.so.1 has no ", name, ": the driver is older than CUDA 11.8.");
    }
};

// ---------------------------------------------------------------- code

// What code is for: machine code of a compute capability, or PTX of one and later.
struct Target {
    const char* name;
    int major, minor;
    bool machine;
    char suffix;  // 'a': for just this GPU; 'f': for later ones of its major too; ' ' for none
};
// A kernel for one target: the code that it lies in, and its symbol; null where there is none.
struct Variant {
    const char* code;
    const char* symbol;
};
struct Kernel {
    const char* name;
    const Variant* variants;  // one for each target
};

// A GPU, its primary context, and what is loaded there.
class Gpu {
public:
    int major, minor, multiprocessors, most_smem;
    void* context;

    static Gpu& get(int index) {
        static std::mutex lock;
        static std::map<int, Gpu> gpus;
        const std::lock_guard<std::mutex> guard(lock);
        return gpus.try_emplace(index, index).first->second;
    }
    explicit Gpu(int index) {
        const Driver& driver = Driver::get();
        int device;
        driver.require(driver.get_device(&device, index), "Finding", "the GPU");
        driver.require(driver.retain(&context, device), "Opening", "the GPU");
        // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR, MULTIPROCESSOR_COUNT, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        const struct { int* into, attribute; } asked[] = {{&major, 75}, {&minor, 76}, {&multiprocessors, 16}, {&most_smem, 97}};
        for (const auto& one : asked)
            driver.require(driver.get_attribute(one.into, one.attribute, device), "Asking", "the GPU");
    }

    // The index of the best target; -1 where none fits.
    int best(const Target* targets, int count) const {
        int found = -1, highest = -1;
        for (int i = 0; i < count; ++i) {
            const int rank = this->rank(targets[i]);
            if (rank > highest) highest = rank, found = i;
        }
        return found;
    }
    // Loads a kernel at its first use. Needs the context to be current.
    void* function(const Kernel& kernel, int target, void* stream) {
        const std::lock_guard<std::mutex> guard(lock);
        void*& found = functions[{&kernel, target}];
        if (found != nullptr) return found;
        const Driver& driver = Driver::get();
        int capturing = 0;
        driver.require(driver.is_capturing(stream, &capturing), "Asking for the stream of", kernel.name);
        STD_TORCH_CHECK(capturing == 0, kernel.name, " is not loaded yet, and cannot be while a CUDA graph is captured. ",
                        "Call the operator once, with arguments like these, before the capture.");
        const Relaxed relaxed;  // other threads may capture meanwhile
        return found = loaded(kernel, kernel.variants[target]);
    }

private:
    // Lets this thread load code while another captures, as long as this lives.
    struct Relaxed {
        int mode = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
        Relaxed() { Driver::get().exchange_capture_mode(&mode); }
        ~Relaxed() { Driver::get().exchange_capture_mode(&mode); }
    };

    std::mutex lock;
    std::map<const char*, void*> modules;
    std::map<std::pair<const Kernel*, int>, void*> functions;

    int rank(const Target& target) const {
        const int wanted = 10 * target.major + target.minor, here = 10 * major + minor;
        const bool any_major = !target.machine && target.suffix == ' ';
        const bool later = wanted <= here && (target.major == major || any_major);
        if (target.suffix == 'a' ? wanted != here : !later) return -1;
        return (target.machine ? 10000 : 0) + (target.suffix == ' ' ? 0 : 1000) + wanted;
    }
    void* loaded(const Kernel& kernel, const Variant& variant) {
        const Driver& driver = Driver::get();
        void*& module = modules[variant.code];
        if (module == nullptr) driver.require(driver.load(&module, variant.code), "Loading", kernel.name);
        void* function;
        driver.require(driver.get_function(&function, module, variant.symbol), "Finding", kernel.name);
        // CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, MAX_DYNAMIC_SHARED_SIZE_BYTES, NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        int fixed;
        driver.require(driver.get_function_attribute(&fixed, 1, function), "Asking", kernel.name);
        driver.require(driver.set_function_attribute(function, 8, most_smem - fixed), "Preparing", kernel.name);
        if (major >= 9) driver.require(driver.set_function_attribute(function, 14, 1), "Preparing", kernel.name);
        return function;
    }
};

// ---------------------------------------------------------------- a call

// torch's current stream. torch_cuda is in the process already, where there are tensors on a GPU.
inline void* current_stream(int device) {
    using Get = int (*)(int32_t, void**);
    static const Get get = [] {
        void* const library = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
        return reinterpret_cast<Get>(library ? dlsym(library, "aoti_torch_get_current_cuda_stream") : nullptr);
    }();
    if (device < 0) return nullptr;  // the CPU, which tests run on
    STD_TORCH_CHECK(get != nullptr, "libtorch_cuda.so, which has the current stream, is not in this process.");
    void* stream = nullptr;
    STD_TORCH_CHECK(get(device, &stream) == 0, "torch did not return its current stream.");
    return stream;
}

// Memory for the parameters of a launch, each on a boundary of 16 bytes.
template <int bytes>
struct Parameters {
    alignas(16) char data[bytes == 0 ? 1 : bytes];

    Parameters() { std::memset(data, 0, bytes); }
    explicit Parameters(const char* constant) { std::memcpy(data, constant, bytes); }
    template <typename Value>
    void put(int offset, Value value) {
        std::memcpy(data + offset, &value, sizeof value);
    }
    // Memory without elements has no address.
    void put_address(int offset, const Tensor& tensor, int64_t more = 0) {
        if (tensor.numel() > 0) put(offset, reinterpret_cast<int64_t>(tensor.data_ptr()) + more);
    }
};

struct Shape {
    uint32_t block[3], smem_bytes, cluster[3];
    bool cooperative, programmatic;
};

class Call {
public:
    std::vector<Tensor> made;  // what the plan allocates
    std::vector<Tensor> results;  // what the call gives
    int target;

    Call(const char* name, const Target* targets, int count, std::initializer_list<const Tensor*> given)
        : name(name), targets(targets), count(count), tensors(given) {
        const Tensor& first = **given.begin();
        STD_TORCH_CHECK(aoti_torch_get_device_type(first.get(), &device_type) == 0, name, ": no device");
        device = first.get_device_index();
        for (const Tensor* tensor : given)
            STD_TORCH_CHECK(tensor->get_device_index() == device, name, " got tensors of several GPUs.");
        gpu = &Gpu::get(device < 0 ? 0 : device);
        target = gpu->best(targets, count);
        STD_TORCH_CHECK(target >= 0, name, " has no code for a GPU of compute capability ", gpu->major, ".",
                        gpu->minor, "; it has ", names(), ". Build it with this one among its architectures.");
    }
    // One more tensor, which the caller may have left out.
    void take(const Tensor& tensor) {
        STD_TORCH_CHECK(tensor.get_device_index() == device, name, " got tensors of several GPUs.");
        tensors.push_back(&tensor);
    }
    int64_t multiprocessors() const { return gpu->multiprocessors; }
    bool is_for(uint64_t mask) const { return (mask >> target & 1) != 0; }
    // True on a GPU of just the capability that the code is for, as calls that depend on it require.
    bool is_exact() const {
        return targets[target].major == gpu->major && targets[target].minor == gpu->minor;
    }
    static bool is(const Tensor& tensor, ScalarType dtype, int64_t dim, bool contiguous) {
        return tensor.scalar_type() == dtype && tensor.dim() == dim && (!contiguous || tensor.is_contiguous());
    }
    static int64_t address(const Tensor& tensor) { return reinterpret_cast<int64_t>(tensor.data_ptr()); }

    void allocate(ScalarType dtype, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, bool zeroed) {
        AtenTensorHandle handle;
        const int32_t code = torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype));
        STD_TORCH_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(), code,
                                                 device_type, device < 0 ? 0 : device, &handle) == 0,
                        name, ": torch could not allocate its result.");
        made.emplace_back(handle);
        if (zeroed) torch::stable::zero_(made.back());
    }
    // Gives what was made: as it is, or in another layout, whose offset is in elements.
    void give(int number) { results.push_back(made[number]); }
    void give(int number, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int64_t offset) {
        AtenTensorHandle handle;
        STD_TORCH_CHECK(aoti_torch__reinterpret_tensor(made[number].get(), static_cast<int64_t>(sizes.size()), sizes.data(),
                                                       strides.data(), offset, &handle) == 0,
                        name, ": torch could not view its result.");
        results.emplace_back(handle);
    }

    void launch(const Kernel& kernel, const Shape& shape, int64_t x, int64_t y, int64_t z, void** parameters) {
        if (x == 0 || y == 0 || z == 0) return;
        void* const stream = current_stream(device);
        LaunchAttribute attributes[3] = {};
        LaunchConfig config = {{static_cast<uint32_t>(x), static_cast<uint32_t>(y), static_cast<uint32_t>(z)},
                               {shape.block[0], shape.block[1], shape.block[2]},
                               shape.smem_bytes,
                               stream,
                               attributes,
                               0};
        const auto attribute = [&](int32_t id) -> LaunchAttribute& {
            LaunchAttribute& made = attributes[config.attribute_count++];
            made.id = id;
            made.value.flag = 1;
            return made;
        };
        if (shape.cluster[0]) std::memcpy(attribute(ATTRIBUTE_CLUSTER).value.cluster, shape.cluster, sizeof shape.cluster);
        if (shape.cooperative) attribute(ATTRIBUTE_COOPERATIVE);
        if (shape.programmatic) attribute(ATTRIBUTE_PROGRAMMATIC);
        const Current current(gpu->context);
        const Driver& driver = Driver::get();
        driver.require(driver.launch(&config, gpu->function(kernel, target, stream), parameters, nullptr), "Launching", kernel.name);
    }

    // `exactly`: whether some plan needs a GPU that is just what the code is for.
    [[noreturn]] void refuse(const char* planned, bool exactly) const {
        std::string given;
        for (const Tensor* tensor : tensors) {
            given += given.empty() ? "[" : ", [";
            for (int64_t d = 0; d < tensor->dim(); ++d) given += (d ? ", " : "") + std::to_string(tensor->sizes()[d]);
            given += "]";
        }
        STD_TORCH_CHECK(!exactly || is_exact(), name, " has calls in C++ that depend on the occupancy of ",
                        targets[target].name, ", and this GPU has compute capability ", gpu->major, ".", gpu->minor,
                        ". Build it with this one among its architectures.");
        STD_TORCH_CHECK(false, name, " has no code in C++ for this call, with tensors of shapes ", given, " on ",
                        targets[target].name, ". It was recorded for ", planned,
                        ". Add a sample like this call to its @samples, and type again: dotcu build --cpp");
        std::abort();
    }

private:
    // The GPU's context is made current on this thread, for as long as this lives.
    struct Current {
        bool pushed = false;
        explicit Current(void* context) {
            const Driver& driver = Driver::get();
            void* before = nullptr;
            driver.require(driver.get_current(&before), "Asking", "for the current context");
            if (before == context) return;
            driver.require(driver.push(context), "Making", "the GPU's context current");
            pushed = true;
        }
        ~Current() {
            void* popped;
            if (pushed) Driver::get().pop(&popped);
        }
    };

    const char* name;
    const Target* targets;
    int count;
    std::vector<const Tensor*> tensors;
    int32_t device_type = 0, device = 0;
    Gpu* gpu;

    std::string names() const {
        std::string found;
        for (int i = 0; i < count; ++i) found += (i ? ", " : "") + std::string(targets[i].name);
        return found;
    }
};

}  // namespace
}  // namespace dotcu
