// Compiled by NVRTC, with dotcu's stand-ins, and by nvcc, with the host's own headers: what holds
// for both is what the stand-ins promise.

#include <assert.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <device_launch_parameters.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <algorithm>
#include <array>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

// <cstdint>, <climits>
static_assert(sizeof(int8_t) == 1 && sizeof(uint16_t) == 2 && sizeof(std::int32_t) == 4);
static_assert(sizeof(int64_t) == 8 && sizeof(std::uint64_t) == 8 &&
              sizeof(uintptr_t) == sizeof(void*));
static_assert(int64_t(-1) < 0 && uint64_t(-1) > 0);
static_assert(sizeof(int_least16_t) == 2 && sizeof(std::uint_fast8_t) == 1 &&
              uint_fast64_t(-1) > 0);
static_assert(INT64_C(1) << 62 == 4611686018427387904 && UINT64_C(-1) == UINT64_MAX &&
              INT8_C(-1) < 0);
static_assert(INT_LEAST16_MAX == 32767 && UINT_FAST8_MAX == 255 && UINTMAX_C(7) == 7);
static_assert(INTMAX_MAX == INT64_MAX && sizeof(ssize_t) == 8 && ssize_t(-1) < 0);
static_assert(INT8_MIN == -128 && INT8_MAX == 127 && UINT8_MAX == 255);
static_assert(INT16_MIN == -32768 && INT16_MAX == 32767 && UINT16_MAX == 65535);
static_assert(INT32_MIN == -2147483647 - 1 && INT32_MAX == 2147483647 && UINT32_MAX == 4294967295u);
static_assert(INT64_MIN == -9223372036854775807 - 1 && INT64_MAX == 9223372036854775807);
static_assert(UINT64_MAX == 18446744073709551615u && SIZE_MAX == UINT64_MAX &&
              PTRDIFF_MAX == INT64_MAX);
static_assert(CHAR_BIT == 8 && SCHAR_MIN == -128 && UCHAR_MAX == 255 && SHRT_MAX == 32767);
static_assert(INT_MIN == -2147483647 - 1 && UINT_MAX == 4294967295u && USHRT_MAX == 65535);
static_assert(LONG_MAX == 9223372036854775807 && ULONG_MAX == 18446744073709551615u);
static_assert(LLONG_MIN == -9223372036854775807 - 1 && ULLONG_MAX == 18446744073709551615u);
static_assert(CHAR_MIN == (char(-1) < 0 ? -128 : 0) && CHAR_MAX == (char(-1) < 0 ? 127 : 255));

// <cfloat>
static_assert(FLT_MAX == 3.402823466385288598e+38f && FLT_MIN == 1.175494350822287508e-38f);
static_assert(FLT_EPSILON == 1.1920928955078125e-07f && FLT_MANT_DIG == 24 && FLT_DIG == 6);
static_assert(FLT_TRUE_MIN == 1.401298464324817071e-45f && FLT_RADIX == 2);
static_assert(FLT_MAX_EXP == 128 && FLT_MIN_EXP == -125 && FLT_MAX_10_EXP == 38 &&
              FLT_MIN_10_EXP == -37);
static_assert(DBL_MAX == 1.79769313486231570815e+308 && DBL_MIN == 2.22507385850720138309e-308);
static_assert(DBL_EPSILON == 2.22044604925031308085e-16 && DBL_MANT_DIG == 53 && DBL_DIG == 15);
static_assert(DBL_TRUE_MIN == 4.94065645841246544177e-324);
static_assert(DBL_MAX_EXP == 1024 && DBL_MIN_EXP == -1021 && DBL_MAX_10_EXP == 308);

// <cmath>
static_assert(M_PI > 3.1415926535897931 - 1e-15 && M_PI < 3.1415926535897931 + 1e-15);
static_assert(M_PI == 4 * M_PI_4 && M_SQRT2 == 2 * M_SQRT1_2 && M_2_PI == 2 * M_1_PI);
static_assert(std::is_same<decltype(INFINITY), float>::value &&
              std::is_same_v<decltype(HUGE_VAL), double>);
