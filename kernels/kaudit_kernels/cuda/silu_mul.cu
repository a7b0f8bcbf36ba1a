// silu(gate) * up, the activation between the projections of a gated MLP. Bound by memory: each access is of 16
// bytes, the widest that every architecture has. No header is included, so NVRTC needs no toolkit.

// Two 16-bit floats in one 32-bit register, the first in the low half. Each packing is one instruction from sm_80 on.
struct Half {
    static __device__ float2 unpack(unsigned pair) {
        float2 wide;
        asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.f32.f16 %0, low; cvt.f32.f16 %1, high; }"
            : "=f"(wide.x), "=f"(wide.y)
            : "r"(pair));
        return wide;
    }
    static __device__ unsigned pack(float2 wide) {
        unsigned pair;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(wide.y), "f"(wide.x));
        return pair;
    }
};

struct BFloat16 {
    static __device__ float2 unpack(unsigned pair) {
        // A bfloat16 is the upper half of the float32 of the same value.
        return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
    }
    static __device__ unsigned pack(float2 wide) {
        unsigned pair;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(wide.y), "f"(wide.x));
        return pair;
    }
};

// The fast division is two instructions where the exact one is ten, and its two units in the last place vanish in the
// rounding to 16 bits. It gives 0 where the divisor is over 2^126: there the quotient is below the smallest fp16, and of
// bf16 below any that a sum would notice.
static __device__ float silu(float x) { return __fdividef(x, 1.0f + __expf(-x)); }

template <typename T>
static __device__ unsigned silu_mul(unsigned gate, unsigned up) {
    const float2 g = T::unpack(gate), u = T::unpack(up);
    return T::pack(make_float2(silu(g.x) * u.x, silu(g.y) * u.y));
}

// gate_up [tokens, 2 * vectors], gate then up; out [tokens, vectors]; a vector is 8 elements, 16 bytes.
// Block (x, y) takes token x, which may count beyond the 65,535 that grid.y holds, and the y-th EACH * blockDim.x vectors
// of it: EACH a thread, loaded all before the first is used, so that 32 * EACH bytes of each thread are on their way.
template <typename T, int EACH>
__global__ void silu_mul_kernel(const uint4* __restrict__ gate_up, uint4* __restrict__ out, long long vectors) {
    const long long token = blockIdx.x;
    const long long first = (long long)blockIdx.y * EACH * blockDim.x + threadIdx.x;
    const uint4* gates = gate_up + token * 2 * vectors;
    uint4 gate[EACH], up[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const long long column = first + i * blockDim.x;
        if (column >= vectors) break;
        gate[i] = __ldcs(gates + column);  // read once: the first to leave the L2
        up[i] = __ldcs(gates + vectors + column);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const long long column = first + i * blockDim.x;
        if (column >= vectors) break;
        out[token * vectors + column] = make_uint4(
            silu_mul<T>(gate[i].x, up[i].x), silu_mul<T>(gate[i].y, up[i].y), silu_mul<T>(gate[i].z, up[i].z),
            silu_mul<T>(gate[i].w, up[i].w));
    }
}
