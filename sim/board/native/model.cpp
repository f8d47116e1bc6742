// SPDX-License-Identifier: BSD-2-Clause
#include "model.h"

#include <utility>
#include <vector>

namespace peerdma {

namespace {
constexpr int kResetCycles = 16;
// Milliseconds within which a function has to be ready again.
constexpr double kFunctionResetMs = 100;
}

Model::Model(const Options &options, const ConfigSpace &config, Host &host, Log &log)
    : options_(options),
      config_(config),
      trace_(options_),
      link_(options_),
      root_(options_, config_, link_, host, log, trace_),
      rtl_(options_, config_, link_, root_, log, trace_),
      host_(host),
      log_(log),
      stalls_(options_, log) {
    link_.connect(&root_, &rtl_.block());
    reset();
}

void Model::reset() {
    trace_.event(cycle(), "reset");
    config_.reset();
    link_.flush();
    root_.reset();
    rtl_.block().reset(false);
    for (int i = 0; i < kResetCycles; i++) cycle_once(true);
    rtl_.block().reset(true);
    idle_ = 0;
}

void Model::reset_function() {
    uint64_t limit = cycle() + uint64_t(kFunctionResetMs * options_.clock_khz);
    while (root_.mmio_pending() && cycle() < limit) cycle_once(false);
    trace_.event(cycle(), "function reset");
    config_.reset_function();
    root_.drop_reads();
    link_.drop_reads();
    Block &block = rtl_.block();
    block.reset_function(true);
    while (!block.function_reset_done() && cycle() < limit) cycle_once(false);
    block.reset_function(false);
    // The core has to see the end of this reset, too, before there is another one.
    while (block.function_reset_done() && cycle() < limit) cycle_once(false);
    if (cycle() == limit) {
        errors_++;
        log_("error: cycle %llu: the core does not end its reset", (unsigned long long)cycle());
    }
    idle_ = 0;
}

void Model::cycle_once(bool reset) {
    rtl_.cycle(reset);
    uint32_t waits_for = rtl_.waits_for();
    stalls_.edge(cycle(), waits_for);
    if (waits_for != std::exchange(waits_for_, waits_for))
        trace_.event(cycle(), "waits for=0x%08x", waits_for);
}

uint64_t Model::run(uint64_t cycles) {
    uint64_t done = 0;
    stop_ = false;
    for (; done < cycles && !stop_ && runnable(); done++) {
        cycle_once(false);
        idle_ = busy() ? 0 : idle_ + 1;
    }
    return done;
}

void Model::mmio_read(unsigned bar, uint64_t offset, size_t n, uint64_t cookie) {
    // Without Memory Space Enable the block itself answers Unsupported Request.
    if (!config_.memory_enabled()) {
        std::vector<uint8_t> ones(n, 0xFF);
        return host_.answer(cookie, ones);
    }
    root_.mmio_read(bar, offset, n, cookie);
}

void Model::mmio_write(unsigned bar, uint64_t offset, const uint8_t *data, size_t n) {
    if (config_.memory_enabled()) root_.mmio_write(bar, offset, data, n);
}

void Model::config_write(size_t offset, const uint8_t *data, size_t n) {
    if (config_.write(offset, data, n)) return reset_function();
    refresh();
    idle_ = 0;
}

}  // namespace peerdma
