// Attention without the score matrix: a warp for each query, keys in tiles of 32, the sum rescaled
// as it goes.

constexpr int dim = 32;

extern "C" __global__ void real_attention(const float* q, const float* k, const float* v,
                                          float* out, int n) {
    __shared__ float keys[32][dim + 1], values[32][dim + 1], query[4][dim];
    const int lane = threadIdx.x, warp = threadIdx.y, row = blockIdx.x * 4 + warp;
    query[warp][lane] = q[row * dim + lane];
    float largest = -1e30f, sum = 0, result = 0;
    for (int at = 0; at < n; at += 32) {
        __syncthreads();
        for (int r = warp; r < 32; r += 4) {
            keys[r][lane] = k[(at + r) * dim + lane];
            values[r][lane] = v[(at + r) * dim + lane];
        }
        __syncthreads();
        float score = 0;
        for (int d = 0; d < dim; ++d) score += query[warp][d] * keys[lane][d];
        score *= 0.17677669f;
        if (at + lane > row) score = -1e30f;  // causal
        float now = score;
        for (int by = 16; by > 0; by /= 2) now = fmaxf(now, __shfl_xor_sync(0xffffffff, now, by));
        now = fmaxf(now, largest);
        const float weight = expf(score - now), shrink = expf(largest - now);
        float total = weight;
        for (int by = 16; by > 0; by /= 2) total += __shfl_xor_sync(0xffffffff, total, by);
        sum = sum * shrink + total, result *= shrink, largest = now;
        for (int r = 0; r < 32; ++r) result += __shfl_sync(0xffffffff, weight, r) * values[r][lane];
    }
    out[row * dim + lane] = result / sum;
}
