// The functions that operators.cu defines and operators.cpp registers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace call_overhead {

// a + b, as an author writes it who wants it safe: checks, a device guard, torch's stream.
at::Tensor add(const at::Tensor& a, const at::Tensor& b);
// The same without checks and without the guard.
at::Tensor add_bare(const at::Tensor& a, const at::Tensor& b);
// The same, and the result is allocated without going through the dispatcher.
at::Tensor add_barest(const at::Tensor& a, const at::Tensor& b);

at::Tensor scale_add(const at::Tensor& a, const at::Tensor& b, double alpha);
// The factor is read from a tensor of one element, for which the host waits.
at::Tensor scale_add_by_tensor(const at::Tensor& a, const at::Tensor& b, const at::Tensor& alpha);
// Eight launches: a + b + ... + b.
at::Tensor add_eight_times(const at::Tensor& a, const at::Tensor& b);
// a + b, into a copy of a.
at::Tensor add_to_clone(const at::Tensor& a, const at::Tensor& b);
at::Tensor weigh(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, int64_t i,
                 int64_t j, int64_t k, int64_t l, double x, double y, double z);

}  // namespace call_overhead
