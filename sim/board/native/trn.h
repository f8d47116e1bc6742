// SPDX-License-Identifier: BSD-2-Clause
// The block as a 7-series core sees it: transaction ports of 64 bits (UG477).
#pragma once

#include "block.h"
#include "pins.h"

namespace peerdma {

class TrnBlock : public Block {
public:
    // The core's ports, apart for its inputs and its outputs.
    using Inputs = TrnInputs;
    using Outputs = TrnOutputs;

    TrnBlock(const Options &options, ConfigSpace &config, Link &link, Root &root, Log &log,
             Trace &trace);

    // Inputs of the core, valid until the next edge.
    const Inputs &pins() const { return pins_; }
    // One rising clock edge at which the core's outputs are `core`; advances the link.
    void edge(const Outputs &core);
    void reset(bool link_up) override;
    void refresh() override;

private:
    Shape shape(const Downstream &packet, bool joins) const override;
    void take_transmit(const Outputs &core);
    void show();
    void show_received();

    Inputs pins_;
    std::deque<uint64_t> discarded_;  // cycles in which trnterrdrop says so
};

}  // namespace peerdma
