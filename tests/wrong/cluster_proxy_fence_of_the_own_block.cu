// Each block writes to the other's shared memory, from which a bulk copy then reads; the fence is
// for the block's own.
#include <dotcu/cluster.cuh>

__global__ void swap(const int* x, int* out) {
    __shared__ alignas(128) int box[32];
    const int t = threadIdx.x, at = 32 * blockIdx.x;
    dotcu::cluster_sync();
    *dotcu::shared_of(box + t, dotcu::cluster_rank() ^ 1) = x[at + 31 - t];  // OTHER
#ifdef FIXED
    asm volatile("fence.proxy.async.shared::cluster;" ::: "memory");
#else
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    dotcu::cluster_sync();
    if (t == 0) {
        unsigned from = __cvta_generic_to_shared(box);
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 128;"  //
                     ::"l"(out + at),
                     "r"(from)  // FAULT: proxy-fence
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
