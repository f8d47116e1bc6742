// SPDX-License-Identifier: BSD-2-Clause
// Kernels on surfaces. The test pattern and the checksum are those of pattern.py, word for word.
//
// A surface is `nbytes` bytes at any address, seen as 32-bit words; a last partial word counts as
// if zeros followed. Aligned surfaces are worked on in vectors of 4 words, the rest word by word.
// Results are zeroed by the host before, except `Wrong::first`, which is all ones.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

struct Wrong {
    u64 first;  // number of the first wrong word
    u64 count;
};

// Vectors that a thread loads before it looks at the first: enough in flight to hide latency.
constexpr int kAhead = 8;

// Pattern ------------------------------------------------------------------------------------

__device__ inline u32 stir(u32 x) {
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    return x ^ x >> 16;
}

__device__ inline u32 mix(u32 x) { return stir(x ^ x >> 16); }

__device__ inline u32 key(u32 seed, u32 high) { return mix(mix(seed + 0x9E3779B9u) ^ high); }

// The offsets of words, scrambled with a seed: mix(offset[31:0] ^ key(seed, offset[63:32])).
class Offsets {
public:
    __device__ explicit Offsets(u32 seed) : seed_(seed), high_(0), key_(key(seed, 0)) {}

    __device__ u32 word(u64 offset) {
        select(offset >> 32);
        return mix(u32(offset) ^ key_);
    }

    // Of words 4 * vector to 4 * vector + 3: they differ in their last two bits only, so that the
    // first step of mix is the same for all.
    __device__ uint4 vector(u64 vector) {
        select(vector >> 30);
        u32 x = u32(vector << 2) ^ key_;
        x ^= x >> 16;
        return make_uint4(stir(x), stir(x ^ 1), stir(x ^ 2), stir(x ^ 3));
    }

private:
    __device__ void select(u32 high) {
        if (high != high_) high_ = high, key_ = key(seed_, high);
    }

    u32 seed_, high_, key_;
};

class Pattern {
public:
    __device__ explicit Pattern(u32 seed) : offsets_(seed), seed_(seed) {}
    __device__ u32 word(u64 offset) { return mix(offsets_.word(offset) + seed_); }
    __device__ uint4 vector(u64 vector) {
        uint4 x = offsets_.vector(vector);
        return make_uint4(mix(x.x + seed_), mix(x.y + seed_), mix(x.z + seed_), mix(x.w + seed_));
    }

private:
    Offsets offsets_;
    u32 seed_;
};

// Surfaces -----------------------------------------------------------------------------------

__device__ inline u64 thread() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline u64 threads() { return u64(gridDim.x) * blockDim.x; }

// Volatile: a board or another processor may be writing.
__device__ inline u32 load_word(const volatile u8 *at, u64 nbytes, u64 word) {
    u32 value = 0;
    for (int i = 0; i < 4; i++)
        if (word * 4 + i < nbytes) value |= u32(at[word * 4 + i]) << 8 * i;
    return value;
}

__device__ inline u64 vectors(const u8 *at, u64 nbytes) { return u64(at) % 16 ? 0 : nbytes / 16; }

class Surface {
public:
    __device__ Surface(const u8 *at, u64 nbytes) : at_(at), nbytes_(nbytes) {}
    __device__ u32 word(u64 offset) { return load_word(at_, nbytes_, offset); }
    __device__ uint4 vector(u64 vector) { return __ldcs((const uint4 *)at_ + vector); }

private:
    const u8 *at_;
    u64 nbytes_;
};

__device__ inline u32 differ(uint4 a, uint4 b) {
    return (a.x ^ b.x) | (a.y ^ b.y) | (a.z ^ b.z) | (a.w ^ b.w);
}

class Tally {
public:
    __device__ void word(u64 offset, u32 found, u32 wanted) {
        if (found == wanted) return;
        if (!count_++) first_ = offset;  // each thread goes upwards
    }
    __device__ void vector(u64 vector, uint4 found, uint4 wanted) {
        word(4 * vector, found.x, wanted.x);
        word(4 * vector + 1, found.y, wanted.y);
        word(4 * vector + 2, found.z, wanted.z);
        word(4 * vector + 3, found.w, wanted.w);
    }
    __device__ void report(Wrong *wrong) {
        if (!count_) return;
        atomicMin(&wrong->first, first_);
        atomicAdd(&wrong->count, count_);
    }

private:
    u64 first_ = 0, count_ = 0;
};

