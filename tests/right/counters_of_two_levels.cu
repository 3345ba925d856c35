// The last block of a row adds the row; the last of these uses all rows.
__global__ void sum(const int* x, int* part, int* rows, int* rowcount, int* gridcount, int* out) {
    int t = threadIdx.x, r = blockIdx.y, c = blockIdx.x, n = gridDim.x, m = gridDim.y;
    __shared__ int last;
    int v = __reduce_add_sync(~0u, x[(r * n + c) * 32 + t]);
    if (t == 0) {
        part[r * n + c] = v;
        __threadfence();
        last = 0;
        if (atomicAdd(&rowcount[r], 1) == n - 1) {
            __threadfence();
            int s = 0;
            for (int i = 0; i < n; ++i) s += part[r * n + i];
            rows[r] = s;
            __threadfence();
            last = atomicAdd(gridcount, 1) == m - 1;
        }
    }
    __syncthreads();
    if (last) {
        __threadfence();
        if (t < m) out[t] = rows[t] + part[t * n];
    }
}
