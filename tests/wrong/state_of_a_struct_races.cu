// Every block adds to one total that is behind a member of a struct.
struct State {
    const int* x;
    int* total;
    int n;
};

__global__ void total(State state) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < state.n) {
#ifdef FIXED
        atomicAdd(state.total, state.x[i]);
#else
        *state.total = *state.total + state.x[i];  // FAULT: race, OTHER
#endif
    }
}
