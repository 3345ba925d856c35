// What a measurement runs around the calls that it times.
//
//     dotcu_bench_flush_l2    reads n vectors of 16 bytes, of a buffer several times the size of L2
//     dotcu_bench_hold        keeps its stream busy for some nanoseconds
//     dotcu_bench_begin, dotcu_bench_end    do nothing: their launches mark places in CUPTI's trace
//
// Idea: L2 keeps what was touched last. After a flush by reads it holds lines of the flushed
// buffer, all of them clean: a flush by writes would leave lines that the timed call has to write
// back. While a stream is held, the host queues a call's kernels behind it: then they follow each
// other as fast as the device can, and the host's time between them is not taken for the device's.
//
// Cost: flush, 16 n bytes; hold, one thread.

// The time in nanoseconds. Its step is 32 ns to 1 us, by the GPU.
__device__ unsigned long long device_time() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

// data holds zeros, so that nothing is ever stored; but the compiler cannot know, and keeps the
// loads.
__global__ void dotcu_bench_flush_l2(const uint4* data, long long n, unsigned* kept) {
    const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
    unsigned folded = 0;
#pragma unroll 4
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
         i += stride) {
        const uint4 v = data[i];
        folded |= v.x | v.y | v.z | v.w;
    }
    if (folded != 0) *kept = folded;
}

// It only delays: no result may depend on how long it takes.
__global__ void dotcu_bench_hold(long long ns) {
    const unsigned long long start = device_time();
    while (static_cast<long long>(device_time() - start) < ns) {
    }
}

__global__ void dotcu_bench_begin() {}

__global__ void dotcu_bench_end() {}
