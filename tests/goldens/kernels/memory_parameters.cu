// Parameters by value: a struct with padding, an array that is indexed, numbers of every width.

struct Settings {
    char flag;
    double factor;
    short steps[6];
    int offset;
};

extern "C" __global__ void memory_parameters(Settings s, long long base, short small, float scale,
                                             bool negate, double* out) {
    const int i = threadIdx.x;
    double value = s.factor * s.steps[i % 6] + s.offset + s.flag;
    value = value + (double)base + small + scale;
    out[i] = negate ? -value : value;
}
