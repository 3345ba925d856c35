// Edit distance of pairs of strings: a warp for each pair, a lane for each cell of an
// anti-diagonal.

extern "C" __global__ void real_edit_distance(const char* a, const char* b, int* out) {
    __shared__ int diagonals[3][33];
    const int lane = threadIdx.x;
    const char* s = a + blockIdx.x * 32;
    const char* t = b + blockIdx.x * 32;
    for (int d = 0; d <= 64; ++d) {
        int* now = diagonals[d % 3];
        const int* last = diagonals[(d + 2) % 3];
        const int* before = diagonals[(d + 1) % 3];
        for (int r = lane; r <= 32; r += 32) {
            const int c = d - r;
            if (c < 0 || c > 32) continue;
            int best = r == 0 ? c : r;
            if (r > 0 && c > 0) {
                best = min(before[r - 1] + (s[r - 1] != t[c - 1]), min(last[r - 1], last[r]) + 1);
            }
            now[r] = best;
        }
        __syncwarp();
    }
    if (lane == 0) out[blockIdx.x] = diagonals[64 % 3][32];
}
