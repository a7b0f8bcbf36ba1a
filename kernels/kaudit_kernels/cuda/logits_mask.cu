// Minus infinity for every token that a grammar does not allow. Bound by memory: each thread moves 16 bytes of logits, and
// reads none where the grammar allows none of its four tokens, as most grammars do for most of a vocabulary.

// logits, out [batch, vectors], a vector is 4 tokens; allowed [batch, vectors / 8]: bit j of word i is token 32 * i + j.
// Block (x, y) takes request x and the y-th blockDim.x vectors of it.
__global__ void logits_mask_kernel(
    const float4* __restrict__ logits, const unsigned* __restrict__ allowed, float4* __restrict__ out, long long vectors) {
    const long long request = blockIdx.x;
    const long long vector = (long long)blockIdx.y * blockDim.x + threadIdx.x;
    if (vector >= vectors) return;
    const float never = __int_as_float(0xff800000);
    float4 kept = make_float4(never, never, never, never);
    const unsigned bits = allowed[request * (vectors / 8) + vector / 8] >> (vector % 8 * 4) & 15u;
    if (bits) {
        const float4 given = logits[request * vectors + vector];
        if (bits & 1u) kept.x = given.x;
        if (bits & 2u) kept.y = given.y;
        if (bits & 4u) kept.z = given.z;
        if (bits & 8u) kept.w = given.w;
    }
    out[request * vectors + vector] = kept;
}
