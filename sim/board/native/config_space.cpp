// SPDX-License-Identifier: BSD-2-Clause
#include "config_space.h"

#include <cstring>
#include <stdexcept>

namespace peerdma {

namespace {
constexpr uint8_t kCapPower = 0x01, kCapMsi = 0x05, kCapExpress = 0x10, kCapMsix = 0x11;
constexpr size_t kCapPointer = 0x34;
// In bytes of Device Control: Max_Payload_Size in the first, Initiate Function Level Reset in the
// second.
constexpr uint8_t kPayloadMask = 7 << 5, kInitiateReset = 1 << 7;
}  // namespace

ConfigSpace::ConfigSpace(const Bytes &image, const Bytes &writable, const Bytes &clearable)
    : image_(image), writable_(writable), clearable_(clearable), bytes_(image) {
    power_ = capability(kCapPower);
    msi_ = capability(kCapMsi);
    msix_ = capability(kCapMsix);
    express_ = capability(kCapExpress);
    if (!express_) throw std::invalid_argument("the image has no PCI Express capability");
}

size_t ConfigSpace::capability(uint8_t id) const {
    size_t at = image_[kCapPointer];
    for (int i = 0; at && i < 48; i++, at = image_[at + 1])
        if (image_[at] == id) return at;
    return 0;
}

void ConfigSpace::read(size_t offset, uint8_t *to, size_t n) const {
    memcpy(to, &bytes_[offset], n);
}

void ConfigSpace::reset_function() {
    Bytes before = bytes_;
    bytes_ = image_;
    // Max_Payload_Size, Link Control, and Link Control 2, which is sticky (PCI Express Base
    // Specification, "Function Level Reset"); speed and width in Link Status are what they are.
    uint8_t &size = bytes_[express_ + 8];
    size = (size & ~kPayloadMask) | (before[express_ + 8] & kPayloadMask);
    for (size_t at : {0x10, 0x11, 0x30, 0x31}) bytes_[express_ + at] = before[express_ + at];
}

bool ConfigSpace::write(size_t offset, const uint8_t *from, size_t n) {
    size_t initiate = express_ + 9;
    bool resets = has_function_reset() && offset <= initiate && initiate < offset + n &&
                  (from[initiate - offset] & kInitiateReset);
    for (size_t i = 0; i < n; i++) {
        uint8_t &byte = bytes_[offset + i];
        uint8_t mask = writable_[offset + i];
        byte = (byte & ~mask) | (from[i] & mask);
        byte &= ~(from[i] & clearable_[offset + i]);
    }
    return resets;
}

void ConfigSpace::put16(size_t at, uint16_t bits, bool on) {
    uint16_t value = on ? get16(at) | bits : get16(at) & ~bits;
    bytes_[at] = value, bytes_[at + 1] = value >> 8;
}

uint64_t ConfigSpace::msi_address() const {
    bool wide = get16(msi_ + 2) & 0x80;
    return get32(msi_ + 4) | (wide ? uint64_t(get32(msi_ + 8)) << 32 : 0);
}

uint16_t ConfigSpace::msi_data() const {
    return get16(msi_ + (get16(msi_ + 2) & 0x80 ? 12 : 8));
}

uint64_t ConfigSpace::bar_size(unsigned bar) const {
    uint32_t mask = 0;
    for (int i = 0; i < 4; i++) mask |= uint32_t(writable_[0x10 + 4 * bar + i]) << (8 * i);
    return mask ? uint64_t(~mask) + 1 : 0;
}

void ConfigSpace::set_msi_enabled(bool on) {
    if (msi_) put16(msi_ + 2, 1, on);
}

void ConfigSpace::set_msix_enabled(bool on) {
    if (msix_) put16(msix_ + 2, 1 << 15, on);
}

}  // namespace peerdma
