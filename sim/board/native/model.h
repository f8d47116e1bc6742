// SPDX-License-Identifier: BSD-2-Clause
// The board without its socket: compiled core with its PCIe block, link, root complex, configuration.
#pragma once

#include <cstdint>

#include "config_space.h"
#include "link.h"
#include "log.h"
#include "options.h"
#include "root.h"
#include "rtl.h"
#include "stall.h"
#include "trace.h"

namespace peerdma {

class Model {
public:
    Model(const Options &options, const ConfigSpace &config, Host &host, Log &log);

    // Runs at most `cycles` cycles; less when nothing is left to do or the client must act first.
    // Returns the cycles run.
    uint64_t run(uint64_t cycles);
    // Ends run() after the current cycle, because there is a message for the client.
    void interrupt_run() { stop_ = true; }
    // True if run() would do something.
    bool runnable() const { return active() && !root_.awaits_client(); }
    // A request is outstanding, or was until recently.
    bool active() const { return idle_ < kGrace || busy(); }

    // Logs channels without progress for long; to be called while the model rests, too.
    void tell_stalls() { stalls_.tell(cycle(), !active()); }

    // Function-level reset. What the host has asked for before is answered first. Software waits for
    // 100 ms then: so no answer that is under way to the core comes after it.
    void reset_function();
    // Fundamental reset: the configuration space too.
    void reset();

    // Register accesses; `offset` and `n` > 0 must lie inside the BAR.
    void mmio_read(unsigned bar, uint64_t offset, size_t n, uint64_t cookie);
    void mmio_write(unsigned bar, uint64_t offset, const uint8_t *data, size_t n);
    void config_write(size_t offset, const uint8_t *data, size_t n);
    // The configuration changed other than by config_write.
    void refresh() { rtl_.block().refresh(); }

    ConfigSpace &config() { return config_; }
    const ConfigSpace &config() const { return config_; }
    Root &root() { return root_; }
    const Root &root() const { return root_; }
    uint64_t cycle() const { return link_.cycle(); }
    // PCIe rules that the core broke.
    uint64_t errors() const { return errors_ + root_.errors() + rtl_.block().errors(); }
    const Pauses &pauses() const { return rtl_.block().pauses(); }
    void acknowledge_after(double ns) { link_.acknowledge_after(ns); }
    void restart_faults() { root_.restart_faults(), rtl_.block().restart_faults(); }
    Trace &trace() { return trace_; }

private:
    // For this many cycles the core may be active without activity at its pins.
    static constexpr uint64_t kGrace = 256;

    void cycle_once(bool reset);
    bool busy() const {
        return link_.busy() || rtl_.block().busy() || root_.busy() || rtl_.active();
    }

    Options options_;
    ConfigSpace config_;
    Trace trace_;
    Link link_;
    Root root_;
    Rtl rtl_;
    Host &host_;
    Log &log_;
    StallWatch stalls_;
    uint64_t idle_ = 0;
    uint64_t errors_ = 0;
    uint32_t waits_for_ = 0;
    bool stop_ = false;
};

}  // namespace peerdma
