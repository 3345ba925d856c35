// A scan in one pass: each block publishes its sum, and looks back until it finds a whole prefix.
// Status of a block: 0 nothing yet, 1 its own sum, 2 the sum of all blocks up to it.
__global__ void scan(const int* x, int* out, int* ticket, volatile int* status,
                     volatile int* own_sum, volatile int* prefix) {
    __shared__ int part[64];
    __shared__ int block, before;
    int i = threadIdx.x;
    if (i == 0) block = atomicAdd(ticket, 1);
    __syncthreads();
    part[i] = x[block * 64 + i];
    for (int step = 1; step < 64; step *= 2) {
        __syncthreads();
        int left = i >= step ? part[i - step] : 0;
        __syncthreads();
        part[i] += left;
    }
    if (i == 63) {
        int sum = part[63];
        own_sum[block] = sum;
        __threadfence();
        status[block] = 1;
        int found = 0;
        for (int b = block - 1; b >= 0; --b) {
            int s;
            while ((s = status[b]) == 0) {
            }
            __threadfence();
            found += s == 2 ? prefix[b] : own_sum[b];
            if (s == 2) break;
        }
        prefix[block] = found + sum;
        __threadfence();
        status[block] = 2;
        before = found;
    }
    __syncthreads();
    out[block * 64 + i] = before + part[i];
}
