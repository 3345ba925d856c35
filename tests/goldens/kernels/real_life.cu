// Conway's game of life on a torus, several generations in one block, cells as bits of 64-bit
// words.

typedef unsigned long long u64;

__device__ u64 turn(u64 x, int by) { return by > 0 ? x << 1 | x >> 63 : x >> 1 | x << 63; }

extern "C" __global__ void real_life(const u64* in, u64* out, int generations) {
    __shared__ u64 rows[64];
    const int i = threadIdx.x;
    rows[i] = in[i];
    for (int g = 0; g < generations; ++g) {
        __syncthreads();
        u64 ones = 0, twos = 0, fours = 0;  // how many neighbours, as bits
        for (int dy = -1; dy <= 1; ++dy) {
            for (int dx = -1; dx <= 1; ++dx) {
                if (dx == 0 && dy == 0) continue;
                const u64 row = rows[(i + dy) & 63], x = dx == 0 ? row : turn(row, dx);
                const u64 carry = ones & x, over = twos & carry;
                ones ^= x, twos ^= carry, fours |= over;
            }
        }
        const u64 next = twos & ~fours & (ones | rows[i]);
        __syncthreads();
        rows[i] = next;
    }
    out[i] = rows[i];
}
