// silu(gate) * up, the activation between the projections of a gated MLP. Bound by memory: each thread moves 16 bytes of
// gate, of up and of the result, which is the widest access there is. No header is included, so NVRTC needs no toolkit.

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

static __device__ float silu(float x) { return x / (1.0f + __expf(-x)); }

template <typename T>
static __device__ unsigned silu_mul(unsigned gate, unsigned up) {
    const float2 g = T::unpack(gate), u = T::unpack(up);
    return T::pack(make_float2(silu(g.x) * u.x, silu(g.y) * u.y));
}

// gate_up [tokens, 2 * vectors], gate then up; out [tokens, vectors]; a vector is 8 elements, 16 bytes.
// Block (x, y) takes token x, which may count beyond the 65,535 that grid.y holds, and the y-th blockDim.x vectors of it.
template <typename T>
__global__ void silu_mul_kernel(const uint4* __restrict__ gate_up, uint4* __restrict__ out, long long vectors) {
    const long long token = blockIdx.x;
    const long long column = (long long)blockIdx.y * blockDim.x + threadIdx.x;
    if (column >= vectors) return;
    const uint4 gate = gate_up[token * 2 * vectors + column];
    const uint4 up = gate_up[token * 2 * vectors + vectors + column];
    out[token * vectors + column] = make_uint4(
        silu_mul<T>(gate.x, up.x), silu_mul<T>(gate.y, up.y), silu_mul<T>(gate.z, up.z), silu_mul<T>(gate.w, up.w));
}
