// SPDX-License-Identifier: BSD-2-Clause
// The block as a core without an adapter sees it: the seam (hw/seam.py), at any width.
#pragma once

#include "block.h"

namespace peerdma {

// The records of hw/seam.py, by its names: a header that is missing here, or named otherwise, does
// not compile together with a core (`sim/compile/attached.py`).
struct RequestHeader {
    uint8_t write = 0;
    uint64_t address = 0;
    uint16_t dwords = 0;
    uint8_t first_be = 0, last_be = 0, tag = 0, relaxed = 0, token = 0;

    bool operator==(const RequestHeader &other) const;
};

struct CompletionHeader {
    uint8_t status = 0;
    uint16_t byte_count = 0;
    uint8_t lower_address = 0;
    uint16_t dwords = 0;
    uint8_t tag = 0;
    uint16_t requester_id = 0;
    uint8_t traffic_class = 0, attributes = 0, poisoned = 0, locked = 0;

    bool operator==(const CompletionHeader &other) const;
};

struct TargetHeader {
    uint8_t kind = 0;
    uint64_t address = 0;
    uint16_t dwords = 0;
    uint8_t first_be = 0, last_be = 0, bar = 0, tag = 0;
    uint16_t requester_id = 0;
    uint8_t traffic_class = 0, attributes = 0, poisoned = 0, locked = 0;
};

template <class Payload>
struct SeamStream {
    uint8_t valid = 0;
    Payload payload;
    uint8_t ready = 1;  // also if there is no such port
};

template <class Header>
struct SeamBeat {
    // Byte lane 0 in bits 7:0 of the first dword; those that the core has not are 0.
    std::array<uint32_t, 8> data{};
    Header header;
    uint8_t first = 0, last = 0;
};

// All that crosses the seam: outputs of the core count in what it gives, its inputs in what it gets.
struct SeamPorts {
    struct Token {
        uint8_t token = 0, dropped = 0;
    };
    struct Interrupt {
        uint8_t msi = 0, asserted = 0, vector = 0;
    };
    struct LinkState {
        uint8_t link_up = 0, bus_master = 0, intx_disable = 0, msi_enable = 0, msi_granted = 0;
        uint8_t msix_enable = 0, msix_mask = 0, max_payload = 0, max_read_request = 0, rcb = 0;
        uint8_t extended_tag = 0, relaxed_ordering = 0;
        uint16_t requester_id = 0;
        uint8_t speed = 0, width = 0, read_room = 0, write_room = 0, np_headers = 0;
    };

    SeamStream<SeamBeat<RequestHeader>> requester;
    SeamStream<Token> sent;
    SeamStream<SeamBeat<CompletionHeader>> requester_completion;
    SeamStream<SeamBeat<TargetHeader>> target;
    uint8_t target_np_ok = 1;
    SeamStream<SeamBeat<CompletionHeader>> completion;
    SeamStream<Interrupt> interrupt;
    LinkState link;
    uint8_t reads_pending = 0, timed_out = 0, unexpected = 0;
    uint8_t function_reset = 0, function_reset_done = 0;
};

// It takes one packet at a time, and gives one at a time, whichever port that is for. What the core
// has to keep to at the seam is checked as a rule of PCIe is, and so is what this gives it.
class SeamBlock : public Block {
public:
    using Inputs = SeamPorts;
    using Outputs = SeamPorts;

    SeamBlock(const Options &options, ConfigSpace &config, Link &link, Root &root, Log &log,
              Trace &trace);

    const Inputs &pins() const { return pins_; }
    void edge(const Outputs &core);
    void reset(bool link_up) override;
    void refresh() override;

    // Throws std::invalid_argument unless the options are for this width.
    void require(unsigned width) const;

    // Beats with so many dwords of payload.
    static size_t beats(size_t dwords, size_t lanes) {
        return dwords ? (dwords + lanes - 1) / lanes : 1;
    }

private:
    // TLPs that the link has not begun with when a write may start: one on its way out, and one that
    // the core hands over meanwhile.
    static constexpr unsigned kWaiting = 2;

    // A port of the core's TLPs.
    template <class Header>
    struct Outbound {
        bool offered = false;  // a beat that was not taken
        size_t beats = 0;      // of a packet that has not ended
        Header header;
    };

    Shape shape(const Downstream &packet, bool joins) const override;
    template <class Header>
    bool take(const SeamStream<SeamBeat<Header>> &port, bool ready, Outbound<Header> &state);
    void check_inbound();
    void show();
    void show_received();
    void error(const char *what);

    const size_t lanes_;  // dwords of a beat
    SeamPorts pins_;
    Outbound<RequestHeader> requests_;
    Outbound<CompletionHeader> completions_;
    std::deque<SeamPorts::Token> sent_;
    // Cycles of the last first and last beat to the core; none in any before the first one.
    uint64_t began_ = -2, ended_ = -2;
};

}  // namespace peerdma
