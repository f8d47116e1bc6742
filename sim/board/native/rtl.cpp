// SPDX-License-Identifier: BSD-2-Clause
#include "rtl.h"

#include <stdexcept>

#include "Vpeerdma_core.h"
#ifdef PEERDMA_WAVES
#include "verilated_fst_c.h"
#endif
// Made together with a core that is not behind the adapter of the 7 series, by sim/compile.
#if __has_include("front_end.h")
#include "front_end.h"
#else
#include "trn.h"
namespace peerdma {
using FrontEnd = TrnBlock;
}
#endif

namespace peerdma {

struct Rtl::Parts {
    Parts(const Options &options, ConfigSpace &config, Link &link, Root &root, Log &log,
          Trace &trace)
        : block(options, config, link, root, log, trace) {}

    VerilatedContext context;
    // Without a name, so that paths in waveforms are those of the benches.
    Vpeerdma_core core{&context, ""};
    FrontEnd block;
    FrontEnd::Outputs outputs;
#ifdef PEERDMA_WAVES
    VerilatedFstC waves;
    bool tracing = false;
#endif
};

Rtl::Rtl(const Options &options, ConfigSpace &config, Link &link, Root &root, Log &log,
         Trace &trace)
    : parts_(std::make_unique<Parts>(options, config, link, root, log, trace)) {
    parts_->core.clk = 0;
    parts_->core.gpio = 0;
    parts_->core.user_irq = 0;
    parts_->core.time_scale = options.time_scale;
    parts_->core.timeout_cycles =
        uint32_t(options.completion_timeout_us * options.clock_khz / 1000);
    if (options.waves.empty()) return;
#ifdef PEERDMA_WAVES
    parts_->context.traceEverOn(true);
    parts_->core.trace(&parts_->waves, 99);
    parts_->waves.open(options.waves.c_str());
    if (!parts_->waves.isOpen()) throw std::invalid_argument("cannot write " + options.waves);
    parts_->tracing = true;
#else
    throw std::invalid_argument("this library was built without waveform tracing");
#endif
}

Rtl::~Rtl() {
#ifdef PEERDMA_WAVES
    if (parts_->tracing) parts_->waves.close();
#endif
    parts_->core.final();
}

Block &Rtl::block() { return parts_->block; }

const Block &Rtl::block() const { return parts_->block; }

void Rtl::cycle(bool reset) {
    Vpeerdma_core &core = parts_->core;
    drive(core, parts_->block.pins());
    core.rst = reset;
    core.clk = 0;
    core.eval();
    sample(core, parts_->outputs);
#ifdef PEERDMA_WAVES
    if (parts_->tracing) parts_->waves.dump(parts_->context.time());
    parts_->context.timeInc(1);
#endif
    core.clk = 1;
    core.eval();
#ifdef PEERDMA_WAVES
    if (parts_->tracing) parts_->waves.dump(parts_->context.time());
    parts_->context.timeInc(1);
#endif
    parts_->block.edge(parts_->outputs);
}

bool Rtl::active() const { return parts_->core.active; }

uint32_t Rtl::waits_for() const { return parts_->core.waits_for; }

}  // namespace peerdma
