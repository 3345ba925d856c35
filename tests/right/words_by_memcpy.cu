// Reads ints at odd addresses, byte by byte, as memcpy does.
#include <string.h>

__global__ void unpack(const unsigned char* x, int* out) {
    int value;
    memcpy(&value, x + 1 + 5 * threadIdx.x, sizeof(value));
    out[threadIdx.x] = value;
}
