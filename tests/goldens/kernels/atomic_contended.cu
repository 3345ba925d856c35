// Atomics on few addresses by many threads and blocks: what is there in the end does not depend on
// order.

extern "C" __global__ void atomic_contended(const int* in, int* totals, unsigned* tickets,
                                            unsigned* seen, unsigned long long* wide) {
    __shared__ int inside[4];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, x = in[i];
    if (threadIdx.x < 4) inside[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&inside[x & 3], x);
    atomicAdd(&totals[0], x);
    atomicSub(&totals[1], x >> 3);
    atomicMin(&totals[2], x);
    atomicMax(&totals[3], x);
    atomicAnd(&totals[4], x | 0x1000);
    atomicOr(&totals[5], x & 0xff);
    atomicXor(&totals[6], x);
    atomicAdd(wide, (unsigned long long)x << 20);
    const unsigned ticket = atomicInc(tickets, 0xffffffffu);
    seen[ticket] = 1;  // every ticket is drawn once
    const unsigned turn = atomicDec(&tickets[1], gridDim.x * blockDim.x - 1);
    atomicAdd(&seen[gridDim.x * blockDim.x + turn], 1);
    __syncthreads();
    if (threadIdx.x < 4) atomicAdd(&totals[8 + threadIdx.x], inside[threadIdx.x]);
}
