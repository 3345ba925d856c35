// attention: softmax(scale * q @ k^T) @ v for every head, by a warp for each row.
//
//     out[b][h][i] = sum over j of p[i][j] * v[b][g][j],   g = h / (heads / heads of k)
//     p[i][j] = exp(s[i][j] - lse[b][h][i]),   lse = log(sum over j of exp(s[i][j]))
//     s[i][j] = scale * q[b][h][i] . k[b][g][j], or cap * tanh(that / cap)
//
// q, out: (B, H, queries, d), k, v: (B, heads of k, keys, d), strided or not; d <= 256. Query i
// sees the keys i - left to i + right. These kernels serve every type and GPU, and say what is
// computed; hopper.cu has the ones that are fast.
//
// Cost: 4 B H queries keys d FLOPs. Bound by shuffles: five for each score.
#include "plain.cuh"

template <typename T, typename A>
__global__ void attention_plain(dotcu::tensor<const T, 4> q, dotcu::tensor<const T, 4> k,
                                dotcu::tensor<const T, 4> v, dotcu::tensor<T, 4> out, A* lse,
                                const int* query_starts, const int* key_starts, int sequences,
                                int left, int right, A scale, A cap) {
    AT_ROW(q);
    const Rule<A> rule{left, right, scale, cap};
    const int g = h / (q.size(1) / k.size(1));
    const A none = -__builtin_bit_cast(float, 0x7f800000);
    A top = none, sum = 0, slope;
    Row<A> own(q, b, h, i), total;
    const Rows queries(query_starts, sequences, q.size(2), query_starts, i);
    const Rows keys(key_starts, sequences, k.size(2), query_starts, i);
    const int at = i - queries.start;
    for (int j = rule.first(at); j < rule.end(at, keys.count); ++j) {
        const A s = score_of(own.dot(Row<A>(k, b, g, keys.start + j)), rule, slope);
        const A high = s > top ? s : top, shrink = top == none ? 0 : exp(top - high),
                p = s == none ? 0 : exp(s - high);
        for (A& x : total.x) x *= shrink;
        total.add(p, Row<A>(v, b, g, keys.start + j));
        sum = sum * shrink + p, top = high;
    }
    for (A& x : total.x) x = sum != 0 ? x / sum : 0;
    total.write(out, b, h, i);
    lse[row] = sum != 0 ? top + log(sum) : none;
}
