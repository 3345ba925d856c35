// Calls a kernel that `dotcu build --cubins kernels` has compiled, through the CUDA driver alone.
//
//     c++ -std=c++17 main.cpp -lcuda -o main && ./main kernels

#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

// Ends the program where the driver returns an error; says which, and of what.
static void require(CUresult status, const char* what) {
    if (status == CUDA_SUCCESS) return;
    const char* text = nullptr;
    cuGetErrorString(status, &text);
    std::fprintf(stderr, "%s: %s\n", what, text ? text : "unknown error");
    std::exit(1);
}

// A line of manifest.tsv.
struct Entry {
    std::string kernel, target, file, symbol;
};

static std::vector<Entry> read_manifest(const std::string& folder) {
    std::ifstream in(folder + "/manifest.tsv");
    std::vector<Entry> entries;
    std::string line, digest;
    std::getline(in, line);  // the names of the columns
    while (std::getline(in, line)) {
        std::istringstream words(line);
        Entry e;
        std::getline(words, e.kernel, '\t');
        std::getline(words, e.target, '\t');
        std::getline(words, e.file, '\t');
        std::getline(words, e.symbol, '\t');
        entries.push_back(e);
    }
    return entries;
}

// How well code suits a GPU: not at all (-1), as PTX that the driver compiles, or as machine code,
// which runs on its own architecture and on later ones of the same major. Targets that end in a
// letter are for one GPU, or a family, and are left out here.
static int rank(const std::string& target, int major, int minor) {
    const std::size_t at = target.find('_') + 1;
    if (target.find_first_not_of("0123456789", at) != std::string::npos) return -1;
    const int number = std::stoi(target.substr(at)), gpu = 10 * major + minor;
    if (target[0] == 's') return number / 10 == major && number <= gpu ? 1000 + number : -1;
    return number <= gpu ? number : -1;
}

int main(int count, char** arguments) {
    const std::string folder = count > 1 ? arguments[1] : "kernels", name = "saxpy<float>";
    CUdevice device;
    CUcontext context;
    int major, minor;
    require(cuInit(0), "cuInit");
    require(cuDeviceGet(&device, 0), "cuDeviceGet");
    require(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "major");
    require(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), "minor");
    require(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    require(cuCtxSetCurrent(context), "cuCtxSetCurrent");

    Entry best;
    int highest = -1;
    for (const Entry& e : read_manifest(folder)) {
        const int fits = e.kernel == name ? rank(e.target, major, minor) : -1;
        if (fits > highest) highest = fits, best = e;
    }
    if (highest < 0) {
        std::fprintf(stderr, "%s has no %s for compute capability %d.%d\n", folder.c_str(), name.c_str(),
                     major, minor);
        return 1;
    }

    CUlibrary library;
    CUkernel kernel;
    const std::string file = folder + "/" + best.file;
    require(cuLibraryLoadFromFile(&library, file.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
            file.c_str());
    require(cuLibraryGetKernel(&kernel, library, best.symbol.c_str()), best.symbol.c_str());

    long long n = 1000;
    float a = 2;
    std::vector<float> x(n), y(n, 1), result(n);
    for (long long i = 0; i < n; ++i) x[i] = static_cast<float>(i);
    CUdeviceptr on_gpu_x, on_gpu_y;
    require(cuMemAlloc(&on_gpu_x, n * sizeof(float)), "cuMemAlloc");
    require(cuMemAlloc(&on_gpu_y, n * sizeof(float)), "cuMemAlloc");
    require(cuMemcpyHtoD(on_gpu_x, x.data(), n * sizeof(float)), "cuMemcpyHtoD");
    require(cuMemcpyHtoD(on_gpu_y, y.data(), n * sizeof(float)), "cuMemcpyHtoD");

    void* parameters[] = {&a, &on_gpu_x, &on_gpu_y, &n};
    const unsigned blocks = static_cast<unsigned>((n + 255) / 256);
    require(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), blocks, 1, 1, 256, 1, 1, 0, nullptr,
                           parameters, nullptr),
            "cuLaunchKernel");
    require(cuMemcpyDtoH(result.data(), on_gpu_y, n * sizeof(float)), "cuMemcpyDtoH");

    long long wrong = 0;
    for (long long i = 0; i < n; ++i) wrong += result[i] != 2.0f * static_cast<float>(i) + 1.0f;
    std::printf("%s for %s: %lld of %lld values are wrong\n", name.c_str(), best.target.c_str(), wrong, n);
    cuMemFree(on_gpu_x);
    cuMemFree(on_gpu_y);
    cuLibraryUnload(library);
    cuDevicePrimaryCtxRelease(device);
    return wrong != 0;
}
