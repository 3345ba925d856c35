// Kernels of the small headers, for NVRTC and nvcc alike.

#include "dotcu/cluster.cuh"
#include "dotcu/grid.cuh"
#include "dotcu/reduce.cuh"
#include "dotcu/vector.cuh"

// out = x, n elements at a time, through float.
template <typename T, int n>
__global__ void copy_vectors(const T* x, T* out, long long vectors) {
    for (long long v = dotcu::thread_of_grid(); v < vectors; v += dotcu::threads_of_grid()) {
        dotcu::store(out + v * n, dotcu::to<T>(dotcu::to_float(dotcu::load<n>(x + v * n))));
    }
}

// Floats as T.
template <typename T, int n>
__global__ void round_to(const float* x, T* out, long long vectors) {
    for (long long v = dotcu::thread_of_grid(); v < vectors; v += dotcu::threads_of_grid()) {
        dotcu::store(out + v * n, dotcu::to<T>(dotcu::load<n>(x + v * n)));
    }
}

// Every lane's result of a reduction over groups of lanes.
template <int lanes>
__global__ void reduce_lanes(const float* x, float* sums, float* most) {
    sums[threadIdx.x] = dotcu::reduce_warp<lanes>(x[threadIdx.x], dotcu::plus());
    most[threadIdx.x] = dotcu::reduce_warp<lanes>(x[threadIdx.x], dotcu::maximum());
}

// Every thread's result of two reductions over a block, one after the other.
template <int threads>
__global__ void reduce_threads(const float* x, float* sums, float* most) {
    __shared__ float sum_of_warp[threads / 32], most_of_warp[threads / 32];
    sums[threadIdx.x] = dotcu::reduce_block<threads>(x[threadIdx.x], sum_of_warp, dotcu::plus());
    most[threadIdx.x] =
        dotcu::reduce_block<threads>(x[threadIdx.x], most_of_warp, dotcu::maximum());
}

// Every block's result of a reduction over its cluster, its rank, and how many blocks there are.
__global__ void reduce_blocks(const float* x, float* sums, int* ranks, int* blocks) {
    __shared__ float of_block[dotcu::max_cluster];
    dotcu::cluster_arrive();
    dotcu::cluster_wait();
    const float sum = dotcu::reduce_cluster(x[blockIdx.x], of_block, dotcu::plus());
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
        ranks[blockIdx.x] = dotcu::cluster_rank();
        blocks[blockIdx.x] = dotcu::cluster_blocks();
    }
}

// Each thread's sum of what the blocks of its cluster have sent each other.
template <int blocks>
__global__ void sum_of_mail(const float* x, float* sums) {
    __shared__ dotcu::cluster_mail<float, blocks> mail;
    mail.open();
    mail.send(x[blockIdx.x]);
    const float* all = mail.get();
    float sum = 0;
    for (int block = 0; block < blocks; ++block) sum += all[block];
    sums[dotcu::thread_of_grid()] = sum;
}

// x[i] += 1, after the kernel before.
__global__ void add_one(float* x, int n) {
    const long long i = dotcu::thread_of_grid();
    dotcu::launch_later();
    dotcu::wait_for_earlier();
    if (i < n) x[i] += 1;
}
