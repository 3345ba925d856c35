// A spin lock in global memory that guards a counter which is no atomic.

extern "C" __global__ void atomic_lock(int* lock, int* counter, int* history) {
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(lock, 0, 1) != 0) __nanosleep(20);
        __threadfence();
        const int now = *(volatile int*)counter;
        *(volatile int*)counter = now + 1;
        history[now] = 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}
