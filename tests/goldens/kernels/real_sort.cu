// Bitonic sort of a block's keys and values in shared memory.

extern "C" __global__ void real_sort(float* keys, int* values) {
    __shared__ float key[256];
    __shared__ int value[256];
    const int i = threadIdx.x, at = blockIdx.x * 256 + i;
    key[i] = keys[at], value[i] = values[at];
    for (int size = 2; size <= 256; size *= 2) {
        for (int by = size / 2; by > 0; by /= 2) {
            __syncthreads();
            const int other = i ^ by;
            if (other > i && (key[i] > key[other]) == ((i & size) == 0)) {
                const float k = key[i];
                const int v = value[i];
                key[i] = key[other], value[i] = value[other];
                key[other] = k, value[other] = v;
            }
        }
    }
    __syncthreads();
    keys[at] = key[i], values[at] = value[i];
}
