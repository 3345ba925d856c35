// A lock that many readers share, or one writer has.
__global__ void visit(int* lock, int* data, int* out, int n) {
    if (threadIdx.x) return;
    int b = blockIdx.x;
    if (b % 3 == 0) {  // writer
        while (atomicCAS(lock, 0, -1) != 0) {
        }
        __threadfence();
        for (int i = 0; i < n; ++i) data[i] += 1;
        __threadfence();
        atomicExch(lock, 0);
    } else {
        for (;;) {
            int v = *(volatile int*)lock;
            if (v >= 0 && atomicCAS(lock, v, v + 1) == v) break;
        }
        __threadfence();
        int same = 1;
        for (int i = 1; i < n; ++i) same &= data[i] == data[0];
        __threadfence();
        atomicSub(lock, 1);
        out[b] = same;
    }
}
