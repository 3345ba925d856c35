// Conversions between element types, and the same bits under another type
#include "golden.cuh"

#define CAST(NAME, ...)                                                      \
    template <class From, class To>                                          \
    __tile_global__ void NAME(const From* x, To* out) {                      \
        give(out, ct::element_cast<To>(mine(x) __VA_OPT__(, ) __VA_ARGS__)); \
    }

CAST(cast)
CAST(cast_toward_zero, ct::round_toward_zero_t{})
CAST(cast_downward, ct::round_toward_negative_t{})
CAST(cast_upward, ct::round_toward_positive_t{})
CAST(cast_saturated, ct::saturate_finite_t{})

// tf32 has no bytes of its own in memory here: there and back
#define CAST_TF32(NAME, MODE)                                                        \
    __tile_global__ void NAME(const float* x, float* out) {                          \
        give(out, ct::element_cast<float>(ct::element_cast<tf32>(mine(x), MODE{}))); \
    }

CAST_TF32(tf32_to_even, ct::round_ties_to_even_t)
CAST_TF32(tf32_to_away, ct::round_ties_to_away_t)
CAST_TF32(tf32_toward_zero, ct::round_toward_zero_t)

template <class From, class To>
__tile_global__ void same_bits(const From* x, To* out) {
    give(out, ct::element_bitcast<To>(mine(x)));
}

// Four bytes become one word, and a word becomes four bytes
__tile_global__ void pack_bytes(const u8* x, u32* out) {
    write(out, ct::repack<u32>(read<ct::shape<8, 16>>(x), 1_ic));
}

__tile_global__ void unpack_bytes(const u32* x, u8* out) {
    write(out, ct::repack<u8>(read<ct::shape<8, 4>>(x), 1_ic));
}
