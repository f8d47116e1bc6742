// SPDX-License-Identifier: BSD-2-Clause
#include "stall.h"

#include "pins.h"

namespace peerdma {

namespace {
// About a second on a usual machine, and less than the core's completion timeout, so that a lost
// completion is logged before the error that it causes.
constexpr uint64_t kLeastCycles = 100'000;
// With --reorder a read's last completion comes up to five round trips after its request.
constexpr double kRoundTrips = 8;
// Longer than a driver on a busy machine takes from the start of one channel to that of the next.
constexpr auto kRest = std::chrono::seconds(2);
}  // namespace

StallWatch::StallWatch(const Options &options, Log &log)
    : log_(log),
      bound_(kLeastCycles + uint64_t(kRoundTrips * options.rtt_ns * options.clock_khz * 1e-6)) {}

void StallWatch::change(uint64_t cycle, uint32_t waits_for) {
    for (unsigned i = 0; i < channels_.size(); i++)
        if (wait_of(waits_for, i) != wait_of(waits_for_, i)) channels_[i] = {cycle, {}, false};
    waits_for_ = waits_for;
}

void StallWatch::tell(uint64_t cycle, bool rests) {
    for (unsigned i = 0; i < channels_.size(); i++) {
        Channel &channel = channels_[i];
        unsigned wait = wait_of(waits_for_, i);
        if (!wait || channel.told) continue;
        if (rests && !channel.rested) channel.rested = Clock::now();
        bool at_rest = rests && Clock::now() - *channel.rested >= kRest;
        if (!at_rest && cycle - channel.since < bound_) continue;
        channel.told = true;
        log_("note: %s channel %u has not moved for %llu cycles%s: it waits for %s",
             i < kPerDirection ? "H2C" : "C2H", i % kPerDirection,
             (unsigned long long)(cycle - channel.since),
             at_rest ? ", and nothing is under way" : "", kWaitsFor[wait]);
    }
}

}  // namespace peerdma
