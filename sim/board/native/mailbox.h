// SPDX-License-Identifier: BSD-2-Clause
// The mailbox as a page of shared memory, for clients that cannot make register accesses: a GPU
// kernel stores to the page, and the stores become writes of the registers.
//
// A word of the page is 0, "empty", or the value of a write that has not been taken: one of
// 1 to 2^32 - 1, since a write of 0 cannot be told from none. Taking exchanges a word for 0, so
// that no store is lost that the one before it was taken from; two stores that meet in a word
// leave the later one, as two writes of a register would.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace peerdma {

class Mailbox {
public:
    static constexpr uint64_t kPage = 4096;

    // `words`: byte offsets of the registers in their BAR, ascending, all in one page.
    // Throws std::system_error.
    explicit Mailbox(const std::vector<uint64_t> &words);
    ~Mailbox();
    Mailbox(const Mailbox &) = delete;

    // The file, as long as the BAR up to the end of the page, which lies where it does in the BAR.
    int fd() const { return fd_; }
    uint64_t page() const { return page_; }

    // Calls `write` with offset and value of what has been stored since, in ascending order.
    // Whoever stores in ascending order has it written in that order.
    void take(const std::function<void(uint64_t, uint32_t)> &write);

private:
    std::vector<uint64_t> words_;
    uint64_t page_;
    int fd_;
    uint8_t *memory_;  // the page
};

}  // namespace peerdma
