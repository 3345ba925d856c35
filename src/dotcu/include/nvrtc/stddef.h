// <stddef.h> for NVRTC, which declares size_t, ptrdiff_t and NULL itself but has no such header.
#pragma once

// NVRTC has no __builtin_offsetof. Spelled as libcu++ spells it, since a file may include both.
#ifndef offsetof
// clang-format off
#define offsetof(type, member) (::size_t) ((char*) &(((type*) 0)->member) - (char*) 0)
// clang-format on
#endif
