// SPDX-License-Identifier: BSD-2-Clause
// The compiled core: one call is one clock cycle.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pins.h"

namespace peerdma {

class Rtl {
public:
    // `waves`: file for a VCD trace; throws std::invalid_argument if this library has no tracing.
    Rtl(const std::string &waves, uint32_t time_scale, uint32_t timeout_cycles);
    ~Rtl();

    // Settles the core's outputs for the inputs `to`, then gives it a rising edge with `reset`.
    const FromCore &cycle(const ToCore &to, bool reset);
    // The core is at work in a way that its pins do not show.
    bool active() const;
    // What its channels wait for, see hw/core.py.
    uint32_t waits_for() const;

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
    FromCore from_;
};

}  // namespace peerdma
