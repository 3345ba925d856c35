// Sum, minimum and argmax of rows: a grid-stride loop, a shuffle in each warp, shared memory
// between warps.

struct Found {
    float value;
    int place;
};

__device__ Found better(Found a, Found b) {
    if (b.value > a.value || (b.value == a.value && b.place < a.place)) return b;
    return a;
}

extern "C" __global__ void real_reduce(const float* in, float* sums, float* least, int* places,
                                       int n) {
    __shared__ float sum_of[8], least_of[8];
    __shared__ Found found_of[8];
    const float* row = in + (long long)blockIdx.x * n;
    float sum = 0, low = row[0];
    Found found = {row[0], 0};
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        sum += row[i];
        low = fminf(low, row[i]);
        found = better(found, {row[i], i});
    }
    for (int by = 16; by > 0; by /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, by);
        low = fminf(low, __shfl_xor_sync(0xffffffff, low, by));
        const Found other = {__shfl_xor_sync(0xffffffff, found.value, by),
                             __shfl_xor_sync(0xffffffff, found.place, by)};
        found = better(found, other);
    }
    const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (threadIdx.x % 32 == 0) sum_of[warp] = sum, least_of[warp] = low, found_of[warp] = found;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < warps; ++w) {
            sum += sum_of[w];
            low = fminf(low, least_of[w]);
            found = better(found, found_of[w]);
        }
        sums[blockIdx.x] = sum, least[blockIdx.x] = low, places[blockIdx.x] = found.place;
    }
}
