// SPDX-License-Identifier: BSD-2-Clause
#include "rtl.h"

#include <stdexcept>

#include "Vpeerdma_core.h"
#ifdef PEERDMA_WAVES
#include "verilated_fst_c.h"
#endif

namespace peerdma {

struct Rtl::Parts {
    VerilatedContext context;
    // Without a name, so that paths in waveforms are those of the benches.
    Vpeerdma_core core{&context, ""};
#ifdef PEERDMA_WAVES
    VerilatedFstC waves;
    bool tracing = false;
#endif
};

Rtl::Rtl(const std::string &waves, uint32_t time_scale, uint32_t timeout_cycles)
    : parts_(std::make_unique<Parts>()) {
    parts_->core.clk = 0;
    parts_->core.gpio = 0;
    parts_->core.user_irq = 0;
    parts_->core.time_scale = time_scale;
    parts_->core.timeout_cycles = timeout_cycles;
    if (waves.empty()) return;
#ifdef PEERDMA_WAVES
    parts_->context.traceEverOn(true);
    parts_->core.trace(&parts_->waves, 99);
    parts_->waves.open(waves.c_str());
    if (!parts_->waves.isOpen()) throw std::invalid_argument("cannot write " + waves);
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

const FromCore &Rtl::cycle(const ToCore &to, bool reset) {
    Vpeerdma_core &core = parts_->core;
    drive(core, to);
    core.rst = reset;
    core.clk = 0;
    core.eval();
    sample(core, from_);
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
    return from_;
}

bool Rtl::active() const { return parts_->core.active; }

uint32_t Rtl::waits_for() const { return parts_->core.waits_for; }

}  // namespace peerdma
