// Loops that lanes leave at different times, nested branches, a switch table, early return.

extern "C" __global__ void control_flow(const unsigned* in, unsigned* out) {
    const unsigned i = threadIdx.x;
    unsigned n = in[i] % 97 + 1, steps = 0;
    while (n != 1) {  // Collatz
        n = n & 1 ? 3 * n + 1 : n / 2;
        ++steps;
    }
    out[i] = steps;

    unsigned x = in[i];
    switch (in[i] % 9) {
        case 0:
            x += 17;
            break;
        case 1:
            x *= 31;  // falls through
        case 2:
            x ^= 0x55555555;
            break;
        case 3:
            x = __brev(x);
            break;
        case 4:
            x -= i;
            break;
        case 5:
            x = ~x;
            break;
        case 6:
            x <<= 3;
            break;
        case 7:
            x = x / (i + 1);
            break;
        default:
            x = 0;
    }
    out[blockDim.x + i] = x;
    if (i % 3 == 2) return;
    unsigned found = 0;
    for (unsigned k = 0; k < 32; ++k) {
        if ((x >> k & 3) == 3) continue;
        if (found > i % 11) break;
        found += x >> k & 1;
    }
    out[2 * blockDim.x + i] = found;
}
