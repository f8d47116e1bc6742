// SPDX-License-Identifier: BSD-2-Clause
// The function's configuration space: an image and which of its bits a write changes or clears.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace peerdma {

class ConfigSpace {
public:
    static constexpr size_t kSize = 4096;
    using Bytes = std::array<uint8_t, kSize>;

    // `writable` bits take what is written; writing 1 to a `clearable` bit clears it.
    ConfigSpace(const Bytes &image, const Bytes &writable, const Bytes &clearable);

    void reset() { bytes_ = image_; }
    // As a function-level reset does: what is the link's stays.
    void reset_function();
    // The caller has checked that the range is inside.
    void read(size_t offset, uint8_t *to, size_t n) const;
    // True if the function is to be reset by that.
    bool write(size_t offset, const uint8_t *from, size_t n);

    uint16_t command() const { return get16(kCommand); }
    bool memory_enabled() const { return (command() & 2) && awake(); }
    bool bus_master() const { return (command() & 4) && awake(); }
    bool intx_disabled() const { return command() >> 10 & 1; }
    uint16_t device_control() const { return get16(express_ + 8); }
    unsigned max_payload_code() const { return device_control() >> 5 & 7; }
    unsigned max_read_code() const { return device_control() >> 12 & 7; }
    bool has_function_reset() const { return get32(express_ + 4) >> 28 & 1; }
    bool extended_tag() const { return device_control() >> 8 & 1; }
    bool relaxed_ordering() const { return device_control() >> 4 & 1; }
    bool boundary_128() const { return get16(express_ + 0x10) >> 3 & 1; }
    unsigned link_speed() const { return get16(express_ + 0x12) & 15; }
    unsigned link_width() const { return get16(express_ + 0x12) >> 4 & 63; }
    bool has_msi() const { return msi_; }
    bool has_msix() const { return msix_; }
    bool has_intx() const { return bytes_[kInterruptPin]; }
    bool msi_enabled() const { return msi_ && (get16(msi_ + 2) & 1); }
    unsigned msi_granted_code() const { return msi_ ? get16(msi_ + 2) >> 4 & 7 : 0; }
    unsigned msi_vectors() const { return msi_ ? 1u << (get16(msi_ + 2) >> 1 & 7) : 0; }
    uint64_t msi_address() const;
    uint16_t msi_data() const;
    bool msix_enabled() const { return msix_ && get16(msix_ + 2) >> 15; }
    bool msix_masked() const { return msix_ && get16(msix_ + 2) >> 14 & 1; }
    unsigned msix_vectors() const { return msix_ ? (get16(msix_ + 2) & 0x7FF) + 1 : 0; }
    unsigned msix_bar() const { return bytes_[msix_ + 4] & 7; }
    uint32_t msix_table() const { return get32(msix_ + 4) & ~7u; }
    uint64_t bar_address(unsigned bar) const { return get32(0x10 + 4 * bar) & ~0xFu; }
    uint64_t bar_size(unsigned bar) const;

    // What enabling by interrupt set-up does in VFIO: the enable bit follows.
    void set_msi_enabled(bool on);
    void set_msix_enabled(bool on);
    // State and errors that the hard block reports in Status and Device Status.
    void set_intx_status(bool on) { put16(kStatus, 1 << 3, on); }
    void set_transactions_pending(bool on) { put16(express_ + 0xA, 1 << 5, on); }
    void report_status(uint16_t bits) { put16(kStatus, bits, true); }
    void report_device_status(uint16_t bits) { put16(express_ + 0xA, bits, true); }

private:
    static constexpr size_t kCommand = 0x04, kStatus = 0x06, kInterruptPin = 0x3D;

    uint16_t get16(size_t at) const { return bytes_[at] | bytes_[at + 1] << 8; }
    uint32_t get32(size_t at) const { return get16(at) | uint32_t(get16(at + 2)) << 16; }
    void put16(size_t at, uint16_t bits, bool on);
    bool awake() const { return !power_ || (get16(power_ + 4) & 3) == 0; }
    size_t capability(uint8_t id) const;

    Bytes image_, writable_, clearable_, bytes_;
    size_t power_, msi_, msix_, express_;
};

}  // namespace peerdma