static_assert(std::is_same_v<decltype(std::fmaxf(1.0f, std::truncf(2.5f))), float>);

// <cstddef>
struct Pair {
    char first;
    double second;
};
static_assert(std::is_same_v<std::size_t, size_t> &&
              std::is_same_v<std::nullptr_t, decltype(nullptr)>);
static_assert(sizeof(std::ptrdiff_t) == 8);

// <cuda.h>
static_assert(sizeof(CUtensorMap) == 128 && alignof(CUtensorMap) >= 64);
static_assert(sizeof(CUtexObject) == 8 && sizeof(CUdeviceptr) == 8 && CUDA_VERSION >= 12000);

// <limits>
using Float = std::numeric_limits<float>;
using Double = std::numeric_limits<double>;
static_assert(Float::max() == FLT_MAX && Float::lowest() == -FLT_MAX && Float::min() == FLT_MIN);
static_assert(Float::infinity() > FLT_MAX && Double::infinity() > DBL_MAX && Float::has_infinity);
static_assert(Float::quiet_NaN() != Float::quiet_NaN() &&
              Double::quiet_NaN() != Double::quiet_NaN());
static_assert(Float::epsilon() == FLT_EPSILON && Double::epsilon() == DBL_EPSILON);
static_assert(Float::denorm_min() == FLT_TRUE_MIN && Double::denorm_min() == DBL_TRUE_MIN);
static_assert(Float::digits == 24 && Double::digits == 53 && Double::digits10 == 15 &&
              Float::radix == 2);
static_assert(Float::is_specialized && Float::is_signed && !Float::is_integer && Float::is_iec559);
static_assert(std::numeric_limits<int>::lowest() == INT_MIN &&
              std::numeric_limits<int>::digits == 31);
static_assert(std::numeric_limits<int64_t>::max() == INT64_MAX && std::numeric_limits<bool>::max());
static_assert(std::numeric_limits<uint8_t>::max() == 255 &&
              std::numeric_limits<uint8_t>::min() == 0);
static_assert(std::numeric_limits<unsigned>::is_integer &&
              !std::numeric_limits<unsigned>::is_signed);
static_assert(std::numeric_limits<short>::is_signed && std::numeric_limits<short>::digits10 == 4);
static_assert(std::numeric_limits<const int>::max() == INT_MAX &&
              std::numeric_limits<long>::digits == 63);
static_assert(std::numeric_limits<signed char>::digits10 == 2 &&
              std::numeric_limits<long long>::digits10 == 18);
static_assert(std::numeric_limits<unsigned long long>::digits10 == 19);
static_assert(!std::numeric_limits<Pair>::is_specialized);

// <type_traits>
enum class Color : short { red };
struct Base {};
struct Derived : Base {};
static_assert(std::is_same_v<std::conditional_t<true, int, float>, int> &&
              !std::is_same_v<int, const int>);
static_assert(std::is_same_v<std::enable_if_t<true, int>, int> &&
              std::is_same_v<std::void_t<int>, void>);
static_assert(std::is_same_v<std::remove_cv_t<const volatile int>, int>);
static_assert(std::is_same_v<std::remove_reference_t<int&&>, int>);
static_assert(std::is_same_v<std::remove_pointer_t<int* const>, int>);
static_assert(std::is_same_v<std::remove_const_t<const int*>, const int*>);
static_assert(std::is_same_v<std::remove_extent_t<int[3]>, int>);
static_assert(std::is_same_v<std::decay_t<const int&>, int> &&
              std::is_same_v<std::decay_t<int[3]>, int*>);
static_assert(std::is_same_v<std::underlying_type_t<Color>, short>);
static_assert(std::is_same_v<std::make_unsigned_t<int>, unsigned> &&
              sizeof(std::make_signed_t<uint64_t>) == 8);
