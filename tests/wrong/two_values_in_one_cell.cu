// Each thread that finds a negative number notes its place; the places differ.
__global__ void find_negative(const float* x, int* place) {
    __shared__ int found;
    int i = threadIdx.x;
    if (i == 0) found = -1;
    __syncthreads();
#ifdef FIXED
    if (x[i] < 0) atomicMax(&found, i);
#else
    if (x[i] < 0) found = i;  // FAULT: race, OTHER
#endif
    __syncthreads();
    if (i == 0) *place = found;
}
