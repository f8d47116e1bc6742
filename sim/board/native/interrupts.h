// SPDX-License-Identifier: BSD-2-Clause
// The client's interrupts as VFIO sets them up: eventfds by index and vector.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "config_space.h"
#include "log.h"

namespace peerdma {

class Interrupts {
public:
    enum Index : uint32_t { Intx, Msi, Msix, Error, Request, kIndices };
    // Flags of DEVICE_GET_IRQ_INFO.
    enum Info : uint32_t { kEventfd = 1, kMaskable = 2, kAutomasked = 4, kNoResize = 8 };
    // Flags of DEVICE_SET_IRQS.
    enum Set : uint32_t {
        kDataNone = 1, kDataBool = 2, kDataEventfd = 4, kMask = 8, kUnmask = 16, kTrigger = 32,
    };
    struct Setup {
        uint32_t flags, index, start, count;
        const uint8_t *bools;
        size_t bytes;  // at bools
    };

    Interrupts(ConfigSpace &config, Log &log) : config_(config), log_(log) {}
    ~Interrupts() { clear(); }

    uint32_t vectors(uint32_t index) const;
    uint32_t info(uint32_t index) const;
    // DEVICE_SET_IRQS: takes the fds that it keeps out of `fds`; returns 0 or an errno.
    int set(const Setup &request, std::vector<int> &fds);
    bool connected(uint32_t index, uint32_t vector) const;

    // An MSI or MSI-X message arrived.
    void message(uint32_t index, uint32_t vector);
    // INTx is a level: it fires once, then waits for the client to unmask.
    void level(bool asserted);
    // Interrupt Disable in Command may have changed.
    void refresh() { deliver_level(); }
    // The device was reset: nothing is pending, the eventfds stay.
    void reset();
    // The client is gone.
    void clear();

private:
    int connect(uint32_t index, uint32_t start, uint32_t count, std::vector<int> &fds);
    void disconnect(uint32_t index);
    void fire(uint32_t index, uint32_t vector);
    void deliver_level();
    void enable(uint32_t index, bool on);

    ConfigSpace &config_;
    Log &log_;
    std::array<std::vector<int>, kIndices> eventfds_;  // -1: none
    bool asserted_ = false, masked_ = false;
};

}  // namespace peerdma
