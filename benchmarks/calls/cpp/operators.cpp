// The C++ contenders' registrations: TORCH_LIBRARY, its autograd, and pybind11.
#include "operators.h"

#include <torch/extension.h>
#include <torch/library.h>

namespace {

// The pattern of PyTorch's C++ operator tutorial: below autograd, the dispatcher is asked again.
class Add : public torch::autograd::Function<Add> {
  public:
    static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& a,
                              const at::Tensor& b) {
        const at::AutoDispatchBelowADInplaceOrView below;
        static const auto op = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow("call_overhead_cpp::add_autograd", "")
                                   .typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
        return op.call(a, b);
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   const torch::autograd::variable_list& grads) {
        return {grads[0], grads[0]};
    }
};

at::Tensor add_autograd(const at::Tensor& a, const at::Tensor& b) { return Add::apply(a, b); }

}  // namespace

TORCH_LIBRARY(call_overhead_cpp, m) {
    m.def("add(Tensor a, Tensor b) -> Tensor");
    m.def("add_bare(Tensor a, Tensor b) -> Tensor");
    m.def("add_barest(Tensor a, Tensor b) -> Tensor");
    m.def("add_autograd(Tensor a, Tensor b) -> Tensor");
    m.def("add_eight_times(Tensor a, Tensor b) -> Tensor");
    m.def("add_to_clone(Tensor a, Tensor b) -> Tensor");
    m.def("scale_add(Tensor a, Tensor b, float alpha) -> Tensor");
    m.def("scale_add_by_tensor(Tensor a, Tensor b, Tensor alpha) -> Tensor");
    m.def(
        "weigh(Tensor a, Tensor b, Tensor c, int i, int j, int k, int l, float x, float y, "
        "float z) -> Tensor");
}

TORCH_LIBRARY_IMPL(call_overhead_cpp, CUDA, m) {
    m.impl("add", &call_overhead::add);
    m.impl("add_bare", &call_overhead::add_bare);
    m.impl("add_barest", &call_overhead::add_barest);
    m.impl("add_autograd", &call_overhead::add);
    m.impl("add_eight_times", &call_overhead::add_eight_times);
    m.impl("add_to_clone", &call_overhead::add_to_clone);
    m.impl("scale_add", &call_overhead::scale_add);
    m.impl("scale_add_by_tensor", &call_overhead::scale_add_by_tensor);
    m.impl("weigh", &call_overhead::weigh);
}

TORCH_LIBRARY_IMPL(call_overhead_cpp, Autograd, m) { m.impl("add_autograd", &add_autograd); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("add", &call_overhead::add); }
