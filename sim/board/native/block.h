// SPDX-License-Identifier: BSD-2-Clause
// A PCIe block between the core and the link, as far as a core can tell and whatever its ports are:
// transmit buffers in order whose count may be shown late, a receive buffer of finite size that
// presents TLPs with idle cycles if it is told to, non-posted throttle, interrupts, configuration
// state. A front end (`trn.h`, `seam.h`, `ultrascale.h`) derives from it, and only turns TLPs into
// beats and back.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <utility>
#include <vector>

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
    bool busy() const {
        return asks_ || std::any_of(outbound_.begin(), outbound_.end(),
                                    [](const Outbound &port) { return port.busy(); }) ||
               std::any_of(inbound_.begin(), inbound_.end(),
                           [](const Inbound &port) { return port.busy(); });
    }
    // Discards everything in flight; takes the link down or up.
    virtual void reset(bool link_up);
    // A function-level reset begins or, when the core has said that it is done, ends: for blocks that
    // have one.
    virtual void reset_function(bool) {}
    virtual bool function_reset_done() const { return true; }
    // Configuration bits reach the core's inputs.
    virtual void refresh();
    void restart_faults() { writes_ = 0; }

    uint64_t errors() const { return errors_; }
    const Pauses &pauses() const { return pauses_; }

    // The TLP of which a beat is shown to the core in this cycle, if one is; for a block with one
    // port.
    const Downstream *shown() const {
        return inbound_[0].shown ? &*inbound_[0].current : nullptr;
    }
    // Which beat that is, from 0, and whether it is the last one.
    size_t beat() const { return inbound_[0].beat; }
    bool last() const { return inbound_[0].last(); }

protected:
    // Where TLPs cross between block and core: the core's requests and their completions, and the
    // host's. A block may have one port for both.
    enum Port { kRequester, kCompleter };
    static constexpr unsigned kMostPorts = 2;

    Block(const Options &options, ConfigSpace &config, Link &link, Root &root, Log &log,
          Trace &trace, unsigned ports = 1);

    // Of a TLP to the core: its beats; the idle cycles that have to follow it; whether another one
    // may begin in its last beat.
    struct Shape {
        size_t beats;
        unsigned gap;
        bool shares = false;
    };
    // `joins`: it begins in the last beat of the one before.
    virtual Shape shape(const Downstream &packet, bool joins) const = 0;

    // TLPs to the core at one port.
    struct Inbound {
        std::deque<Downstream> waiting;
        std::optional<Downstream> current;
        std::optional<Downstream> next;  // begins in the last beat of `current`
        bool joined = false;             // `current` was such a one
        Shape shape{};                   // of `current`
        size_t beat = 0;
        bool shown = false;      // the core is shown that beat
        unsigned gap_left = 0;   // idle cycles until the next TLP
        uint64_t beats = 0, pause_left = 0;

        bool busy() const { return current || !waiting.empty(); }
        bool last() const { return beat + 1 == shape.beats; }
    };
    // TLPs of the core at one port.
    struct Outbound {
        Words words;          // the dwords that the core has given of one
        unsigned held = 0;    // whole ones that are not with the link yet
        bool takes = false;   // shown in the next cycle: a beat is taken
        uint64_t beats = 0, pause_left = 0;

        bool busy() const { return held || !words.empty(); }
    };

    // What the core's outputs say in a cycle, beside its TLPs and interrupts.
    struct Signs {
        std::array<bool, kMostPorts> takes;  // the beat that is shown at a port
        // Non-posted requests may come, if the core holds them back; or so many more, if it counts.
        bool nonposted_ok;
        unsigned nonposted_more;
        bool timed_out, unexpected, reads_pending;
    };
    // One rising clock edge, after what the core sent with it; advances the link.
    void step(const Signs &signs);
    // A whole TLP of the core: true if it is a write that the block discards.
    bool send(Words words);
    // One that was sent and breaks no rule goes to the link, now or later.
    virtual void forward(Words &&words) { link_.send_up({Upstream::Packet, 0, std::move(words)}); }
    // The link takes no more TLPs than there are transmit buffers.
    bool link_takes() const {
        return link_.transmit_buffers_used() < options_.transmit_buffers;
    }
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
    std::vector<Inbound> inbound_;
    std::vector<Outbound> outbound_;
    Outbound &out_ = outbound_[0];  // of a block with one port
    // Non-posted requests that may be presented.
    unsigned nonposted_left_ = 0;
    // What the core is shown in the next cycle: free transmit buffers; credits that are left; an
    // interrupt is taken.
    unsigned free_ = 0, posted_headers_ = 0, posted_data_ = 0;
    unsigned nonposted_headers_ = 0, nonposted_data_ = 0;
    bool interrupt_taken_ = false;

private:
    // Cycles after Bus Master Enable fell in which a TLP may still come out of the core.
    static constexpr uint64_t kBusMasterLag = 64;
    // Non-posted requests that may still be presented after the core holds them back.
    static constexpr unsigned kNonPostedAfterHold = 2;

    void take_received(Inbound &port, bool takes, bool nonposted_ok);
    void deliver(const Downstream &packet, bool nonposted_ok);
    void choose_received(Inbound &port);
    void join(Inbound &port);
    void present(Inbound &port);
    void offer_room();
    void offer_beat(Outbound &port);
    bool bus_master_lags() const {
        return !config_.bus_master() && link_.cycle() < bus_master_fell_ + kBusMasterLag;
    }
    const Fault *fault_of(const Words &words);
    void discard(const Words &words);
    void count_interleaved(const Downstream &packet);
    void capture();
    unsigned used() const { return link_.transmit_buffers_used() + outbound_[0].held; }

    Root &root_;
    Trace &trace_;
    std::mt19937_64 random_;
    std::deque<unsigned> late_;  // transmit buffers that were free, the newest last
    std::array<unsigned, 6> captured_{};
    uint64_t writes_ = 0;  // memory writes of the core
    unsigned completion_headers_ = 0, completion_credits_ = 0;
    bool bus_master_ = false;
    uint64_t bus_master_fell_ = 0;  // cycle
    std::optional<uint8_t> open_tag_;  // of the last completion, if its read has more to come
    Pauses pauses_;
};

}  // namespace peerdma
