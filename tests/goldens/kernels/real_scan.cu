// Inclusive prefix sums of a block: Hillis and Steele in shared memory, double buffered; Blelloch's
// tree.

extern "C" __global__ void real_scan(const float* in, float* out, float* exclusive) {
    __shared__ float line[2][256];
    const int i = threadIdx.x, n = blockDim.x, at = blockIdx.x * n + i;
    int now = 0;
    line[0][i] = in[at];
    __syncthreads();
    for (int by = 1; by < n; by *= 2) {
        line[1 - now][i] = i >= by ? line[now][i] + line[now][i - by] : line[now][i];
        now = 1 - now;
        __syncthreads();
    }
    out[at] = line[now][i];
    __syncthreads();

    float* tree = line[0];
    tree[i] = in[at];
    for (int by = 1; by < n; by *= 2) {
        __syncthreads();
        const int right = (i + 1) * 2 * by - 1;
        if (right < n) tree[right] += tree[right - by];
    }
    __syncthreads();
    if (i == 0) tree[n - 1] = 0;
    for (int by = n / 2; by > 0; by /= 2) {
        __syncthreads();
        const int right = (i + 1) * 2 * by - 1;
        if (right < n) {
            const float left = tree[right - by];
            tree[right - by] = tree[right];
            tree[right] += left;
        }
    }
    __syncthreads();
    exclusive[at] = tree[i];
}
