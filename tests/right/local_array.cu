// A small sort in a local array, whose indices the compiler does not know.
__global__ void order(const int* x, int* out, int n) {
    int kept[16];
    for (int j = 0; j < n; ++j) {
        int value = x[threadIdx.x * n + j];
        int at = j;
        while (at > 0 && kept[at - 1] > value) {
            kept[at] = kept[at - 1];
            --at;
        }
        kept[at] = value;
    }
    for (int j = 0; j < n; ++j) out[threadIdx.x * n + j] = kept[j];
}
