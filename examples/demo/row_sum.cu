// out[row] = the sum of row `row` of x.
//
// Shapes: x (rows, columns), out (rows,). One block a row: each thread adds up every blockDim.x-th
// element, and the block adds up its threads in shared memory, halving their number at each step.
//
// With FORGET_A_BARRIER each step begins before the one before it has ended: some threads read sums
// that others are still writing. Results are right on most runs, which is what makes such a fault
// hard to find.

constexpr int THREADS = 128;

template <typename T>
__global__ void row_sum(const T* x, T* out, long long columns) {
    __shared__ float sums[THREADS];
    const T* row = x + blockIdx.x * columns;

    float sum = 0;
    for (long long i = threadIdx.x; i < columns; i += THREADS) sum += static_cast<float>(row[i]);
    sums[threadIdx.x] = sum;
    __syncthreads();

    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
#ifndef FORGET_A_BARRIER
        __syncthreads();
#endif
    }
    if (threadIdx.x == 0) out[blockIdx.x] = static_cast<T>(sums[0]);
}
