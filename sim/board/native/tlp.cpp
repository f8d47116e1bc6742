// SPDX-License-Identifier: BSD-2-Clause
#include "tlp.h"

#include <cstdio>

namespace peerdma {

namespace {

// Fmt and Type fields, DW 0 bits 31:24.
constexpr uint32_t kHasData = 0x40, kFourDw = 0x20, kTypeMask = 0x1F;
constexpr uint32_t kTypeMemory = 0x00, kTypeCompletion = 0x0A, kTypeMessage = 0x10;
constexpr uint8_t kMessageLocal = 0x14;  // Msg, terminate at receiver
constexpr uint8_t kAssertInta = 0x20, kDeassertInta = 0x24;

unsigned lowest(unsigned be) { return be ? __builtin_ctz(be) : 0; }
unsigned highest(unsigned be) { return be ? 31 - __builtin_clz(be) : 0; }
bool contiguous(unsigned be) { return be && ((be >> lowest(be)) & ((be >> lowest(be)) + 1)) == 0; }

Words header(uint32_t fmt_type, unsigned dws, uint16_t requester, uint8_t tag, ByteEnables be,
             uint64_t address) {
    bool four = address >> 32;
    Words words = {(fmt_type | (four ? kFourDw : 0)) << 24 | (dws & 0x3FF),
                   uint32_t(requester) << 16 | uint32_t(tag) << 8 | uint32_t(be.last) << 4 |
                       be.first};
    if (four) words.push_back(address >> 32);
    words.push_back(uint32_t(address) & ~3u);
    return words;
}

std::string text(const char *format, unsigned long long a, unsigned long long b = 0) {
    char line[160];
    snprintf(line, sizeof line, format, a, b);
    return line;
}

std::string request_violation(const Header &h, const Limits &limits) {
    if (!limits.bus_master) return "memory request while Bus Master Enable is 0";
    if (h.four_dw && h.address >> 32 == 0)
        return text("4-DW header for address 0x%llx below 4 GiB", h.address);
    if ((h.address & 0xFFF) + 4 * h.dws > 4096)
        return text("0x%llx + %llu bytes crosses a 4 KiB boundary", h.address, 4 * h.dws);
    // One dword, and two within a quadword, may have holes in their byte enables.
    bool holes = h.dws == 1 || (h.dws == 2 && h.address % 8 == 0);
    bool whole = contiguous(h.first_be) && (h.first_be & 8) && contiguous(h.last_be) &&
                 (h.last_be & 1);
    if (h.dws == 1 ? h.last_be != 0 : !h.first_be || !h.last_be || !(holes || whole))
        return text("byte enables first 0x%llx last 0x%llx are illegal", h.first_be, h.last_be);
    if (h.kind == Kind::MemoryWrite && 4 * h.dws > limits.max_payload)
        return text("payload of %llu bytes exceeds MPS %llu", 4 * h.dws, limits.max_payload);
    if (h.kind == Kind::MemoryRead && 4 * h.dws > limits.max_read)
        return text("read of %llu bytes exceeds MRRS %llu", 4 * h.dws, limits.max_read);
    if (h.kind == Kind::MemoryRead && h.tag > 31 && !limits.extended_tag)
        return text("tag %llu without Extended Tag Field Enable", h.tag);
    if ((h.attributes & 2) && !limits.relaxed_ordering)
        return "relaxed ordering without Enable Relaxed Ordering";
    return {};
}

}  // namespace

unsigned Header::first_byte() const { return lowest(first_be); }

unsigned Header::bytes() const {
    unsigned last = dws == 1 ? highest(first_be) : 4 * (dws - 1) + highest(last_be);
    return last + 1 - first_byte();
}

Header Header::parse(const Words &w) {
    Header h;
    uint32_t fmt_type = w[0] >> 24;
    h.has_data = fmt_type & kHasData;
    h.four_dw = fmt_type & kFourDw;
    h.digest = w[0] >> 15 & 1;
    h.poisoned = w[0] >> 14 & 1;
    h.traffic_class = w[0] >> 20 & 7;
    h.attributes = w[0] >> 12 & 3;
    h.dws = (w[0] & 0x3FF) ? w[0] & 0x3FF : 1024;
    if (fmt_type & 0x80) return h;
    uint32_t type = fmt_type & kTypeMask;
    if (type == kTypeCompletion) {
        h.kind = Kind::Completion;
        h.completer = w[1] >> 16;
        h.status = w[1] >> 13 & 7;
        h.byte_count = (w[1] & 0xFFF) ? w[1] & 0xFFF : 4096;
        h.requester = w[2] >> 16;
        h.tag = w[2] >> 8;
        h.lower_address = w[2] & 0x7F;
        return h;
    }
    h.requester = w[1] >> 16;
    h.tag = w[1] >> 8;
    if (type == kTypeMemory) {
        h.kind = h.has_data ? Kind::MemoryWrite : Kind::MemoryRead;
        h.first_be = w[1] & 15;
        h.last_be = w[1] >> 4 & 15;
        h.address = h.four_dw ? uint64_t(w[2]) << 32 | (w[3] & ~3u) : w[2] & ~3u;
    } else if ((type & 0x18) == kTypeMessage) {
        h.kind = Kind::Message;
    }
    return h;
}

bool complete(const Words &words) {
    if (words.size() < 3 || ((words[0] >> 24 & kFourDw) && words.size() < 4)) return false;
    Header h = Header::parse(words);
    return words.size() == h.header_dws() + h.payload_dws();
}

std::string violation(const Words &words, const Limits &limits) {
    if (!complete(words)) {
        uint32_t first = words.empty() ? 0 : words[0];
        return text("%llu dwords do not match the length in header 0x%08llx", words.size(), first);
    }
    Header h = Header::parse(words);
    if (h.kind == Kind::Other || h.kind == Kind::Message)
        return text("type 0x%02llx is not for the core to send", words[0] >> 24);
    if (h.digest || h.poisoned || h.traffic_class || (words[0] & 0x808F0C00))
        return text("reserved or unsupported bits set in header 0x%08llx", words[0]);
    uint16_t id = h.kind == Kind::Completion ? h.completer : h.requester;
    if (id != limits.requester)
        return text("id %04llx instead of %04llx", id, limits.requester);
    if (h.kind != Kind::Completion) return request_violation(h, limits);
    // The host's register accesses have no attributes, and a completion copies its request's.
    return h.attributes ? text("attributes %llu in a completion", h.attributes) : std::string();
}

ByteEnables ByteEnables::of(uint64_t address, size_t n) {
    unsigned first = address & 3, end = first + n;
    unsigned dws = (end + 3) / 4;
    uint8_t head = 0xF << first & 0xF, tail = 0xF >> (4 * dws - end);
    if (dws == 1) return {uint8_t(head & tail), 0, 1};
    return {head, tail, dws};
}

Words request_header(const Header &h) {
    Words words = header(kTypeMemory | (h.kind == Kind::MemoryWrite ? kHasData : 0), h.dws,
                         h.requester, h.tag, {h.first_be, h.last_be, h.dws}, h.address);
    words[0] |= uint32_t(h.attributes) << 12;
    return words;
}

Words memory_read(uint64_t address, size_t n, uint16_t requester, uint8_t tag) {
    ByteEnables be = ByteEnables::of(address, n);
    return header(kTypeMemory, be.dws, requester, tag, be, address);
}

Words memory_write(uint64_t address, const uint8_t *data, size_t n, uint16_t requester) {
    ByteEnables be = ByteEnables::of(address, n);
    Words words = header(kTypeMemory | kHasData, be.dws, requester, 0, be, address);
    std::vector<uint8_t> padded(4 * be.dws);
    for (size_t i = 0; i < n; i++) padded[(address & 3) + i] = data[i];
    for (unsigned i = 0; i < be.dws; i++) words.push_back(load_dword(&padded[4 * i]));
    return words;
}

Words completion_header(const Header &request, uint16_t completer, Status status,
                        unsigned byte_count, uint8_t lower_address, unsigned dws, bool poisoned) {
    uint32_t fmt_type = kTypeCompletion | (dws ? kHasData : 0);
    return {fmt_type << 24 | uint32_t(request.traffic_class) << 20 | uint32_t(poisoned) << 14 |
                uint32_t(request.attributes) << 12 | (dws & 0x3FF),
            uint32_t(completer) << 16 | uint32_t(status) << 13 | (byte_count & 0xFFF),
            uint32_t(request.requester) << 16 | uint32_t(request.tag) << 8 |
                (lower_address & 0x7Fu)};
}

Words completion(const Header &request, uint16_t completer, Status status, unsigned byte_count,
                 uint8_t lower_address, const uint8_t *data, unsigned dws, bool poisoned) {
    Words words = completion_header(request, completer, status, byte_count, lower_address, dws,
                                    poisoned);
    words.reserve(3 + dws);
    for (unsigned i = 0; i < dws; i++) words.push_back(load_dword(data + 4 * i));
    return words;
}

Words intx_message(bool assert, uint16_t requester) {
    return {uint32_t(kFourDw | kMessageLocal) << 24,
            uint32_t(requester) << 16 | (assert ? kAssertInta : kDeassertInta), 0, 0};
}

std::string describe(const Words &words) {
    if (!complete(words)) return "malformed";
    Header h = Header::parse(words);
    static const char *const kNames[] = {"MRd", "MWr", "Cpl", "Msg", "?"};
    char line[256];
    int n = snprintf(line, sizeof line, "%s%s", kNames[int(h.kind)],
                     h.kind == Kind::Completion && h.has_data ? "D" : "");
    auto add = [&](const char *format, auto... values) {
        n += snprintf(line + n, sizeof line - n, format, values...);
    };
    if (h.kind == Kind::MemoryRead || h.kind == Kind::MemoryWrite)
        add(" addr=0x%llx len=%u tag=%u be=%x/%x", (unsigned long long)h.address, 4 * h.dws, h.tag,
            h.first_be, h.last_be);
    else if (h.kind == Kind::Completion)
        add(" status=%u len=%u tag=%u count=%u low=0x%02x%s", h.status, h.has_data ? 4 * h.dws : 0,
            h.tag, h.byte_count, h.lower_address, h.poisoned ? " poisoned" : "");
    else
        add(" code=0x%02x", words[1] & 0xFF);
    if (h.has_data) add(" data=");
    for (unsigned i = 0; h.has_data && i < h.dws && i < 4; i++)
        add("%08x", words[h.header_dws() + i]);
    return line;
}

}  // namespace peerdma
