// SPDX-License-Identifier: BSD-2-Clause
// The mailbox as a page of shared memory, for clients that cannot make register accesses: a GPU
// kernel stores to the page, and the stores become writes of the registers.
//
// A word of the page is 0, "empty", or a value that has been stored and not yet forwarded: 1 to
// 2^32 - 1, since 0 would not be noticed. Forwarding atomically exchanges the word for 0, so that a
// store at the same time is not lost. Of two stores to a word that has not been forwarded the later
// one remains, as with two writes of a register.
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

    // Calls `write` with offset and value of each word stored since, in ascending order. Stores
    // that are made in ascending order are therefore written in that order.
    void take(const std::function<void(uint64_t, uint32_t)> &write);

private:
    std::vector<uint64_t> words_;
    uint64_t page_;
    int fd_;
    uint8_t *memory_;  // the page
};

}  // namespace peerdma
