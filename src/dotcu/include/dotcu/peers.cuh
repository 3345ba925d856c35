// dotcu/peers.cuh: blocks of several GPUs meet, and pass each other data.
//
// Signals, on the pads that dotcu.peers gives: a block meets the blocks of its number on all ranks.
//
//     dotcu::meet_ranks<0>(pads, rank, ranks, n);  // what each wrote before, all see after
//     ...                                          // read and write the memory of peers
//     dotcu::meet_ranks<1>(pads, rank, ranks, n);
//
// n is what all ranks must agree on, the number of elements say: a rank that meets with another one
// ends the kernel with both.
//
// Mail, in memory that dotcu.workspace gives: small tensors, without meeting. Each word travels
// with the number of its call, so a receiver needs no other signal: one trip over the link. A
// kernel constructs dotcu::mail, sends, receives all that the others send, and calls end().
//
// You must guarantee that all ranks make the same launches in the same order, on one stream for a
// tensor's signals or a workspace; that a kernel's meetings take turns 0, 1, 0, 1 and are even in
// number; and that all launches on one workspace have the same grid. No state is on the host, so
// CUDA graphs replay it. A wait ends with a trap after DOTCU_PEERS_TIMEOUT_S seconds.
// Source: PTX ISA, "Memory Consistency Model": release and acquire at .sys; words of 64 bits are
// written at once.
#pragma once

#ifndef __CUDACC_RTC__
#include <cstdio>  // NVRTC knows printf
#endif

#ifndef DOTCU_PEERS_TIMEOUT_S
#define DOTCU_PEERS_TIMEOUT_S 600  // as torch's groups have it
#endif

namespace dotcu {

namespace detail {

// Ends the kernel where a rank does not come. (The simulator finds that by itself.)
struct patience {
    unsigned tries = 0;
    unsigned long long start = 0;

    // Returns true now and then, when there is time to look what is wrong.
    __device__ bool try_again([[maybe_unused]] int rank, [[maybe_unused]] int other) {
#if !DOTCU_SIMULATED
        if (++tries % 1024 != 0) return false;
        unsigned long long now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        if (start == 0) start = now;
        if (now - start < DOTCU_PEERS_TIMEOUT_S * 1000000000ull) return true;
        if (is_first()) {
            printf("dotcu/peers.cuh: rank %d waited %d s for rank %d, in block %d\n", rank,
                   DOTCU_PEERS_TIMEOUT_S, other, static_cast<int>(blockIdx.x));
        }
        __trap();
#endif
        return false;
    }

    // Of the warp's threads that are here, to say what is wrong.
    static __device__ bool is_first() {
        return static_cast<int>(threadIdx.x % 32) == __ffs(static_cast<int>(__activemask())) - 1;
    }
};

}  // namespace detail

// Sets a word of another rank's pad, which is 0, to another value: what this thread's block wrote
// before is seen by those who wait for it.
__device__ inline void signal(unsigned* word, unsigned value = 1) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

// Waits for a word of the own pad, clears it, and returns its value.
__device__ inline unsigned await_signal(unsigned* word, int rank = 0, int other = 0) {
    unsigned value = 0;
    for (detail::patience wait;; wait.try_again(rank, other)) {
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
        if (value != 0) break;
    }
    asm volatile("st.relaxed.sys.global.u32 [%0], 0;" ::"l"(word) : "memory");
    return value;
}

// Lets the blocks of one number meet on all ranks. Each block has at least as many threads as there
// are ranks, and all of them call it. A pad has two words for each pair of a block and a rank,
// which are 0 again when the kernel ends. They take turns: a word is set again only by a rank that
// has seen this one pass the turn after it, and so clear it. `size`: equal on all ranks; else the
// kernel ends. Its lower 31 bits travel with the signal, so the comparison takes no other trip.
template <int turn>
__device__ inline void meet_ranks(unsigned* const* pads, int rank, int ranks, long long size = 0) {
    static_assert(turn == 0 || turn == 1, "meetings take turns");
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < ranks) {
        const int other = static_cast<int>(threadIdx.x), first = (2 * blockIdx.x + turn) * ranks;
        const unsigned own = static_cast<unsigned>(size) | 0x80000000u;  // no signal is 0
        signal(pads[other] + first + rank, own);
        const unsigned said = await_signal(pads[rank] + first + other, rank, other);
        if (said != own) {
            printf("dotcu/peers.cuh: rank %d passes %u elements, and rank %d %u\n", rank,
                   own & 0x7fffffffu, other, said & 0x7fffffffu);
            __threadfence_system();  // the other one is to see this one's size
            __trap();
        }
    }
    __syncthreads();
}

