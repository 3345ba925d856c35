// Cooperative groups: tiles of a warp that shuffle and vote, and the lanes that came along.

#include <cooperative_groups.h>

namespace cg = cooperative_groups;

template <typename Tile>
__device__ int tile_sum(const Tile& tile, int x) {
    for (int by = tile.size() / 2; by > 0; by /= 2) x += tile.shfl_down(x, by);
    return tile.shfl(x, 0);
}

extern "C" __global__ void cooperative_tiles(const int* in, int* out) {
    const cg::thread_block block = cg::this_thread_block();
    const int i = block.thread_rank(), x = in[i];
    int* to = out + i;
    *to = tile_sum(cg::tiled_partition<32>(block), x), to += block.size();
    *to = tile_sum(cg::tiled_partition<8>(block), x), to += block.size();
    *to = tile_sum(cg::tiled_partition<2>(block), x), to += block.size();
    const auto tile = cg::tiled_partition<16>(block);
    *to = tile.ballot(x & 1) + tile.meta_group_rank(), to += block.size();
    *to = tile.any(x > 900) + 2 * tile.all(x > -900) + 4 * tile.thread_rank(), to += block.size();
    *to = tile.match_any(x & 3), to += block.size();
    block.sync();
    if (x & 1) {
        const auto here = cg::coalesced_threads();
        *to = here.size() * 100 + here.thread_rank();
        here.sync();
        to[block.size()] = here.shfl(x, 0);
    } else {
        to[0] = to[block.size()] = -1;
    }
}
