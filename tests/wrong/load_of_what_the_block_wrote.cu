// A block writes to a scratch tensor, and its bulk copy reads that back: it needs a fence, too.
#include <dotcu/tma.cuh>

__global__ void through_scratch(const float* x, float* scratch, float* out) {
    __shared__ alignas(128) float row[32];
    __shared__ dotcu::mbarrier arrived;
    int t = threadIdx.x;
    if (t == 0) arrived.init(1);
    scratch[t] = 3 * x[t];  // OTHER
#ifdef FIXED
    asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
    __syncthreads();
    if (t == 0) {
        arrived.arrive_expect(sizeof(row));
        unsigned to = dotcu::shared_address(row), barrier = dotcu::shared_address(&arrived);
        auto from = __cvta_generic_to_global(scratch);
#define COPY "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
#define OPERANDS " [%0], [%1], 128, [%2];"
        asm volatile(COPY OPERANDS ::"r"(to), "l"(from), "r"(barrier));  // FAULT: proxy-fence
    }
    arrived.wait(0);
    out[t] = row[31 - t];
}