// 16 bytes of mail: two words of data, each with the number of its call.
struct alignas(16) letter {
    unsigned long long words[2];
};

// What every rank sends to every other in one launch: 8 bytes at each place, of which there are
// `places`. A workspace has a head of mail_head bytes for each block and rank, and room for two
// calls: a rank that sends its next one has what all sent in this one, so all are done with the
// last.
constexpr int mail_head = 32;

template <int ranks>
class mail {
  public:
    // All threads of a block construct it. `size`: of what is sent, equal on all ranks. Else the
    // kernel ends.
    __device__ mail(unsigned char* const* boxes, int rank, long long places, unsigned size)
        : boxes_(boxes), rank_(rank), places_(places), size_(size) {
        number_ = *counter() + 1;
        if (number_ == 0) number_ = 2;  // no letter was ever of call 0, and calls take turns
        const int other = static_cast<int>(threadIdx.x);
        if (other < ranks && other != rank_) {
            asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(size_at(boxes_[other], rank_)),
                         "l"(call() | size_)
                         : "memory");
        }
    }

    // Sends 8 bytes to each other rank.
    __device__ void send(long long place, uint2 data) const {
#pragma unroll
        for (int other = 0; other < ranks; ++other) {
            if (other == rank_) continue;
            asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(
                             at(boxes_[other], rank_, place)),
                         "l"(call() | data.x), "l"(call() | data.y)
                         : "memory");
        }
    }

    // Waits for what each other rank sends to `count` places from `first` on, as far as they are
    // before `end`: it asks for all before it waits for one.
    template <int count>
    __device__ void receive(long long first, long long stride, long long end,
                            uint2 (&data)[count][ranks]) const {
        letter got[count][ranks];
#pragma unroll
        for (int i = 0; i < count; ++i)
#pragma unroll
            for (int other = 0; other < ranks; ++other)
                if (other != rank_ && first + i * stride < end)
                    got[i][other] = read(other, first + i * stride);
#pragma unroll
        for (int i = 0; i < count; ++i) {
#pragma unroll
            for (int other = 0; other < ranks; ++other) {
                if (other == rank_ || first + i * stride >= end) continue;
                for (detail::patience wait; !is_of_call(got[i][other]);) {
                    got[i][other] = read(other, first + i * stride);
                    if (wait.try_again(rank_, other)) compare(other);
                }
                data[i][other] = {static_cast<unsigned>(got[i][other].words[0]),
                                  static_cast<unsigned>(got[i][other].words[1])};
            }
        }
    }

    // Ends the call: all threads of the block make it, when they have received.
    __device__ void end() const {
        const int other = static_cast<int>(threadIdx.x);
        if (other < ranks && other != rank_)
            for (detail::patience wait; !compare(other);) wait.try_again(rank_, other);
        __syncthreads();
        if (threadIdx.x == 0) *counter() = number_;
    }

  private:
    __device__ unsigned long long call() const {
        return static_cast<unsigned long long>(number_) << 32;
    }
    __device__ unsigned* counter() const {
        return reinterpret_cast<unsigned*>(boxes_[rank_]) + blockIdx.x;
    }
    __device__ unsigned long long* size_at(unsigned char* box, int from) const {
        const unsigned slot = 1 + (number_ % 2) * ranks + from;
        return reinterpret_cast<unsigned long long*>(box) + slot * gridDim.x + blockIdx.x;
    }
    __device__ letter* at(unsigned char* box, int from, long long place) const {
        return reinterpret_cast<letter*>(box + mail_head * ranks * gridDim.x) +
               ((number_ % 2) * ranks + from) * places_ + place;
    }
    __device__ letter read(int other, long long place) const {
        letter got;
        asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                     : "=l"(got.words[0]), "=l"(got.words[1])
                     : "l"(at(boxes_[rank_], other, place))
                     : "memory");
        return got;
    }
    __device__ bool is_of_call(const letter& got) const {
        return got.words[0] >> 32 == number_ && got.words[1] >> 32 == number_;
    }
    // Returns whether another rank has said what it sends; ends the kernel if it sends another
    // size.
    __device__ bool compare(int other) const {
        unsigned long long said;
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];"
                     : "=l"(said)
                     : "l"(size_at(boxes_[rank_], other))
                     : "memory");
        if (said >> 32 != number_) return false;
        if (static_cast<unsigned>(said) != size_) {
            if (blockIdx.x == 0 && detail::patience::is_first())
                printf("dotcu/peers.cuh: rank %d sends %u elements, and rank %d %u\n", rank_, size_,
                       other, static_cast<unsigned>(said));
            __trap();
        }
        return true;
    }

    unsigned char* const* boxes_;
    int rank_;
    long long places_;
    unsigned size_, number_;
};

}  // namespace dotcu
