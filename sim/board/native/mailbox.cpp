// SPDX-License-Identifier: BSD-2-Clause
#include "mailbox.h"

#include <cerrno>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace peerdma {

Mailbox::Mailbox(const std::vector<uint64_t> &words)
    : words_(words), page_(words.front() / kPage * kPage) {
    fd_ = memfd_create("peerdma-mailbox", MFD_CLOEXEC);
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
    void *memory = MAP_FAILED;
    if (!ftruncate(fd_, page_ + kPage))
        memory = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, page_);
    if (memory == MAP_FAILED) {
        int error = errno;
        close(fd_);
        throw std::system_error(error, std::generic_category(), "mailbox page");
    }
    memory_ = static_cast<uint8_t *>(memory);
}

Mailbox::~Mailbox() {
    munmap(memory_, kPage);
    close(fd_);
}

void Mailbox::take(const std::function<void(uint64_t, uint32_t)> &write) {
    // Polled from the last to the first word, so that if a store is found, all stores to lower
    // words that precede it are found too.
    std::vector<std::pair<uint64_t, uint32_t>> found;
    for (auto word = words_.rbegin(); word != words_.rend(); ++word) {
        auto *at = reinterpret_cast<uint32_t *>(memory_ + (*word - page_));
        if (!__atomic_load_n(at, __ATOMIC_ACQUIRE)) continue;
        found.emplace_back(*word, __atomic_exchange_n(at, 0, __ATOMIC_ACQ_REL));
    }
    for (auto each = found.rbegin(); each != found.rend(); ++each) write(each->first, each->second);
}

}  // namespace peerdma