static_assert(std::is_same_v<std::make_signed_t<char>, signed char>);
static_assert(std::is_integral_v<char> && std::is_integral_v<const bool> &&
              !std::is_integral_v<float>);
static_assert(std::is_floating_point_v<const double> && std::is_arithmetic_v<int> &&
              !std::is_arithmetic_v<int*>);
static_assert(std::is_signed_v<float> && std::is_signed_v<signed char> && !std::is_signed_v<bool>);
static_assert(std::is_unsigned_v<bool> && !std::is_unsigned_v<float> && !std::is_signed_v<Base>);
static_assert(std::is_pointer_v<int* const> && !std::is_pointer_v<int> &&
              std::is_void_v<const void>);
static_assert(std::is_const_v<const int> && !std::is_const_v<const int*> &&
              std::is_reference_v<int&>);
static_assert(std::is_enum_v<Color> && std::is_class_v<Pair> && !std::is_union_v<Pair> &&
              std::is_empty_v<Base>);
static_assert(std::is_base_of_v<Base, Derived> && !std::is_base_of_v<Derived, Base>);
static_assert(std::is_convertible_v<int, float> && !std::is_convertible_v<Pair, int>);
static_assert(std::is_trivially_copyable_v<Pair> && std::true_type::value && !std::false_type());
static_assert(std::integral_constant<int, 3>::value == 3 && std::bool_constant<true>());

static_assert(std::is_same_v<std::add_pointer_t<int&>, int*> && std::is_array_v<int[2]>);
static_assert(std::is_same_v<std::common_type_t<int, float>, float> && std::rank_v<int[2][3]> == 2);
static_assert(std::is_same_v<std::remove_all_extents_t<int[2][3]>, int> &&
              std::extent_v<int[2][3], 1> == 3);
static_assert(std::is_lvalue_reference_v<int&> && std::is_rvalue_reference_v<int&&>);
static_assert(std::is_function_v<int(float)> && !std::is_function_v<int>);
static_assert(std::is_trivial_v<Pair> && std::is_standard_layout_v<Pair> &&
              std::is_scalar_v<int*> && std::is_default_constructible_v<Pair>);
static_assert(std::is_constructible_v<float, int> && !std::is_constructible_v<Pair, int*>);
static_assert(std::conjunction_v<std::true_type, std::true_type> &&
              std::disjunction_v<std::false_type, std::true_type> &&
              std::negation_v<std::false_type>);
static_assert(std::is_same_v<std::invoke_result_t<std::plus<>, int, float>, float> &&
              std::is_invocable_v<std::negate<>, int> && !std::is_invocable_v<std::negate<>, Pair>);
static_assert(sizeof(std::aligned_storage_t<24, 8>) == 24 &&
              alignof(std::aligned_storage_t<24, 8>) == 8);
static_assert(alignof(std::aligned_storage<16, 16>::type) == 16);

// <utility>, <tuple>, <array>, <functional>
static_assert(std::is_same_v<std::make_index_sequence<5>, std::index_sequence<0, 1, 2, 3, 4>>);
static_assert(std::is_same_v<std::make_integer_sequence<int, 2>, std::integer_sequence<int, 0, 1>>);
static_assert(std::index_sequence_for<int, float>::size() == 2);
static_assert(std::is_same_v<std::tuple_element_t<1, std::tuple<int, float>>, float> &&
              std::is_same_v<std::tuple_element_t<0, const std::pair<int, float>>, const int>);
