// Layer norm of rows, with Welford's mean and variance; exact but for rsqrtf.

extern "C" __global__ void real_layernorm(const float* in, const float* weight, const float* bias,
                                          float* out, float* means, float* variances, int n) {
    const float* row = in + (long long)blockIdx.x * n;
    float mean = 0, squares = 0, count = 0;
    for (int i = threadIdx.x; i < n; i += 32) {
        count += 1;
        const float step = row[i] - mean;
        mean += step / count;
        squares += step * (row[i] - mean);
    }
    for (int by = 16; by > 0; by /= 2) {
        const float n2 = __shfl_xor_sync(0xffffffff, count, by),
                    m2 = __shfl_xor_sync(0xffffffff, mean, by);
        const float s2 = __shfl_xor_sync(0xffffffff, squares, by);
        const float total = count + n2, step = m2 - mean;
        squares += s2 + step * step * count * n2 / total;
        mean = (mean * count + m2 * n2) / total;
        count = total;
    }
    mean = __shfl_sync(0xffffffff, mean, 0);
    const float variance = __shfl_sync(0xffffffff, squares, 0) / n;
    const float scale = rsqrtf(variance + 1e-5f);
    for (int i = threadIdx.x; i < n; i += 32) {
        out[(long long)blockIdx.x * n + i] = (row[i] - mean) * scale * weight[i] + bias[i];
    }
    if (threadIdx.x == 0) means[blockIdx.x] = mean, variances[blockIdx.x] = variance;
}
