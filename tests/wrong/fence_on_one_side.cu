// The producer fences between data and flag; the consumer reads data right after the flag.
__global__ void hand_over(const int* x, volatile int* flag, int* data, int* out) {
    if (blockIdx.x == 0) {
        *data = x[0] + x[1];  // OTHER
        __threadfence();
        *flag = 1;
    } else {
        while (*flag == 0) {
        }
#ifdef FIXED
        __threadfence();
#endif
        *out = *data;  // FAULT: race
    }
}
