// SPDX-License-Identifier: BSD-2-Clause
#include "register_pages.h"

#include <cerrno>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace peerdma {
namespace {

// What is in a register, which is empty afterwards.
template <class T> uint64_t emptied(uint8_t *at) {
    auto *value = reinterpret_cast<T *>(at);
    if (!__atomic_load_n(value, __ATOMIC_ACQUIRE)) return 0;
    return __atomic_exchange_n(value, 0, __ATOMIC_ACQ_REL);
}

}  // namespace

RegisterPages::RegisterPages(const std::vector<Register> &registers)
    : registers_(registers), offset_(registers.front().offset / kPage * kPage) {
    size_ = registers.back().offset / kPage * kPage + kPage - offset_;
    fd_ = memfd_create("peerdma-registers", MFD_CLOEXEC);
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
    void *memory = MAP_FAILED;
    if (!ftruncate(fd_, offset_ + size_))
        memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, offset_);
    if (memory == MAP_FAILED) {
        int error = errno;
        close(fd_);
        throw std::system_error(error, std::generic_category(), "pages of registers");
    }
    memory_ = static_cast<uint8_t *>(memory);
}

RegisterPages::~RegisterPages() {
    munmap(memory_, size_);
    close(fd_);
}

void RegisterPages::take(const std::function<void(Register, uint64_t value)> &write) {
    // Polled from the last to the first, so that if a store is found, all stores to lower registers
    // that precede it are found too.
    std::vector<std::pair<Register, uint64_t>> found;
    for (auto each = registers_.rbegin(); each != registers_.rend(); ++each) {
        uint8_t *at = memory_ + (each->offset - offset_);
        uint64_t value = each->bytes == 8 ? emptied<uint64_t>(at) : emptied<uint32_t>(at);
        if (value) found.emplace_back(Register{each->offset, value >> 32 ? 8u : 4u}, value);
    }
    for (auto each = found.rbegin(); each != found.rend(); ++each) write(each->first, each->second);
}

}  // namespace peerdma
