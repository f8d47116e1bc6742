// SPDX-License-Identifier: BSD-2-Clause
#include "interrupts.h"

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <string>
#include <unistd.h>

namespace peerdma {

namespace {

// Other files than eventfds may block or misbehave when they are written to.
bool is_eventfd(int fd) {
    char target[64];
    std::string link = "/proc/self/fd/" + std::to_string(fd);
    ssize_t n = readlink(link.c_str(), target, sizeof target);
    return n > 0 && std::string(target, n) == "anon_inode:[eventfd]";
}

}  // namespace

uint32_t Interrupts::vectors(uint32_t index) const {
    switch (index) {
        case Intx: return config_.has_intx();
        case Msi: return config_.msi_vectors();
        case Msix: return config_.msix_vectors();
        default: return index < kIndices;
    }
}

uint32_t Interrupts::info(uint32_t index) const {
    if (!vectors(index)) return 0;
    if (index == Intx) return kEventfd | kMaskable | kAutomasked;
    return index == Msi ? kEventfd | kNoResize : kEventfd;
}

bool Interrupts::connected(uint32_t index, uint32_t vector) const {
    return vector < eventfds_[index].size() && eventfds_[index][vector] >= 0;
}

int Interrupts::set(const Setup &setup, std::vector<int> &fds) {
    uint32_t data = setup.flags & 7, action = setup.flags & ~7u;
    bool one_data = data && !(data & (data - 1));
    if (!one_data || setup.index >= kIndices) return EINVAL;
    uint32_t most = vectors(setup.index);
    if (setup.start > most || setup.count > most - setup.start) return EINVAL;
    if (data == kDataBool && setup.bytes != setup.count) return EINVAL;
    if (data != kDataEventfd && !fds.empty()) return EINVAL;
    if (action == kTrigger && data == kDataNone && setup.count == 0) {
        disconnect(setup.index);
        return 0;
    }
    if (setup.count == 0) return EINVAL;
    if (action == kTrigger && data == kDataEventfd)
        return connect(setup.index, setup.start, setup.count, fds);
    if (action == kTrigger) {
        for (uint32_t i = 0; i < setup.count; i++)
            if (data == kDataNone || setup.bools[i]) fire(setup.index, setup.start + i);
        return 0;
    }
    if (action != kMask && action != kUnmask) return EINVAL;
    if (setup.index != Intx || data == kDataEventfd) return ENOTSUP;
    if (data == kDataNone || setup.bools[0]) masked_ = action == kMask;
    deliver_level();
    return 0;
}

int Interrupts::connect(uint32_t index, uint32_t start, uint32_t count, std::vector<int> &fds) {
    if (!fds.empty() && fds.size() != count) return EINVAL;
    for (int fd : fds)
        if (!is_eventfd(fd)) return EINVAL;
    std::vector<int> &known = eventfds_[index];
    if (known.size() < start + count) known.resize(start + count, -1);
    for (uint32_t i = 0; i < count; i++) {
        int &fd = known[start + i];
        if (fd >= 0) close(fd);
        fd = fds.empty() ? -1 : fds[i];
    }
    if (!fds.empty()) enable(index, true);
    fds.clear();
    if (index == Intx) {
        masked_ = false;
        deliver_level();
    }
    return 0;
}

void Interrupts::disconnect(uint32_t index) {
    for (int fd : eventfds_[index])
        if (fd >= 0) close(fd);
    eventfds_[index].clear();
    enable(index, false);
}

void Interrupts::enable(uint32_t index, bool on) {
    // As in VFIO, setting up vectors is what enables them; a guest's own writes agree with it.
    if (index == Msi) config_.set_msi_enabled(on);
    if (index == Msix) config_.set_msix_enabled(on);
}

void Interrupts::fire(uint32_t index, uint32_t vector) {
    int fd = connected(index, vector) ? eventfds_[index][vector] : -1;
    // Skips an eventfd whose counter is full, which would block: an interrupt is pending anyway.
    pollfd room = {fd, POLLOUT, 0};
    if (fd < 0 || poll(&room, 1, 0) != 1) return;
    uint64_t one = 1;
    if (write(fd, &one, sizeof one) != sizeof one)
        log_("interrupt index %u vector %u: %s", index, vector, strerror(errno));
}

void Interrupts::message(uint32_t index, uint32_t vector) {
    if (!connected(index, vector))
        log_("interrupt index %u vector %u: the client has no eventfd for it, lost", index, vector);
    fire(index, vector);
}

void Interrupts::level(bool asserted) {
    asserted_ = asserted;
    config_.set_intx_status(asserted);
    deliver_level();
}

void Interrupts::deliver_level() {
    if (!asserted_ || masked_ || config_.intx_disabled() || !connected(Intx, 0)) return;
    masked_ = true;
    fire(Intx, 0);
}

void Interrupts::reset() { asserted_ = masked_ = false; }

void Interrupts::clear() {
    for (uint32_t index = 0; index < kIndices; index++) disconnect(index);
    reset();
}

}  // namespace peerdma
