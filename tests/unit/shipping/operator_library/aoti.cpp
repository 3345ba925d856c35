// Runs an AOTInductor package whose model is 3 x + 1, by an operator of a library that dotcu has written.
//
//     ./aoti LIBRARY PACKAGE cpu|cuda
//
// Prints the largest error, and whether Python took part.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

int main(int, char** words) {
    if (dlopen(words[1], RTLD_NOW) == nullptr) return std::puts(dlerror()), 1;
    torch::inductor::AOTIModelPackageLoader loader(words[2]);
    const at::Tensor x = at::arange(300, at::device(at::Device(words[3])).dtype(at::kFloat));
    const at::Tensor error = (loader.run({x})[0] - (3 * x + 1)).abs().max();
    std::ifstream maps("/proc/self/maps");
    const std::string loaded{std::istreambuf_iterator<char>(maps), {}};
    const bool python = loaded.find("libpython") != std::string::npos;
    std::printf("error %g, %s\n", error.item<float>(), python ? "with Python" : "without Python");
}
