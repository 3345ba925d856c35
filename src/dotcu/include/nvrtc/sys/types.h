// Of <sys/types.h>, ssize_t and the short names of unsigned integers. glibc's <stdlib.h> declares them, and nvcc
// includes that before the first line of a file: dotcu includes this where a file uses one.
#pragma once

using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using u_char = unsigned char;
using u_short = unsigned short;
using u_int = unsigned int;
using u_long = unsigned long;
using u_int8_t = unsigned char;
using u_int16_t = unsigned short;
using u_int32_t = unsigned int;
using u_int64_t = unsigned long;
using ssize_t = long;
