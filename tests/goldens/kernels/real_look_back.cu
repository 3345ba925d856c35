// Prefix sums in one pass: each block takes a ticket, publishes its sum, and looks back at those
// before it.
//
// Merrill, Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back" (2016).

enum State : unsigned { none, aggregate, prefix };

extern "C" __global__ void real_look_back(const unsigned* in, unsigned* out, unsigned* ticket,
                                          volatile unsigned* states, volatile unsigned* aggregates,
                                          volatile unsigned* prefixes) {
    __shared__ unsigned block, before, line[128];
    const unsigned i = threadIdx.x;
    if (i == 0) block = atomicAdd(ticket, 1);
    __syncthreads();
    const unsigned at = block * blockDim.x + i;
    line[i] = in[at];
    for (unsigned by = 1; by < blockDim.x; by *= 2) {
        __syncthreads();
        const unsigned left = i >= by ? line[i - by] : 0;
        __syncthreads();
        line[i] += left;
    }
    __syncthreads();
    if (i == 0) {
        const unsigned total = line[blockDim.x - 1];
        if (block > 0) {
            aggregates[block] = total;
            __threadfence();
            states[block] = aggregate;
        }
        unsigned sum = 0;
        for (int b = (int)block - 1; b >= 0; --b) {
            unsigned state;
            while ((state = states[b]) == none) {
            }
            __threadfence();
            sum += state == prefix ? prefixes[b] : aggregates[b];
            if (state == prefix) break;
        }
        prefixes[block] = sum + total;
        __threadfence();
        states[block] = prefix;
        before = sum;
    }
    __syncthreads();
    out[at] = before + line[i];
}
