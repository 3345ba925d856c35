// A tiled matrix product in float: 16 x 16 tiles in shared memory, four results for each thread.

extern "C" __global__ void real_matmul(const float* a, const float* b, float* out, int m, int n,
                                       int k) {
    __shared__ float as[32][17], bs[16][33];
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = blockIdx.y * 32, column = blockIdx.x * 32;
    float sum[2][2] = {};
    for (int at = 0; at < k; at += 16) {
        for (int r = 0; r < 32; r += 16) {
            as[y + r][x] = row + y + r < m && at + x < k ? a[(row + y + r) * k + at + x] : 0;
            bs[y][x + r] = at + y < k && column + x + r < n ? b[(at + y) * n + column + x + r] : 0;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            for (int r = 0; r < 2; ++r) {
                for (int c = 0; c < 2; ++c)
                    sum[r][c] = fmaf(as[y + 16 * r][i], bs[i][x + 16 * c], sum[r][c]);
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < 2; ++r) {
        for (int c = 0; c < 2; ++c) {
            const int to = row + y + 16 * r, at = column + x + 16 * c;
            if (to < m && at < n) out[to * n + at] = sum[r][c];
        }
    }
}
