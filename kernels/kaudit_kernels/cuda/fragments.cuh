// Numbers of 8 and 16 bits in the fragments of tensor-core products: how they are packed, converted, multiplied, loaded.
//
// lane = 4 * g + t. In the fragments of mma.m16n8k16, a lane holds of A rows g and g + 8 at columns 2t, 2t + 1, 2t + 8 and
// 2t + 9; of B those rows at column g; of C rows g and g + 8 at columns 2t and 2t + 1. Which number is which column of A is
// free as long as A and B agree.

constexpr unsigned ALL = 0xffffffffu;

// Two 16-bit floats in one 32-bit register, the first in the low half.
struct Half {
    static __device__ unsigned pack(float first, float second) {
        unsigned pair;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
        return pair;
    }
    static __device__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

struct BFloat16 {
    static __device__ unsigned pack(float first, float second) {
        unsigned pair;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
        return pair;
    }
    static __device__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};

static __device__ float exp2_fast(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// Lane 4 * g + t gives elements (g, 2t) and (g, 2t + 1) of an 8 x 8 matrix of 16 bits and gets (2t, g) and (2t + 1, g).
static __device__ unsigned transpose(unsigned pair) {
    unsigned turned;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
    return turned;
}

// What is stored in 8 bits is multiplied as float16, which holds every value of it. `widen`: two bytes, the first the low.
struct E4M3 {
    static __device__ unsigned widen(unsigned short pair) {
        unsigned wide;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(wide) : "h"(pair));
        return wide;
    }
};

struct E5M2 {
    static __device__ unsigned widen(unsigned short pair) {
        unsigned wide;
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(wide) : "h"(pair));
        return wide;
    }
};

struct Int8 {
    static __device__ unsigned widen(unsigned short pair) {
        // Under the exponent of 1024 = 0x6400 the low byte counts ones: 1024 + 128 + x, from which 1152 is taken.
        const unsigned biased = __byte_perm(pair ^ 0x8080u, 0x64646464u, 0x4140);
        unsigned wide;
        asm("sub.f16x2 %0, %1, %2;" : "=r"(wide) : "r"(biased), "r"(0x64806480u));
        return wide;
    }
};

// How words of stored K and V become fragments.
template <class Stored>
struct Bytes {
    using Compute = Half;
    static constexpr int SIZE = 1;
    // Dims 4 * i and 4 * i + 1 of an access, then the two dims after them.
    static __device__ void four(const unsigned* words, int i, unsigned& first, unsigned& second) {
        first = Stored::widen((unsigned short)words[i]);
        second = Stored::widen((unsigned short)(words[i] >> 16));
    }
    // Dim 2 * i of two keys side by side, then dim 2 * i + 1 of both.
    static __device__ void beside(const unsigned* key, const unsigned* next, int i, unsigned& even, unsigned& odd) {
        const unsigned both = __byte_perm(key[i / 2], next[i / 2], i % 2 ? 0x7362 : 0x5140);
        even = Stored::widen((unsigned short)both);
        odd = Stored::widen((unsigned short)(both >> 16));
    }
};

template <class Float>
struct Words {
    using Compute = Float;
    static constexpr int SIZE = 2;
    static __device__ void four(const unsigned* words, int i, unsigned& first, unsigned& second) {
        first = words[2 * i];
        second = words[2 * i + 1];
    }
    static __device__ void beside(const unsigned* key, const unsigned* next, int i, unsigned& even, unsigned& odd) {
        even = __byte_perm(key[i], next[i], 0x5410);
        odd = __byte_perm(key[i], next[i], 0x7632);
    }
};

template <int COUNT>
static __device__ void load(unsigned (&words)[COUNT], const char* address, bool there = true) {
    static_assert(COUNT == 2 || COUNT == 4, "8 or 16 bytes");
    if constexpr (COUNT == 4) {
        const uint4 found = there ? *reinterpret_cast<const uint4*>(address) : make_uint4(0, 0, 0, 0);
        words[0] = found.x, words[1] = found.y, words[2] = found.z, words[3] = found.w;
    } else {
        const uint2 found = there ? *reinterpret_cast<const uint2*>(address) : make_uint2(0, 0);
        words[0] = found.x, words[1] = found.y;
    }
}
