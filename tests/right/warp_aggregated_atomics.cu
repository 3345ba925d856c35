// One atomic for all lanes that keep a number; each finds its place by counting lanes before it.
__global__ void filter(const int* x, int* kept, int* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool is_kept = i < n && x[i] % 3 == 0;
    unsigned lanes = __ballot_sync(0xffffffff, is_kept);
    if (!is_kept) return;
    int lane = threadIdx.x % 32;
    int leader = __ffs(lanes) - 1;
    int first = 0;
    if (lane == leader) first = atomicAdd(count, __popc(lanes));
    first = __shfl_sync(lanes, first, leader);
    kept[first + __popc(lanes & ((1u << lane) - 1))] = x[i];
}