template <class Wanted>
__device__ inline void check(const u8 *at, u64 nbytes, u64 in_vectors, Wanted wanted, Wrong *wrong) {
    Surface surface(at, nbytes);
    Tally tally;
    u64 v = thread();
    for (; v + (kAhead - 1) * threads() < in_vectors; v += kAhead * threads()) {
        uint4 found[kAhead], want[kAhead];
        for (int i = 0; i < kAhead; i++) found[i] = surface.vector(v + i * threads());
        u32 differing = 0;
        for (int i = 0; i < kAhead; i++) {
            want[i] = wanted.vector(v + i * threads());
            differing |= differ(found[i], want[i]);
        }
        if (differing)
            for (int i = 0; i < kAhead; i++) tally.vector(v + i * threads(), found[i], want[i]);
    }
    for (; v < in_vectors; v += threads()) tally.vector(v, surface.vector(v), wanted.vector(v));
    for (u64 i = 4 * in_vectors + thread(); i < (nbytes + 3) / 4; i += threads()) {
        u64 left = nbytes - 4 * i;
        u32 mask = left < 4 ? (1u << 8 * left) - 1 : ~0u;
        tally.word(i, surface.word(i), wanted.word(i) & mask);
    }
    tally.report(wrong);
}

extern "C" {

__global__ void fill(u8 *at, u64 nbytes, u32 seed) {
    Pattern pattern(seed);
    u64 in_vectors = vectors(at, nbytes);
    for (u64 v = thread(); v < in_vectors; v += threads()) __stcs((uint4 *)at + v, pattern.vector(v));
    for (u64 i = 4 * in_vectors + thread(); i < (nbytes + 3) / 4; i += threads()) {
        u32 value = pattern.word(i);
        for (int b = 0; b < 4 && 4 * i + b < nbytes; b++) at[4 * i + b] = u8(value >> 8 * b);
    }
}

__global__ void verify(const u8 *at, u64 nbytes, u32 seed, Wrong *wrong) {
    check(at, nbytes, vectors(at, nbytes), Pattern(seed), wrong);
}

__global__ void compare(const u8 *at, const u8 *other, u64 nbytes, Wrong *wrong) {
    u64 in_vectors = min(vectors(at, nbytes), vectors(other, nbytes));
    check(at, nbytes, in_vectors, Surface(other, nbytes), wrong);
}

__global__ void checksum(const u8 *at, u64 nbytes, u64 *sum) {
    Surface surface(at, nbytes);
    Offsets offsets(0);
    u64 total = 0, in_vectors = vectors(at, nbytes), v = thread();
    auto add = [&](u64 vector, uint4 found) {
        uint4 x = offsets.vector(vector);
        total += mix(x.x ^ found.x);
        total += mix(x.y ^ found.y);
        total += mix(x.z ^ found.z);
        total += mix(x.w ^ found.w);
    };
    for (; v + (kAhead - 1) * threads() < in_vectors; v += kAhead * threads()) {
        uint4 found[kAhead];
        for (int i = 0; i < kAhead; i++) found[i] = surface.vector(v + i * threads());
        for (int i = 0; i < kAhead; i++) add(v + i * threads(), found[i]);
    }
    for (; v < in_vectors; v += threads()) add(v, surface.vector(v));
    for (u64 i = 4 * in_vectors + thread(); i < (nbytes + 3) / 4; i += threads())
        total += mix(offsets.word(i) ^ surface.word(i));
    for (int offset = 16; offset; offset /= 2) total += __shfl_down_sync(~0u, total, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, total);
}

// Mailbox ------------------------------------------------------------------------------------

// One thread. Waits until the first and the last word of a surface hold the pattern of `seed`, and
// writes `token` to a register for each. Ends early when *cancel is not 0, or after `timeout_ns`;
// *seen is then how many words were seen.
__global__ void watch(const u8 *at, u64 nbytes, u32 seed, volatile u32 *first, volatile u32 *last,
                      u32 token, u64 timeout_ns, const volatile u32 *cancel, volatile u32 *seen) {
    auto now = [] {
        u64 time;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
        return time;
    };
    u64 began = now(), words = (nbytes + 3) / 4, tail = nbytes - 4 * (words - 1);
    u32 mask = tail < 4 ? (1u << 8 * tail) - 1 : ~0u;
    Pattern pattern(seed);
    auto arrives = [&](u64 word, u32 wanted) {
        while (load_word(at, nbytes, word) != wanted)
            if (*cancel || now() - began > timeout_ns) return false;
        return true;
    };
    auto report = [&](volatile u32 *where, u32 count) {
        __threadfence_system();  // the data has been seen before this is
        *where = token;
        __threadfence_system();
        *seen = count;
    };
    if (!arrives(0, words > 1 ? pattern.word(0) : pattern.word(0) & mask)) return;
    report(first, 1);
    if (!arrives(words - 1, pattern.word(words - 1) & mask)) return;
    report(last, 2);
}

// One thread. Writes `token` to a register, unless `watch` before it ended early.
__global__ void report(volatile u32 *where, u32 token, const volatile u32 *seen) {
    if (*seen != 2) return;
    __threadfence_system();
    *where = token;
    __threadfence_system();
}

}  // extern "C"
