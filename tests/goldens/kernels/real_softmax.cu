// Softmax of rows by the online recurrence of the maximum and the sum; and its logarithm.

#define FULL 0xffffffff

extern "C" __global__ void real_softmax(const float* in, float* out, float* logarithm, int n) {
    const float* row = in + (long long)blockIdx.x * n;
    float largest = -3.402823466e38f, sum = 0;
    for (int i = threadIdx.x; i < n; i += 32) {
        const float now = fmaxf(largest, row[i]);
        sum = sum * expf(largest - now) + expf(row[i] - now);
        largest = now;
    }
    for (int by = 16; by > 0; by /= 2) {
        const float other = __shfl_xor_sync(FULL, largest, by),
                    there = __shfl_xor_sync(FULL, sum, by);
        const float now = fmaxf(largest, other);
        sum = sum * expf(largest - now) + there * expf(other - now);
        largest = now;
    }
    const float log_sum = logf(sum);
    for (int i = threadIdx.x; i < n; i += 32) {
        out[(long long)blockIdx.x * n + i] = expf(row[i] - largest) / sum;
        logarithm[(long long)blockIdx.x * n + i] = row[i] - largest - log_sum;
    }
}
