# SPDX-License-Identifier: BSD-2-Clause
"""The endpoint: the DMA core behind the 7-series adapter, with flat ports."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .core import Core, CoreConfig
from .interrupts.irq import USER_INTERRUPTS
from .pcie.series7.adapter import Series7Adapter
from .pcie.series7.ports import TRN_PORTS, Port

__all__ = ["EXTRA_PORTS", "MODULE_NAME", "Endpoint"]

#: Name of the generated Verilog module.
MODULE_NAME = "peerdma_core"

#: Ports that do not go to the hard block.
EXTRA_PORTS = (
    Port("clk", "i", 1, "user clock of the PCIe block"),
    Port("rst", "i", 1, "synchronous reset: link down, hot reset"),
    Port("led", "o", 3, "LEDs, 1 is on"),
    Port("gpio", "i", 4, "auxiliary inputs"),
    Port("user_irq", "i", USER_INTERRUPTS, "user interrupt requests, level"),
    Port("time_scale", "i", 32, "how much slower than real time this runs; 1 on hardware"),
    Port("active", "o", 1, "a source of data is at work; a simulation must not rest"),
    Port("waits_for", "o", 32, "for a simulation: four bits a channel, H2C first"),
)


class Endpoint(wiring.Component):
    """Ports: `hw.pcie.series7.ports.TRN_PORTS` and `EXTRA_PORTS`.

    `clk` and `rst` are the `sync` domain's.
    """

    def __init__(self, config: CoreConfig = CoreConfig()):
        self._config = config
        flow = {"i": In, "o": Out}
        ports = [port for port in EXTRA_PORTS if port.name not in ("clk", "rst")]
        super().__init__(
            {port.name: flow[port.direction](port.width) for port in (*ports, *TRN_PORTS)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = core = Core(self._config)
        m.submodules.adapter = adapter = Series7Adapter()
        wiring.connect(m, core.seam, adapter.seam)
        for port in (*EXTRA_PORTS, *TRN_PORTS):
            if port.name in ("clk", "rst"):
                continue
            inner = getattr(core if port in EXTRA_PORTS else adapter, port.name)
            outer = getattr(self, port.name)
            m.d.comb += inner.eq(outer) if port.direction == "i" else outer.eq(inner)
        return m
