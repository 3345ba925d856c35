// out[column] = sum over all rows of x: tiles of 8 rows pass through a ring of three stages, from a
// warp that copies to two warps that each add up a half of the columns.
#include <dotcu/pipeline.cuh>

constexpr int ROWS = 8, COLUMNS = 64, STAGES = 3;

__global__ void __launch_bounds__(96)
    add_up(const __grid_constant__ CUtensorMap x, float* out, int rows) {
    __shared__ alignas(128) float tiles[STAGES][ROWS][COLUMNS];
    __shared__ dotcu::pipeline<STAGES> pipe;
    if (threadIdx.x == 0) pipe.init(1, 2);
    __syncthreads();
    dotcu::ring<STAGES> at;
    if (threadIdx.x == 64) {
        for (int row = 0; row < rows; row += ROWS, at.next()) {
            dotcu::mbarrier& full = pipe.acquire(at);
            full.arrive_expect(sizeof(tiles[0]));
            dotcu::tma_load(tiles[at.stage], x, full, row, 0);
        }
    } else if (threadIdx.x < 64) {
        float sum = 0;
        for (int row = 0; row < rows; row += ROWS, at.next()) {
            pipe.wait(at);
            for (int i = 0; i < ROWS; ++i) sum += tiles[at.stage][i][threadIdx.x];
            __syncwarp();
            if (threadIdx.x % 32 == 0) pipe.release(at);
        }
        out[threadIdx.x] = sum;
    }
}
