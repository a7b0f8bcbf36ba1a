// Attention of at most 8 (query, head) rows of a KV head over a paged cache, in parts as triton/split_kv_decode.py leaves
// them. Each warp takes keys by itself, from memory to the registers from which tensor cores multiply: no shared memory,
// no barrier, until the warps of a block put their results together. So a key may lie on any page, of any size, and
// stored bytes become numbers in pairs: fp8 costs half an instruction an element.
//
// Keys are the 16 rows of an m16n8k16 product and queries its 8 columns; a lane's dims are those of one access of 16 bytes.

#include "fragments.cuh"

constexpr int WARPS = 4;
constexpr float LOG2_E = 1.44269504f;
#define NOTHING __int_as_float(0xff800000)  // minus infinity

// Rows of Q as B fragments: query[i] holds dims 4 * i to 4 * i + 3 of the lane's, for A fragments made by `four`.
template <class Query, class Compute>
struct Load {
    static __device__ float rescaled(unsigned (*)[2], int) { return 1.0f; }
};

// A bfloat16 reaches further than a float16: each row is divided by its largest element, which is returned.
template <>
struct Load<BFloat16, Half> {
    static __device__ float rescaled(unsigned (*query)[2], int count) {
        float largest = 0.0f;
        for (int i = 0; i < 2 * count; ++i) {
            const unsigned pair = query[i / 2][i % 2];
            largest = fmaxf(largest, fmaxf(fabsf(__uint_as_float(pair << 16)), fabsf(__uint_as_float(pair & 0xffff0000u))));
        }
        largest = fmaxf(largest, __shfl_xor_sync(ALL, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(ALL, largest, 2));
        if (largest < 1e-30f) largest = 1.0f;  // its scores are zero, and its inverse might be none
        const float inverse = 1.0f / largest;
        for (int i = 0; i < 2 * count; ++i) {
            const unsigned pair = query[i / 2][i % 2];
            query[i / 2][i % 2] =
                Half::pack(__uint_as_float(pair << 16) * inverse, __uint_as_float(pair & 0xffff0000u) * inverse);
        }
        return largest;
    }
};

static __device__ float over_keys(float x, bool add) {
    for (int distance = 4; distance < 32; distance *= 2) {
        const float other = __shfl_xor_sync(ALL, x, distance);
        x = add ? x + other : fmaxf(x, other);
    }
    return x;
}

static __device__ int divided_up(int x, int by) { return (x + by - 1) / by; }

// q and out [tokens, kv_heads * group, DIM]; k and v [rows, kv_heads, DIM]; scales, sinks, lengths, page table and parts as
// in triton/split_kv_decode.py, with ROWS = rows. k_scale, v_scale and sinks may be null. Block: (part, HEADS KV heads).
template <class Query, class Stored, int DIM, int HEADS>
__global__ void __launch_bounds__(32 * WARPS, DIM > 128 ? 2 : 3) warp_decode_kernel(
    const unsigned* __restrict__ q, const char* __restrict__ k, const char* __restrict__ v,
    const float* __restrict__ k_scale, const float* __restrict__ v_scale, const float* __restrict__ sinks,
    unsigned short* __restrict__ out, float* __restrict__ part_acc, float* __restrict__ part_m,
    float* __restrict__ part_l, const int* __restrict__ q_start, const int* __restrict__ kv_lens,
    const int* __restrict__ page_table, long long batch, long long pages, long long page_size, long long kv_heads,
    long long group, long long rows, long long causal, long long window, long long wanted, long long min_chunk,
    long long whole, double scale, double cap) {
    using Compute = typename Stored::Compute;
    constexpr int HEAD = DIM * Stored::SIZE;                   // bytes of a stored head
    constexpr int SUB = HEAD >= 256 ? 1 : 256 / HEAD;          // products of 16 keys a step: 4 KiB of K, as many of V
    constexpr int STEP = 16 * SUB;                             // keys of a warp's step
    constexpr int LOOKUPS = (STEP + 31) / 32;                  // keys that a lane finds for its warp
    constexpr int K_READS = HEAD / 64;                         // accesses of 16 bytes: four lanes read 64 of a key
    constexpr int V_BYTES = HEAD / 8 < 16 ? HEAD / 8 : 16;     // of an access: eight lanes read a key
    constexpr int V_READS = HEAD / 8 / V_BYTES;
    constexpr int V_DIMS = V_BYTES / Stored::SIZE;             // of an access
    constexpr int FOURS = DIM / 16;                            // products over the dims, 4 of them a lane's
    constexpr int PER_READ = 4 / Stored::SIZE;                 // of those, in an access of 16 bytes

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    // Warps side by side take KV heads side by side, which lie in one stretch of memory: of fp8, 64 requests of 4096 keys
    // are read at 3.8 TB/s by blocks of two heads, at 3.0 by blocks of one (H200).
    constexpr int SHARING = WARPS / HEADS;  // warps of a head
    constexpr int TILE = STEP * SHARING;    // keys of a step of theirs
    const int head_of_block = warp % HEADS, strip = warp / HEADS;
    const int part = blockIdx.x / ((int)kv_heads / HEADS), size = (int)group;
    const int kv_head = blockIdx.x % ((int)kv_heads / HEADS) * HEADS + head_of_block;

    int request = -1, nth = 0, count = 0, q_len = 0, kv_len = 0, first = 0;
    const auto look_at = [&](int of) {
        kv_len = of < batch ? kv_lens[of] : 0;
        q_len = of < batch ? q_start[of + 1] - q_start[of] : 0;
        first = window ? max(kv_len - q_len - (int)window + 1, 0) : 0;
    };
    int keys = 0;  // and the most of a part, as chunk_of of triton/launch_decode.py has it
    for (int of = lane; of < batch; of += 32) look_at(of), keys += kv_len - first;
    keys = __reduce_add_sync(ALL, keys);
    const int chunk = divided_up(max(divided_up(keys, (int)wanted), (int)min_chunk), TILE) * TILE;

    // Whose part this is: the requests' parts are counted, 32 requests at a time.
    for (int from = 0, before = 0; from < batch; from += 32) {
        look_at(from + lane);
        count = divided_up(kv_len - first, chunk);
        int sum = count;
        for (int distance = 1; distance < 32; distance *= 2) {
            const int other = __shfl_up_sync(ALL, sum, distance);
            if (lane >= distance) sum += other;
        }
        const unsigned reached = __ballot_sync(ALL, before + sum > part);
        if (reached) {
            const int owner = __ffs(reached) - 1;
            request = from + owner;
            nth = part - before - __shfl_sync(ALL, sum - count, owner);
            count = __shfl_sync(ALL, count, owner);
            q_len = __shfl_sync(ALL, q_len, owner);
            kv_len = __shfl_sync(ALL, kv_len, owner);
            first = __shfl_sync(ALL, first, owner);
            break;
        }
        before += __shfl_sync(ALL, sum, 31);
    }
    const int live = q_len * size;
    if (request < 0 || live == 0) return;  // past the last part, or without new tokens
    const int length = divided_up(divided_up(kv_len - first, count), TILE) * TILE;
    const int begin = first + nth * length, end = min(begin + length, kv_len);
    const long long first_row = q_start[request] * kv_heads * group;  // counts heads of tokens

    // Q, a row in the lanes of each g.
    unsigned query[FOURS][2];
    const long long q_row = first_row + g / size * (kv_heads * group) + kv_head * group + g % size;
    for (int i = 0; i < FOURS; ++i) {
        const int dim = (i / PER_READ * 4 + t) * (16 / Stored::SIZE) + i % PER_READ * 4;
        load(query[i], reinterpret_cast<const char*>(q + (q_row * DIM + dim) / 2), g < live);
    }
    const float stretch = Load<Query, Compute>::rescaled(query, FOURS);

    // A lane's two columns: the scale of their scores, and the keys that they see.
    float scales[2];
    int low[2], high[2];
    for (int c = 0; c < 2; ++c) {
        const int row = 2 * t + c, own = kv_len - q_len + row / size;
        scales[c] = (float)scale * __shfl_sync(ALL, stretch, 4 * row) * (k_scale ? k_scale[kv_head] : 1.0f);
        low[c] = window ? own - (int)window + 1 : 0;
        high[c] = row >= live ? -1 : causal ? min(own, end - 1) : end - 1;
    }

    unsigned found[LOOKUPS];
    unsigned k_words[SUB][2][K_READS][4], v_words[SUB][4][V_READS][V_BYTES / 4];
    const int* table = page_table + request * pages;
    const unsigned stride = (unsigned)(kv_heads * HEAD);       // bytes of a row of the cache
    const char* const k_lane = k + kv_head * HEAD + 16 * t;
    const char* const v_lane = v + kv_head * HEAD + V_BYTES * g;
    const auto look_up = [&](int at) {  // the cache's rows of keys at + lane, at + lane + 32
        for (int i = 0; i < LOOKUPS; ++i) {
            // Past the end stands the last key once more: it is there, no NaN of an empty row, and weighs nothing again.
            const unsigned key = min(at + 32 * i + lane, end - 1), tokens = (unsigned)page_size;
            found[i] = table[key / tokens] * tokens + key % tokens;
        }
    };
    const auto load_k = [&]() {
        for (int s = 0; s < SUB; ++s)
            for (int half = 0; half < 2; ++half) {
                const unsigned row = __shfl_sync(ALL, found[16 * s / 32], (16 * s + 8 * half + g) % 32);
                const char* head = k_lane + (unsigned long long)row * stride;
                for (int i = 0; i < K_READS; ++i) load(k_words[s][half][i], head + 64 * i);
            }
    };
    const auto load_v = [&]() {
        for (int s = 0; s < SUB; ++s)
            for (int i = 0; i < 4; ++i) {
                const unsigned row = __shfl_sync(ALL, found[16 * s / 32], (16 * s + 2 * t + i % 2 + i / 2 * 8) % 32);
                const char* head = v_lane + (unsigned long long)row * stride;
                for (int r = 0; r < V_READS; ++r) load(v_words[s][i][r], head + 8 * V_BYTES * r);
            }
    };

    float acc[DIM / 16][4] = {}, m[2] = {NOTHING, NOTHING}, l[2] = {};
    int at = begin + STEP * strip;
    look_up(at);
    load_k();
    load_v();
    look_up(at + STEP * SHARING);
    for (; at < end; at += STEP * SHARING) {
        float scores[SUB][4] = {};
        for (int s = 0; s < SUB; ++s)
            for (int i = 0; i < FOURS; ++i) {
                unsigned a[4];
                Stored::four(k_words[s][0][i / PER_READ], i % PER_READ, a[0], a[2]);
                Stored::four(k_words[s][1][i / PER_READ], i % PER_READ, a[1], a[3]);
                Compute::multiply(scores[s], a, query[i][0], query[i][1]);
            }
        load_k();  // of the next step, while this one goes on

        float top[2] = {m[0], m[1]}, shift[2], fade[2];
        for (int s = 0; s < SUB; ++s)
            for (int i = 0; i < 4; ++i) {
                const int key = at + 16 * s + g + i / 2 * 8;
                float score = scores[s][i] * scales[i % 2];
                if (cap > 0) score = (float)cap * (2.0f / (1.0f + exp2_fast(-2.0f * LOG2_E * score)) - 1.0f);  // tanh
                scores[s][i] = key >= low[i % 2] && key <= high[i % 2] ? score : NOTHING;
                top[i % 2] = fmaxf(top[i % 2], scores[s][i]);
            }
        for (int c = 0; c < 2; ++c) {
            top[c] = over_keys(top[c], false);
            shift[c] = top[c] == NOTHING ? 0.0f : top[c];  // taken from itself minus infinity would be NaN
            fade[c] = exp2_fast(m[c] - shift[c]);
            l[c] *= fade[c];
        }
        if (__any_sync(ALL, top[0] > m[0] || top[1] > m[1]))
            for (int tile = 0; tile < DIM / 16; ++tile)
                for (int i = 0; i < 4; ++i) acc[tile][i] *= fade[i % 2];
        m[0] = top[0], m[1] = top[1];

        for (int s = 0; s < SUB; ++s) {
            for (int i = 0; i < 4; ++i) {
                scores[s][i] = exp2_fast(scores[s][i] - shift[i % 2]);
                l[i % 2] += scores[s][i];
            }
            const unsigned p0 = transpose(Compute::pack(scores[s][0], scores[s][1]));
            const unsigned p1 = transpose(Compute::pack(scores[s][2], scores[s][3]));
            for (int r = 0; r < V_READS; ++r)
                for (int i = 0; i < V_DIMS / 2; ++i) {
                    unsigned a[4];
                    Stored::beside(v_words[s][0][r], v_words[s][1][r], i, a[0], a[1]);
                    Stored::beside(v_words[s][2][r], v_words[s][3][r], i, a[2], a[3]);
                    Compute::multiply(acc[r * (V_DIMS / 2) + i], a, p0, p1);
                }
        }
        load_v();
        look_up(at + 2 * STEP * SHARING);
    }

    // The results of a head's warps become one: weighed by their maxima, and added up in turn.
    __shared__ float maxima[WARPS][8], sums[WARPS][8], total[HEADS][8][DIM];
    for (int c = 0; c < 2; ++c) {
        l[c] = over_keys(l[c], true);
        if (g == 0) maxima[warp][2 * t + c] = m[c], sums[warp][2 * t + c] = l[c];
    }
    __syncthreads();
    const auto largest = [&](int head, int row) {
        float most = maxima[head][row];
        for (int w = 1; w < SHARING; ++w) most = fmaxf(most, maxima[head + w * HEADS][row]);
        return most == NOTHING ? 0.0f : most;
    };
    const float weight[2] = {
        exp2_fast(m[0] - largest(head_of_block, 2 * t)), exp2_fast(m[1] - largest(head_of_block, 2 * t + 1))};
    for (int turn = 0; turn < SHARING; ++turn) {
        if (strip == turn)
            for (int tile = 0; tile < DIM / 16; ++tile)
                for (int i = 0; i < 4; ++i) {
                    const int r = tile / (V_DIMS / 2), within = tile % (V_DIMS / 2) * 2 + i / 2;
                    float& sum = total[head_of_block][2 * t + i % 2][(8 * r + g) * V_DIMS + within];
                    sum = (turn ? sum : 0.0f) + acc[tile][i] * weight[i % 2];
                }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < HEADS * live * DIM; i += 32 * WARPS) {
        const int of = i / (live * DIM), row = i / DIM % live, dim = i % DIM, kv = kv_head - head_of_block + of;
        const float most = largest(of, row);
        float value = total[of][row][dim] * (v_scale ? v_scale[kv] : 1.0f), sum = 0.0f;
        for (int w = of; w < WARPS; w += HEADS) sum += sums[w][row] * exp2_fast(maxima[w][row] - most);
        const int head = kv * size + row % size;
        if (whole) {
            if (sinks) {
                const float sink = sinks[head] * LOG2_E, both = fmaxf(most, sink);
                value *= exp2_fast(most - both);
                sum = sum * exp2_fast(most - both) + exp2_fast(sink - both);
            }
            const long long token_head = first_row + row / size * (kv_heads * group) + head;
            out[token_head * DIM + dim] = (unsigned short)Query::pack(value / sum, 0.0f);
        } else {
            const long long slot = (part * kv_heads + kv) * rows + row;
            part_acc[slot * DIM + dim] = value;
            // A row that saw nothing here has the sum 0, and weighs nothing whatever its maximum.
            if (dim == 0) part_m[slot] = sum > 0.0f ? most : NOTHING, part_l[slot] = sum;
        }
    }
}
