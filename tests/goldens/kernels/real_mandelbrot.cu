// How long a point stays bounded: lanes leave the loop at very different times.

extern "C" __global__ void real_mandelbrot(unsigned short* out, int width, int limit) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const double a = -2.0 + 2.5 * x / width, b = -1.25 + 2.5 * y / width;
    double u = 0, v = 0;
    int steps = 0;
    for (; steps < limit && u * u + v * v < 4; ++steps) {
        const double next = u * u - v * v + a;
        v = 2 * u * v + b;
        u = next;
    }
    out[y * width + x] = steps;
}
