// SPDX-License-Identifier: BSD-2-Clause
// Registers as pages of shared memory, for clients that cannot make register accesses: a GPU kernel
// stores to a page, and the stores become writes of the registers.
//
// A register of a page is 0, "empty", or a value that has been stored and not yet forwarded, which
// is not 0, since that would not be noticed. Forwarding atomically exchanges it for 0, so that a
// store at the same time is not lost. Of two stores to a register that has not been forwarded the
// later one remains, as with two writes; so all stores to one have its whole width. One of 8 bytes
// whose upper half is 0 becomes a write of 4.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace peerdma {

class RegisterPages {
public:
    static constexpr uint64_t kPage = 4096;

    struct Register {
        uint64_t offset;  // in the BAR
        uint32_t bytes;   // 4 or 8
    };

    // `registers`: ascending, all in pages that follow each other. Throws std::system_error.
    explicit RegisterPages(const std::vector<Register> &registers);
    ~RegisterPages();
    RegisterPages(const RegisterPages &) = delete;

    // The file, as long as the BAR up to the last page's end; each page lies where it does there.
    int fd() const { return fd_; }
    uint64_t offset() const { return offset_; }
    uint64_t size() const { return size_; }

    // Calls `write` for each register stored since, in ascending order. Stores that are made in
    // ascending order are therefore written in that order.
    void take(const std::function<void(Register, uint64_t value)> &write);

private:
    std::vector<Register> registers_;
    uint64_t offset_, size_;
    int fd_;
    uint8_t *memory_;  // the pages
};

}  // namespace peerdma
