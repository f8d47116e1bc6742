// SPDX-License-Identifier: BSD-2-Clause
// The PCIe block between the core's transaction ports and the link (UG477), as far as a core can
// tell: transmit buffers in order whose count may be shown late, a receive buffer of finite size that
// presents TLPs with idle cycles if it is told to, non-posted throttle, interrupt handshake,
// configuration state.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>

#include "config_space.h"
#include "link.h"
#include "log.h"
#include "options.h"
#include "pins.h"

namespace peerdma {

class Root;
class Trace;

// What the block has done, in cycles, that is its right and is hard on a core: no beat in the middle
// of a TLP that it had begun, either way; the long pauses. And completions that it gave the core
// between two of another read.
struct Pauses {
    uint64_t in_received = 0, in_sent = 0, long_receive = 0, long_transmit = 0, interleaved = 0;
};

class HardBlock : public Link::LowerEnd {
public:
    HardBlock(const Options &options, ConfigSpace &config, Link &link, Root &root, Log &log,
              Trace &trace);

    // Inputs of the core, valid until the next edge.
    const ToCore &pins() const { return pins_; }
    // One rising clock edge at which the core's outputs are `core`; advances the link.
    void edge(const FromCore &core);
    void receive(Downstream &&packet) override;

    // A TLP or interrupt is in flight between core and link.
    bool busy() const { return !transmit_.empty() || current_ || !received_.empty(); }
    // Discards everything in flight; takes the link down or up.
    void reset(bool link_up);
    // Configuration bits reach the core's inputs.
    void refresh();
    void restart_faults() { writes_ = 0; }

    uint64_t errors() const { return errors_; }
    const Pauses &pauses() const { return pauses_; }

private:
    // Cycles after Bus Master Enable fell in which a TLP may still come out of the core.
    static constexpr uint64_t kBusMasterLag = 64;
    // Non-posted requests that may still be presented after trnrnpok falls.
    static constexpr unsigned kNonPostedAfterHold = 2;

    void take_transmit(const FromCore &core);
    void take_interrupt(const FromCore &core);
    void take_receive(const FromCore &core);
    void choose_received();
    void present();
    void check(Words words);
    bool bus_master_lags() const {
        return !config_.bus_master() && link_.cycle() < bus_master_fell_ + kBusMasterLag;
    }
    const Fault *fault_of(const Words &words);
    void discard(const Words &words);
    void count_interleaved(const Downstream &packet);
    void show_transmit();
    void capture();
    bool room() const { return link_.transmit_buffers_used() < options_.transmit_buffers; }

    const Options &options_;
    ConfigSpace &config_;
    Link &link_;
    Root &root_;
    Log &log_;
    Trace &trace_;
    ToCore pins_;
    Words transmit_;
    std::mt19937_64 random_;
    std::deque<unsigned> free_;        // transmit buffers, the newest last
    std::array<unsigned, 6> captured_{};
    uint64_t writes_ = 0;              // memory writes of the core
    std::deque<uint64_t> discarded_;  // cycles in which trnterrdrop says so
    std::deque<Downstream> received_;
    std::optional<Downstream> current_;
    size_t position_ = 0;  // dword of current_ in bits 63:32 of the beat shown
    unsigned gap_left_ = 0;  // idle cycles until the next TLP
    unsigned completion_headers_ = 0, completion_credits_ = 0;
    unsigned non_posted_left_ = kNonPostedAfterHold;
    uint64_t bus_master_fell_ = 0;  // cycle
    uint64_t received_beats_ = 0, sent_beats_ = 0;
    uint64_t receive_pause_left_ = 0, transmit_pause_left_ = 0;
    std::optional<uint8_t> open_tag_;  // of the last completion, if its read has more to come
    Pauses pauses_;
    uint64_t errors_ = 0;
};

}  // namespace peerdma
