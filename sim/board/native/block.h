// SPDX-License-Identifier: BSD-2-Clause
// A PCIe block between the core and the link, as far as a core can tell and whatever its ports are:
// transmit buffers in order whose count may be shown late, a receive buffer of finite size that
// presents TLPs with idle cycles if it is told to, non-posted throttle, interrupts, configuration
// state. A front end (`trn.h`, `seam.h`) derives from it, and only turns TLPs into beats and back.
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

namespace peerdma {

class Root;
class Trace;

// What the block has done, in cycles, that is its right and is hard on a core: no beat in the middle
// of a TLP that it had begun, either way; the long pauses. And completions that it gave the core
// between two of another read.
struct Pauses {
    uint64_t in_received = 0, in_sent = 0, long_receive = 0, long_transmit = 0, interleaved = 0;
};

class Block : public Link::LowerEnd {
public:
    void receive(Downstream &&packet) override;

    // A TLP or interrupt is in flight between core and link, or the core waits for one.
    bool busy() const { return asks_ || !transmit_.empty() || current_ || !received_.empty(); }
    // Discards everything in flight; takes the link down or up.
    virtual void reset(bool link_up);
    // Configuration bits reach the core's inputs.
    virtual void refresh();
    void restart_faults() { writes_ = 0; }

    uint64_t errors() const { return errors_; }
    const Pauses &pauses() const { return pauses_; }

    // The TLP of which a beat is shown to the core in this cycle, if one is.
    const Downstream *shown() const { return shown_ ? &*current_ : nullptr; }
    // Which beat that is, from 0, and whether it is the last one.
    size_t beat() const { return beat_; }
    bool last() const { return beat_ + 1 == shape_.beats; }

protected:
    Block(const Options &options, ConfigSpace &config, Link &link, Root &root, Log &log,
          Trace &trace);

    // Of a TLP to the core: its beats, and the idle cycles that have to follow it.
    struct Shape {
        size_t beats;
        unsigned gap;
    };
    virtual Shape shape(const Downstream &packet) const = 0;

    // What the core's outputs say in a cycle, beside its TLPs and interrupts.
    struct Signs {
        bool takes;  // the beat that is shown
        bool nonposted_ok, timed_out, unexpected, reads_pending;
    };
    // One rising clock edge, after what the core sent with it; advances the link.
    void step(const Signs &signs);
    // A whole TLP of the core: true if it is a write that the block discards.
    bool send(Words words);
    // The core asks for an interrupt or not; `interrupt_taken_` shows the answer.
    void take_interrupt(bool asked, bool msi, unsigned number, bool assert);

    const Options &options_;
    ConfigSpace &config_;
    Link &link_;
    Log &log_;
    uint64_t errors_ = 0;  // PCIe rules that the core broke
    // The core offers something, or waits for completions.
    bool asks_ = false;
    bool link_up_ = false;
    Words transmit_;  // the dwords that the core has given of a TLP
    uint64_t sent_beats_ = 0;
    // What the core is shown in the next cycle: the block takes a beat, if it is one within a TLP or
    // the first one; free transmit buffers; credits that are left; an interrupt is taken.
    bool takes_ = false;
    unsigned free_ = 0, posted_headers_ = 0, posted_data_ = 0;
    unsigned nonposted_headers_ = 0, nonposted_data_ = 0;
    bool interrupt_taken_ = false;

private:
    // Cycles after Bus Master Enable fell in which a TLP may still come out of the core.
    static constexpr uint64_t kBusMasterLag = 64;
    // Non-posted requests that may still be presented after the core holds them back.
    static constexpr unsigned kNonPostedAfterHold = 2;

    void take_received(const Signs &signs);
    void choose_received();
    void present();
    void offer_room();
    bool bus_master_lags() const {
        return !config_.bus_master() && link_.cycle() < bus_master_fell_ + kBusMasterLag;
    }
    const Fault *fault_of(const Words &words);
    void discard(const Words &words);
    void count_interleaved(const Downstream &packet);
    void capture();
    bool room() const { return link_.transmit_buffers_used() < options_.transmit_buffers; }

    Root &root_;
    Trace &trace_;
    std::mt19937_64 random_;
    std::deque<unsigned> late_;  // transmit buffers that were free, the newest last
    std::array<unsigned, 6> captured_{};
    uint64_t writes_ = 0;  // memory writes of the core
    std::deque<Downstream> received_;
    std::optional<Downstream> current_;
    bool shown_ = false;
    Shape shape_{};  // of current_
    size_t beat_ = 0;
    unsigned gap_left_ = 0;  // idle cycles until the next TLP
    unsigned completion_headers_ = 0, completion_credits_ = 0;
    unsigned non_posted_left_ = kNonPostedAfterHold;
    bool bus_master_ = false;
    uint64_t bus_master_fell_ = 0;  // cycle
    uint64_t received_beats_ = 0;
    uint64_t receive_pause_left_ = 0, transmit_pause_left_ = 0;
    std::optional<uint8_t> open_tag_;  // of the last completion, if its read has more to come
    Pauses pauses_;
};

}  // namespace peerdma
