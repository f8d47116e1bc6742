// SPDX-License-Identifier: BSD-2-Clause
// Detects channels whose run makes no progress, and logs once per stall what each waits for.
//
// A channel has stalled when it has waited for the same event for more cycles than any answer takes
// on this link. While the model rests, simulated time stands still: then a channel has stalled when
// nothing has been in flight that could end its wait for some wall-clock time.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

#include "log.h"
#include "options.h"

namespace peerdma {

class StallWatch {
public:
    StallWatch(const Options &options, Log &log);

    // After each clock edge: `waits_for` is the core's output, see hw/core.py.
    void edge(uint64_t cycle, uint32_t waits_for) {
        if (waits_for != waits_for_) change(cycle, waits_for);
    }
    // Logs new stalls. `rests`: nothing is in flight, and simulated time stands still.
    void tell(uint64_t cycle, bool rests);

private:
    using Clock = std::chrono::steady_clock;

    static constexpr unsigned kPerDirection = 4, kBits = 4;
    struct Channel {
        uint64_t since = 0;                       // cycle
        std::optional<Clock::time_point> rested;  // when the model first rested after that
        bool told = false;
    };

    static unsigned wait_of(uint32_t waits_for, unsigned channel) {
        return waits_for >> (kBits * channel) & ((1 << kBits) - 1);
    }
    void change(uint64_t cycle, uint32_t waits_for);

    Log &log_;
    const uint64_t bound_;  // cycles
    uint32_t waits_for_ = 0;
    std::array<Channel, 2 * kPerDirection> channels_;
};

}  // namespace peerdma
