// Each thread copies a struct whole and uses a member that only half of the threads have set.
struct Item {
    char tag;
    int value;
};
__global__ void values(int* out) {
    __shared__ Item items[32], others[32];
    int i = threadIdx.x;
    items[i].tag = 1;
#ifdef FIXED
    items[i].value = i;
#else
    if (i < 16) items[i].value = i;
#endif
    __syncwarp();
    others[i] = items[31 - i];
    __syncwarp();
    out[i] = others[31 - i].value + others[i].tag;  // FAULT: uninitialized-read
}
