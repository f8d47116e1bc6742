// SPDX-License-Identifier: BSD-2-Clause
#include "memory.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace peerdma {

namespace {

// Enough for a client behind an IOMMU to map 4 GiB in 4 KiB pages; a bound on misuse.
constexpr size_t kMostWindows = 1 << 20;

// Volatile, and fenced below: the handler reads it in the middle of a copy.
thread_local sigjmp_buf *volatile bus_error_target = nullptr;
struct sigaction previous_action;

void on_bus_error(int number, siginfo_t *, void *) {
    if (bus_error_target) siglongjmp(*bus_error_target, 1);
    sigaction(number, &previous_action, nullptr);
    raise(number);
}

}  // namespace

BusErrorGuard::BusErrorGuard() {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGBUS, &action, &previous_action);
}

BusErrorGuard::~BusErrorGuard() { sigaction(SIGBUS, &previous_action, nullptr); }

bool guarded(Copy copy, uint8_t *to, const uint8_t *from, size_t n) {
    sigjmp_buf here;
    if (sigsetjmp(here, 0)) {
        bus_error_target = nullptr;
        return false;
    }
    bus_error_target = &here;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    copy(to, from, n);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    bus_error_target = nullptr;
    return true;
}

// The mapping ends with the last of its users.
static std::shared_ptr<uint8_t> mapped(size_t size, bool writable, int fd, uint64_t offset) {
    void *base = mmap(nullptr, size, PROT_READ | (writable ? PROT_WRITE : 0),
                      MAP_SHARED | MAP_NORESERVE, fd, offset);
    if (base == MAP_FAILED) return nullptr;
    return {static_cast<uint8_t *>(base), [size](uint8_t *at) { munmap(at, size); }};
}

int Memory::check(uint64_t address, uint64_t size, bool readable, bool writable) const {
    if (size == 0 || address + (size - 1) < address || !(readable || writable)) return EINVAL;
    if (windows_.size() >= kMostWindows) return ENOSPC;
    uint64_t last = address + (size - 1);
    auto next = windows_.upper_bound(last);
    return next != windows_.begin() && std::prev(next)->second.last >= address ? EEXIST : 0;
}

int Memory::map(uint64_t address, uint64_t size, bool readable, bool writable, int fd,
                uint64_t offset) {
    if (int error = check(address, size, readable, writable)) return error;
    Window window = {address + (size - 1), readable, writable, nullptr, 0};
    if (fd >= 0)
        if (int error = back(window, size, fd, offset)) return error;
    windows_.emplace(address, std::move(window));
    return 0;
}

int Memory::back(Window &window, uint64_t size, int fd, uint64_t offset) {
    struct stat status;
    if (fstat(fd, &status)) return errno;
    bool file = S_ISREG(status.st_mode);
    // Only regular files have a reliable size, not dma-bufs and device nodes.
    uint64_t end = offset + size;
    if (end < offset || (file && end > uint64_t(status.st_size))) return EINVAL;
    if (!file && offset % 4096) return EINVAL;
    std::pair<uint64_t, uint64_t> key(status.st_dev, status.st_ino);
    if (file) {
        auto known = files_.find(key);
        if (known != files_.end()) window.backing = known->second.lock();
        if (window.backing && window.backing->size >= end &&
            (window.backing->writable || !window.writable)) {
            window.offset = offset;
            return 0;
        }
    }
    bool writable = window.writable || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR;
    size_t length = file ? status.st_size : size;
    auto base = mapped(length, writable, fd, file ? 0 : offset);
    if (!base && writable && !window.writable) {
        // Sealed against writing: later windows of the file cannot be writable either.
        writable = false;
        base = mapped(length, writable, fd, file ? 0 : offset);
    }
    if (!base) return errno;
    window.backing = std::make_shared<Backing>(Backing{base, length, writable, false});
    window.offset = file ? offset : 0;
    if (file) files_[key] = window.backing;
    return 0;
}

int Memory::map_gpu(uint64_t address, uint64_t size, bool readable, bool writable,
                    const GpuFile &file, uint64_t offset,
                    const std::vector<std::string> &drivers, std::string &why) {
    if (int error = check(address, size, readable, writable)) return error;
    if (offset + size < offset || offset + size > file.size) return EINVAL;
    auto known = gpu_files_.find(file.identity);
    std::shared_ptr<Backing> backing;
    if (file.identity && known != gpu_files_.end()) backing = known->second.lock();
    if (!backing) {
        vulkan::Mapping found;
        if (file.mappable) {
            found.base = mapped(file.size, true, file.fd, 0);
            if (!found.base) found.why = std::string("mmap of its dma-buf: ") + strerror(errno);
        } else {
            found = vulkan::map(drivers, file.device, file.fd, file.size);
            if (found.gpu) gpus_[file.device] = found.gpu;
        }
        if (!found.base) {
            why = found.why;
            return ENXIO;
        }
        backing = std::make_shared<Backing>(Backing{found.base, file.size, true, true});
        gpu_files_[file.identity] = backing;
    }
    if (backing->size != file.size) return EINVAL;
    windows_.emplace(address,
                     Window{address + (size - 1), readable, writable, backing, offset});
    return 0;
}

void Memory::unmap(uint64_t address, uint64_t size) {
    if (size == 0) return;
    uint64_t last = address + std::min(size - 1, UINT64_MAX - address);
    auto window = windows_.upper_bound(address);
    if (window != windows_.begin() && std::prev(window)->second.last >= address) --window;
    while (window != windows_.end() && window->first <= last) {
        uint64_t first = window->first;
        Window old = window->second;
        window = windows_.erase(window);
        if (old.last > last) {
            Window tail = old;
            tail.offset += last + 1 - first;
            window = windows_.emplace(last + 1, tail).first;
        }
        if (first < address) {
            old.last = address - 1;
            windows_.emplace(first, old);
        }
    }
    auto forget = [](auto &files) {
        for (auto file = files.begin(); file != files.end();)
            file = file->second.expired() ? files.erase(file) : std::next(file);
    };
    forget(files_), forget(gpu_files_);
}

Memory::Piece Memory::find(uint64_t address, size_t n, bool write) const {
    auto next = windows_.upper_bound(address);
    if (next == windows_.begin()) return {};
    const auto &[first, window] = *std::prev(next);
    if (window.last < address || !(write ? window.writable : window.readable)) return {};
    n = std::min<uint64_t>(n - 1, window.last - address) + 1;
    if (!window.backing) return {Place::ByMessage, nullptr, n};
    return {window.backing->gpu ? Place::Gpu : Place::Shared,
            window.backing->base.get() + window.offset + (address - first), n};
}

}  // namespace peerdma
