// SPDX-License-Identifier: BSD-2-Clause
// The compiled core with the PCIe block that its ports are for: one call is one clock cycle.
#pragma once

#include <cstdint>
#include <memory>

#include "block.h"

namespace peerdma {

class Rtl {
public:
    // Throws std::invalid_argument if this library has no tracing, or the options are for another
    // core.
    Rtl(const Options &options, ConfigSpace &config, Link &link, Root &root, Log &log,
        Trace &trace);
    ~Rtl();

    Block &block();
    const Block &block() const;
    // Settles the core's outputs for its inputs, and gives both a rising edge, the core with `reset`.
    void cycle(bool reset);
    // The core is at work in a way that its pins do not show.
    bool active() const;
    // What its channels wait for, see hw/core.py.
    uint32_t waits_for() const;

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace peerdma
