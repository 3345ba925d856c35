// Two buffers change places behind each barrier of the grid: a round writes what other blocks have
// read in the round before.
#include <cooperative_groups.h>

__global__ void turn(int* x, int* y, int n, int rounds) {
    auto grid = cooperative_groups::this_grid();
    for (int round = 0; round < rounds; ++round) {
        for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = x[(i + 1) % n];
        grid.sync();
        int* other = x;
        x = y;
        y = other;
    }
}