static_assert(std::tuple_size_v<std::array<int, 3>> == 3 && std::tuple_size_v<std::tuple<>> == 0);
static_assert(std::make_pair(1, 2.5f).second == 2.5f && std::get<0>(std::make_tuple(7, 8)) == 7);
static_assert(std::pair<int, int>(1, 2) < std::pair<int, int>(1, 3));
static_assert(std::tuple<int, float>(1, 2.f) == std::tuple<int, float>(1, 2.f));
static_assert(std::array<int, 3>{4, 5, 6}[2] == 6 && std::array<int, 3>{}.size() == 3);
static_assert(std::is_same_v<decltype(std::pair(1, 2.f)), std::pair<int, float>>);
static_assert(std::plus<int>()(2, 3) == 5 && std::greater<>()(2.5f, 2) && !std::logical_not<>()(1));

// <algorithm>, <sys/types.h>
static_assert(std::min(2, 3) == 2 && std::max(2.5f, 3.5f) == 3.5f && std::clamp(7, 0, 5) == 5);
static_assert(std::max({1, 5, 3}) == 5 && std::min({4, 2}) == 2 &&
              std::max(1, 2, std::greater<>()) == 1);
static_assert(sizeof(uint) == 4 && ushort(-1) == 65535 && sizeof(ulong) == 8 &&
              u_int8_t(-1) == 255);

__global__ void floats(float* out) {
    const int i = threadIdx.x;
    constexpr float largest = std::numeric_limits<float>::max();
    if (i == 0) out[i] = INFINITY;
    if (i == 1) out[i] = -INFINITY;
    if (i == 2) out[i] = NAN;
    if (i == 3) out[i] = largest;
    if (i == 4) out[i] = std::abs(-2.5f) + std::fabs(-0.5f);
    if (i == 5) out[i] = std::fmax(1.f, std::sqrt(16.f));
    if (i == 6) out[i] = std::isnan(NAN) + 2 * std::isinf(INFINITY);
    if (i == 7) out[i] = offsetof(Pair, second);
    if (i == 8) out[i] = std::fma(2.f, 3.f, 4.f) + std::floor(1.5f);
}

__global__ void rest(int* out) {
    assert(out != nullptr);
    if (out == nullptr) printf("%d\n", 1);
    if (out == nullptr) std::printf("%d\n", 2);
    int a = 2, b = 1;
    int copy = 0;
    memcpy(&copy, &a, sizeof(int));
    std::memcpy(&a, &copy, sizeof(int));
    out[0] = a;
    out[1] = std::move(b) + abs(-3);
}

template <typename T, size_t... i>
__device__ T total(const std::array<T, sizeof...(i)>& a, std::index_sequence<i...>) {
    return (a[i] + ...);
}

__device__ float sum_of_both(const float2 given) {
    const auto [x, y] = given;  // which has no tuple_size
    return x + y;
}
__device__ std::tuple<int, float, double> parts(int i) { return std::make_tuple(i, 2.f, 3.0); }

__global__ void library(float* out, std::array<int, 4> sizes) {
    std::array<int, 4> a{1, 2, 3, 4};
    for (int& each : a) each *= 2;
    out[0] = total(a, std::make_index_sequence<4>()) + sizes[2];
    const std::pair<int, float> both = {3, 1.5f};
    auto [i, f] = both;
    out[1] = both.first + both.second + i + f;
    auto [x, y, z] = parts(5);
    out[2] = x + y + z;
#ifdef __CUDACC_RTC__  // constexpr, and so for device code, from C++20 on
    int r;
    float s;
    std::tie(r, s) = std::make_pair(8, 9.f);
    out[3] = r + s + std::get<float>(std::tuple<int, float>(r, s));
#endif
    out[4] = std::apply([](int n, float m, double) { return n * m; }, parts(6));
    for (int each : {1, 2, 3}) out[5] += each;
    std::aligned_storage_t<sizeof(float4), alignof(float4)> room;
    new (&room) float4{1, 2, 3, 4};
    out[6] = reinterpret_cast<float4*>(&room)->w;
}

__global__ void heap(int** out) {
    *out = static_cast<int*>(std::malloc(sizeof(int)));
    std::free(*out);
}
