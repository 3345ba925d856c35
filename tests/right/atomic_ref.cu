// A chain of blocks by cuda::atomic_ref: release on one side, acquire on the other.
#include <cuda/atomic>

__global__ void chain(const int* x, int* total, int* flag) {
    if (threadIdx.x != 0) return;
    int block = blockIdx.x;
    int before = 0;
    if (block > 0) {
        cuda::atomic_ref<int, cuda::thread_scope_device> ready(flag[block - 1]);
        while (ready.load(cuda::memory_order_acquire) == 0) {
        }
        before = total[block - 1];
    }
    total[block] = before + x[block];
    cuda::atomic_ref<int, cuda::thread_scope_device> done(flag[block]);
    done.store(1, cuda::memory_order_release);
}
