// SPDX-License-Identifier: BSD-2-Clause
#include "gpu_bar.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace peerdma {

namespace {

constexpr size_t kLine = 64;
// Lines whose loads are begun before the first has to have ended.
constexpr size_t kBlock = 8;

// A word as wide as a processor stores at once.
#ifdef __aarch64__
using Word = unsigned __int128;
void store(uint8_t *to, Word word) {
    asm volatile("stp %1, %2, %0"
                 : "=Q"(*reinterpret_cast<Word *>(to))
                 : "r"(uint64_t(word)), "r"(uint64_t(word >> 64)));
}
#else
using Word = uint64_t;
void store(uint8_t *to, Word word) { *reinterpret_cast<volatile Word *>(to) = word; }
#endif

// Write-combined stores leave the processor in their order only where it is told to.
void push_stores() {
#ifdef __x86_64__
    _mm_sfence();
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

using Loader = void (*)(uint8_t *to, const uint8_t *from, size_t lines);

void load_words(uint8_t *to, const uint8_t *from, size_t lines) {
    for (size_t at = 0; at < lines * kLine; at += 8) {
        uint64_t word = *reinterpret_cast<const volatile uint64_t *>(from + at);
        memcpy(to + at, &word, sizeof word);
    }
}

#ifdef __x86_64__
// From write-combined memory, only these load more than 8 bytes at a time.
__attribute__((target("sse4.1"))) void stream_lines(uint8_t *to, const uint8_t *from,
                                                     size_t lines) {
    auto *source = const_cast<__m128i *>(reinterpret_cast<const __m128i *>(from));
    auto *target = reinterpret_cast<__m128i *>(to);
    for (size_t i = 0; i < lines * kLine / sizeof *target; i++)
        _mm_store_si128(target + i, _mm_stream_load_si128(source + i));
}
#endif

Loader loader() {
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.1")) return stream_lines;
#endif
    return load_words;
}

}  // namespace

void store_to_gpu(uint8_t *to, const uint8_t *from, size_t n) {
    auto bytes = [&](size_t count) {
        for (size_t i = 0; i < count; i++) *const_cast<volatile uint8_t *>(to++) = *from++;
        n -= count;
    };
    bytes(std::min<size_t>(n, -reinterpret_cast<uintptr_t>(to) % sizeof(Word)));
    for (; n >= sizeof(Word); to += sizeof(Word), from += sizeof(Word), n -= sizeof(Word)) {
        Word word;
        memcpy(&word, from, sizeof word);
        store(to, word);
    }
    bytes(n);
    push_stores();
}

void load_from_gpu(uint8_t *to, const uint8_t *from, size_t n) {
    static const Loader load = loader();
    // A streaming load may be of what an earlier one has brought, unless a fence is between.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    size_t skip = reinterpret_cast<uintptr_t>(from) % kLine;
    for (from -= skip; n; from += kBlock * kLine, skip = 0) {
        alignas(kLine) uint8_t block[kBlock * kLine];
        size_t count = std::min(n, sizeof block - skip);
        load(block, from, (skip + count + kLine - 1) / kLine);
        memcpy(to, block + skip, count);
        to += count, n -= count;
    }
}

}  // namespace peerdma
