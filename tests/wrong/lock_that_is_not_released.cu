// A spin lock that its first holder keeps.
__global__ void add_one(int* lock, int* total) {
    while (atomicCAS(lock, 0, 1) != 0) {  // FAULT: deadlock
    }
    __threadfence();
    *total = *total + 1;
#ifdef FIXED
    __threadfence();
    atomicExch(lock, 0);
#endif
}
