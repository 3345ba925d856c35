// attention, backward, for every type and GPU: a warp for each row of a gradient.
//
//     attention_plain_queries    the gradient by q
//     attention_plain_keys       the gradients by k and v
//
// The formulas are those of hopper_backward.cu. Cost: 14 B H queries keys d FLOPs.
#include "plain.cuh"

// What both gradients need of a pair: p, and the gradient by the product q . k.
template <typename A>
__device__ void pair(const Row<A>& q, const Row<A>& k, const Row<A>& v, const Row<A>& grad, A lse,
                     A delta, Rule<A> rule, A& p, A& ds) {
    A slope;
    const A s = score_of(q.dot(k), rule, slope);
    const A dp = grad.dot(v) - delta;
    p = ds = 0;
    if (lse == -__builtin_bit_cast(float, 0x7f800000)) return;  // the query sees nothing
    p = exp(s - lse), ds = p * dp * slope * rule.scale;
}

template <typename T, typename A>
__global__ void attention_plain_queries(dotcu::tensor<const T, 4> q, dotcu::tensor<const T, 4> k,
                                        dotcu::tensor<const T, 4> v, dotcu::tensor<const T, 4> out,
                                        dotcu::tensor<const T, 4> grad, const A* lse,
                                        dotcu::tensor<T, 4> by_q, const int* query_starts,
                                        const int* key_starts, int sequences, int left, int right,
                                        A scale, A cap) {
    AT_ROW(q);
    const Rule<A> rule{left, right, scale, cap};
    const int g = h / (q.size(1) / k.size(1));
    const Row<A> own(q, b, h, i), dy(grad, b, h, i);
    const A delta = dy.dot(Row<A>(out, b, h, i));
    const Rows queries(query_starts, sequences, q.size(2), query_starts, i);
    const Rows keys(key_starts, sequences, k.size(2), query_starts, i);
    const int at = i - queries.start;
    Row<A> sum;
    for (int j = rule.first(at); j < rule.end(at, keys.count); ++j) {
        A p, ds;
        const Row<A> key(k, b, g, keys.start + j);
        pair(own, key, Row<A>(v, b, g, keys.start + j), dy, lse[row], delta, rule, p, ds);
        sum.add(ds, key);
    }
    sum.write(by_q, b, h, i);
}

template <typename T, typename A>
__global__ void attention_plain_keys(dotcu::tensor<const T, 4> q, dotcu::tensor<const T, 4> k,
                                     dotcu::tensor<const T, 4> v, dotcu::tensor<const T, 4> out,
                                     dotcu::tensor<const T, 4> grad, const A* lse,
                                     dotcu::tensor<T, 4> by_k, dotcu::tensor<T, 4> by_v,
                                     const int* query_starts, const int* key_starts, int sequences,
                                     int left, int right, A scale, A cap) {
    AT_ROW(k);
    const Rule<A> rule{right, left, scale, cap};  // which queries see a key
    const int group = q.size(1) / k.size(1);
    const Row<A> key(k, b, h, i), value(v, b, h, i);
    const Rows keys(key_starts, sequences, k.size(2), key_starts, i);
    const Rows queries(query_starts, sequences, q.size(2), key_starts, i);
    const int at = i - keys.start;
    Row<A> dk, dv;
    for (int head = h * group; head < (h + 1) * group; ++head) {
        for (int to = rule.first(at); to < rule.end(at, queries.count); ++to) {
            A p, ds;
            const int j = queries.start + to;
            const Row<A> query(q, b, head, j), dy(grad, b, head, j);
            const A delta = dy.dot(Row<A>(out, b, head, j));
            pair(query, key, value, dy, lse[(b * q.size(1) + head) * q.size(2) + j], delta, rule, p,
                 ds);
            dk.add(ds, query), dv.add(p, dy);
        }
    }
    dk.write(by_k, b, h, i), dv.write(by_v, b, h, i);
}
