// 128 bits at once: loads, stores, moves, exchange and compare-and-swap.

typedef unsigned long long u64;

extern "C" __global__ void memory_wide(const ulonglong2* in, ulonglong2* out, ulonglong2* cells) {
    const int i = threadIdx.x;
    u64 low, high;
    asm volatile(
        "{.reg .b128 x, y; .reg .b64 l, h;\n"
        " ld.global.b128 x, [%2];\n"
        " mov.b128 {l, h}, x;\n"
        " add.u64 l, l, 1;\n"
        " mov.b128 y, {h, l};\n"
        " st.global.b128 [%3], y;\n"
        " atom.global.exch.b128 x, [%4], y;\n"
        " mov.b128 {%0, %1}, x;}"
        : "=l"(low), "=l"(high)
        : "l"(in + i), "l"(out + i), "l"(cells + i)
        : "memory");
    out[32 + i] = {low, high};
    asm volatile(
        "{.reg .b128 x, y, z;\n"
        " ld.global.b128 x, [%2];\n"
        " mov.b128 y, {%3, %4};\n"
        " mov.b128 z, x;\n"
        " atom.global.cas.b128 x, [%5], y, z;\n"
        " mov.b128 {%0, %1}, x;}"
        : "=l"(low), "=l"(high)
        : "l"(in + i), "l"(i & 1 ? in[i].y : 0), "l"(in[i].x + 1), "l"(cells + i)
        : "memory");
    out[64 + i] = {low, high};
}
