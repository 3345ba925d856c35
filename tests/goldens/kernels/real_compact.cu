// Stream compaction that keeps the order: ballots give each lane its place, warps' counts are added
// up.

extern "C" __global__ void real_compact(const int* in, int* out, int* kept, int n) {
    __shared__ int counts[8];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int done = 0;
    for (int at = 0; at < n; at += blockDim.x) {
        const int i = at + threadIdx.x;
        const int x = i < n ? in[i] : -1;
        const unsigned votes = __ballot_sync(0xffffffff, x > 0);
        if (lane == 0) counts[warp] = __popc(votes);
        __syncthreads();
        int before = done;
        for (int w = 0; w < blockDim.x / 32; ++w) {
            if (w < warp) before += counts[w];
            done += counts[w];
        }
        if (x > 0) out[before + __popc(votes & ((1u << lane) - 1))] = x;
        __syncthreads();
    }
    if (threadIdx.x == 0) *kept = done;
}
