// Control flow, scalars, tile blocks
#include "golden.cuh"

// Every width of argument, and arithmetic of scalars
__tile_global__ void arguments(double* out, bool on, i8 a, u16 b, int c, u32 d, i64 e, u64 f,
                               float g, double h, f16 i, bf16 j) {
    write(out, ct::tile<double, ct::shape<>>(on ? 1.0 : 0.0));
    out[1] = a;
    out[2] = b;
    out[3] = c;
    out[4] = d;
    out[5] = double(e);
    out[6] = double(f);
    out[7] = g;
    out[8] = h;
    out[9] = double(float(i));
    out[10] = double(float(j));
    out[11] = double(a / 3);
    out[12] = double(c % 7);
    out[13] = double(d >> 3);
    out[14] = double(e >> 3);
    out[15] = double(float(c) * g);
}

__tile_global__ void block_ids(int* out) {
    auto b = ct::bid();
    auto n = ct::num_blocks();
    int i = (b.z * n.y + b.y) * n.x + b.x;
    out[i] = int(b.x + 10 * b.y + 100 * b.z + 1000 * n.x + 10000 * n.y + 100000 * n.z);
}

__tile_global__ void loop_carried(const float* x, float* out, int count) {
    auto total = ct::zeros<ct::tile<float, ct::shape<N>>>();
    int last = -1;
    for (auto i : ct::irange(0, count)) {
        total = total + mine(x) * float(i + 1);
        last = i;
    }
    give(out, total + float(last));
}

__tile_global__ void loop_steps(int* out, int first, int end, int step) {
    int total = 0, count = 0;
    for (auto i : ct::irange(first, end, step)) {
        total += i;
        ++count;
    }
    out[0] = total;
    out[1] = count;
}

__tile_global__ void loop_nested(const int* x, int* out, int m, int n) {
    auto total = ct::zeros<ct::tile<int, ct::shape<N>>>();
    for (int i = 0; i < m; ++i)
        for (int j = i; j < n; ++j) total = total * 3 + mine(x) + i * j;
    give(out, total);
}

__tile_global__ void loop_break(const int* x, int* out, int n, int stop) {
    int total = 0, i = 0;
    for (; i < n; ++i) {
        if (x[i] == stop) break;
        total += x[i];
    }
    out[0] = total;
    out[1] = i;
}

__tile_global__ void loop_continue(const int* x, int* out, int n) {
    int odd = 0, even = 0;
    for (int i = 0; i < n; ++i) {
        if (x[i] & 1) {
            odd += x[i];
            continue;
        }
        if (x[i] < 0) break;
        even += x[i];
    }
    out[0] = odd;
    out[1] = even;
}

__tile_global__ void collatz(const int* x, int* out) {
    int i = ct::bid().x;
    int n = x[i], steps = 0;
    while (n != 1) {
        n = n % 2 ? 3 * n + 1 : n / 2;
        ++steps;
    }
    out[i] = steps;
}

__tile_global__ void do_while(float* out, float start) {
    float x = start;
    int steps = 0;
    do {
        x = 0.5f * (x + 2.0f / x);
        ++steps;
    } while (ct::abs(x * x - 2.0f) > 1e-5f && steps < 50);
    out[0] = x;
    out[1] = float(steps);
}

// Each tile block another way
__tile_global__ void branches(const float* x, float* out) {
    int b = ct::bid().x;
    auto a = mine(x);
    if (b == 0) {
        a = a + 1.0f;
    } else if (b == 1) {
        a = -a;
        if (x[0] > 0.0f) a = a * 2.0f;
    } else {
        a = ct::abs(a);
    }
    give(out, a);
}

__tile_global__ void early_return(const int* x, int* out, int n) {
    int b = ct::bid().x;
    if (b >= n) return;
    if (x[b] < 0) {
        out[b] = -1;
        return;
    }
    out[b] = x[b] * 2;
}

// `switch`, and a function of two results
__tile__ int choose(int kind, int a, int b, int& other) {
    other = a - b;
    switch (kind) {
        case 0:
            return a + b;
        case 1:
            return a * b;
        case 2:
            other = 7;
            return a / b;
        default:
            return a % b;
    }
}

__tile_global__ void functions(const int* x, int* out) {
    int b = ct::bid().x, other;
    out[2 * b] = choose(b, x[2 * b], x[2 * b + 1], other);
    out[2 * b + 1] = other;
}

// Both sides of && are tiles; a condition on a whole tile
__tile_global__ void until_converged(const float* x, float* out) {
    auto a = mine(x);
    int steps = 0;
    while (bool(ct::any_of(a > 1.0f, 0_ic)) && steps < 20) {
        a = ct::select(a > 1.0f, a * 0.5f, a);
        ++steps;
    }
    give(out, a + float(steps));
}

// An array of the tile block's own
__tile_global__ void local_array(const int* x, int* out) {
    int a[8];
    for (int i = 0; i < 8; ++i) a[i] = x[i] * i;
    int total = 0;
    for (int i = 0; i < 8; ++i) total = total * 2 + a[x[i] & 7];
    out[0] = total;
}

// What is asserted holds, and nothing is printed
__tile_global__ void asserted(const int* x, int* out) {
    assert(x[0] > 0);
    if (x[0] < 0) printf("%d\n", x[0]);
    out[0] = x[0];
}
