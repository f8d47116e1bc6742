// SPDX-License-Identifier: BSD-2-Clause
// Transaction layer packets (PCI Express Base Specification, transaction layer).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace peerdma {

// A TLP as its dwords, header first, byte 0 of each dword in bits 31:24 as at the TRN ports.
using Words = std::vector<uint32_t>;

enum class Kind { MemoryRead, MemoryWrite, Completion, Message, Other };

enum Status : uint8_t { kSuccess = 0, kUnsupportedRequest = 1, kCompleterAbort = 4 };

struct Header {
    Kind kind = Kind::Other;
    bool has_data = false;
    bool four_dw = false;
    bool digest = false;
    bool poisoned = false;
    uint8_t traffic_class = 0;
    uint8_t attributes = 0;
    unsigned dws = 0;  // length field, 1 to 1024
    uint16_t requester = 0;
    uint8_t tag = 0;
    // Requests
    uint8_t first_be = 0;
    uint8_t last_be = 0;
    uint64_t address = 0;  // bits 1:0 are 0
    // Completions
    uint16_t completer = 0;
    uint8_t status = 0;
    unsigned byte_count = 0;  // 1 to 4096
    uint8_t lower_address = 0;

    unsigned header_dws() const { return four_dw ? 4 : 3; }
    unsigned payload_dws() const { return has_data ? dws : 0; }
    // First enabled byte and number of bytes up to the last enabled one; requests only.
    unsigned first_byte() const;
    unsigned bytes() const;

    // `words` must hold at least the four (three) dwords of its header.
    static Header parse(const Words &words);
};

// True if `words` is as long as its header says a TLP must be.
bool complete(const Words &words);

// What the hard block and the configuration allow the core to send.
struct Limits {
    uint16_t requester;
    unsigned max_payload;  // bytes
    unsigned max_read;     // bytes
    bool bus_master;
    bool extended_tag;
    bool relaxed_ordering;
};

// Why a TLP of the core breaks the rules; empty if it does not.
std::string violation(const Words &words, const Limits &limits);

// Byte enables of a request for `n` > 0 bytes from byte address `address`.
struct ByteEnables {
    uint8_t first, last;
    unsigned dws;
    static ByteEnables of(uint64_t address, size_t n);
};

Words memory_read(uint64_t address, size_t n, uint16_t requester, uint8_t tag);
Words memory_write(uint64_t address, const uint8_t *data, size_t n, uint16_t requester);
// The header alone of a memory request or a completion: fields as in Header, payload to follow.
Words request_header(const Header &request);
Words completion_header(const Header &request, uint16_t completer, Status status,
                        unsigned byte_count, uint8_t lower_address, unsigned dws, bool poisoned);
// Payload from the dword holding the first byte; `data` starts at that dword.
Words completion(const Header &request, uint16_t completer, Status status, unsigned byte_count,
                 uint8_t lower_address, const uint8_t *data, unsigned dws, bool poisoned);
// Assert_INTA or Deassert_INTA.
Words intx_message(bool assert, uint16_t requester);

// Memory bytes in order -> a dword with byte 0 in bits 31:24, and back.
inline uint32_t load_dword(const uint8_t *p) {
    return uint32_t(p[0]) << 24 | uint32_t(p[1]) << 16 | uint32_t(p[2]) << 8 | p[3];
}
inline void store_dword(uint8_t *p, uint32_t v) {
    p[0] = v >> 24, p[1] = v >> 16, p[2] = v >> 8, p[3] = v;
}

// One line of text: kind, address, length, tag, byte enables, first payload bytes.
std::string describe(const Words &words);

}  // namespace peerdma
