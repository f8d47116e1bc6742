// SPDX-License-Identifier: BSD-2-Clause
// The block as an UltraScale or UltraScale+ core sees it: four AXI4-Streams (PG156, PG213), of 64,
// 128 or 256 bits.
#pragma once

#include <bitset>

#include "block.h"

namespace peerdma {

// What differs between these blocks, as hw/pcie/ultrascale/family.py has it.
struct UltraScaleKind {
    const char *name;  // of the block and its width
    unsigned width;    // bits of a beat
    unsigned sequence_bits;
    bool one_hot_speed, bus_number;
};

// A stream, in either direction.
struct AxiStream {
    std::array<uint32_t, 8> tdata{};  // those that the core has not are 0
    std::array<uint32_t, 3> tuser{};
    uint8_t tkeep = 0, tlast = 0, tvalid = 0, tready = 0;

    bool operator==(const AxiStream &other) const;
};

// The ports of hw/pcie/ultrascale/ports.py, by their names, but that streams are structures, and
// that of the sequence numbers' ports there is the first one: one that is missing here, or named
// otherwise, does not compile together with a core (`sim/compile/streams.py`).
struct UltraScalePorts {
    AxiStream s_axis_rq, m_axis_rc, m_axis_cq, s_axis_cc;
    uint8_t pcie_rq_seq_num = 0, pcie_rq_seq_num_vld = 0;
    uint8_t pcie_cq_np_req = 0, cfg_fc_sel = 0, cfg_fc_nph = 0, user_lnk_up = 0;
    uint32_t cfg_mgmt_addr = 0, cfg_mgmt_read_data = 0;
    uint8_t cfg_mgmt_read = 0, cfg_mgmt_read_write_done = 0;
    uint8_t cfg_flr_in_process = 0, cfg_flr_done = 0;
    uint8_t cfg_max_payload = 0, cfg_max_read_req = 0;
    uint16_t cfg_function_status = 0;
    uint8_t cfg_rcb_status = 0, cfg_current_speed = 0, cfg_negotiated_width = 0;
    uint8_t cfg_bus_number = 0;
    uint8_t cfg_interrupt_int = 0, cfg_interrupt_pending = 0;
    uint32_t cfg_interrupt_msi_int = 0;
    uint8_t cfg_interrupt_sent = 0, cfg_interrupt_msi_enable = 0;
    uint16_t cfg_interrupt_msi_mmenable = 0;
    uint8_t cfg_interrupt_msi_sent = 0, cfg_interrupt_msi_fail = 0;
    uint8_t cfg_interrupt_msix_enable = 0, cfg_interrupt_msix_mask = 0;
};

// It keeps the core's requests in a queue in front of the link, where completions of the host's
// requests and interrupts pass them: a request's sequence number comes back when it has left that
// queue. Not modelled are the latency of the real block's pipeline, which no document has, its own
// completion timeout, packets that it cuts off, and messages.
class UltraScaleBlock : public Block {
public:
    using Inputs = UltraScalePorts;
    using Outputs = UltraScalePorts;

    UltraScaleBlock(const UltraScaleKind &kind, const Options &options, ConfigSpace &config,
                    Link &link, Root &root, Log &log, Trace &trace);

    const Inputs &pins() const { return pins_; }
    void edge(const Outputs &core);
    void reset(bool link_up) override;
    void refresh() override;
    void reset_function(bool on) override;
    bool function_reset_done() const override { return reset_done_; }
    void receive(Downstream &&packet) override;

private:
    // TLPs that the link has not begun with when it is given another one: so it is never idle
    // between two.
    static constexpr unsigned kWaiting = 2;
    static constexpr unsigned kTags = 256;

    struct Request {
        unsigned sequence;
        Words words;
    };
    struct Interrupt {
        bool msi;
        unsigned number;  // of a message
        bool assert;
    };

    Shape shape(const Downstream &packet, bool joins) const override;
    bool take(Port number, const AxiStream &stream);
    void take_request();
    void take_completion();
    void take_interrupts(const Outputs &core);
    void answer_management(const Outputs &core);
    void forward(Words &&words) override;
    void hand_over();
    void show();
    void show_completions();
    void show_requests();
    std::array<uint32_t, 4> descriptor(const Downstream &packet) const;
    void fill(AxiStream &to, const Downstream &packet, size_t skipped) const;
    void end_reads();
    void error(const char *what);

    const UltraScaleKind kind_;
    const size_t lanes_;  // dwords of a beat
    const bool straddle_;
    UltraScalePorts pins_;
    std::array<AxiStream, kMostPorts> offered_;  // beats that were not taken
    std::array<uint32_t, 3> user_{};  // of the request that is being taken, its first beat's
    unsigned sequence_ = 0;           // of the request that is being forwarded
    std::deque<Request> requests_;
    std::deque<Words> completions_;
    std::deque<unsigned> returned_;  // sequence numbers
    // Of reads, by their tags: those that have completions to come; the addresses behind them.
    std::bitset<kTags> outstanding_;
    std::array<uint64_t, kTags> ends_{};
    uint64_t last_read_ = 0;  // cycle
    const uint64_t patience_;  // cycles
    std::optional<Interrupt> interrupt_;
    bool asserted_ = false;  // INTA, as the core has it
    bool credits_shown_ = false;
    bool reset_done_ = false;  // of the function
};

}  // namespace peerdma
