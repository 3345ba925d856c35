// Cooperative groups: scans of tiles, and sums of lanes with the same label.
#include <cooperative_groups.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void scan(const int* x, int* out) {
    __shared__ int s[8];
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    auto four = cg::tiled_partition<4>(warp);
    int t = threadIdx.x, v = x[t];
    int sc = cg::inclusive_scan(four, v, cg::plus<int>());
    auto parts = cg::labeled_partition(warp, v % 3);
    int total = cg::reduce(parts, v, cg::plus<int>());
    auto two = cg::binary_partition(four, v > 10);
    int m = cg::reduce(two, v, cg::greater<int>());
    if (warp.thread_rank() == 0)
        s[warp.meta_group_rank()] = cg::reduce(cg::coalesced_threads(), v, cg::plus<int>());
    block.sync();
    int rest = 0;
    for (int w = 0; w < warp.meta_group_size(); ++w) rest += s[w];
    out[t] = sc + 1000 * total + m + 1000000 * rest;
}
