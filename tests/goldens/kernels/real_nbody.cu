// Forces between bodies, all pairs, from tiles in shared memory; __frsqrt_rn keeps it exact.

extern "C" __global__ void real_nbody(const float4* bodies, float3* forces, int n) {
    extern __shared__ float4 tile[];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float4 me = bodies[i];
    float3 force = {0, 0, 0};
    for (int at = 0; at < n; at += blockDim.x) {
        tile[threadIdx.x] = bodies[at + threadIdx.x];
        __syncthreads();
        for (int k = 0; k < blockDim.x; ++k) {
            const float x = tile[k].x - me.x, y = tile[k].y - me.y, z = tile[k].z - me.z;
            const float inverse = __frsqrt_rn(x * x + y * y + z * z + 0.01f);
            const float strength = tile[k].w * inverse * inverse * inverse;
            force.x += x * strength, force.y += y * strength, force.z += z * strength;
        }
        __syncthreads();
    }
    forces[i] = force;
}
