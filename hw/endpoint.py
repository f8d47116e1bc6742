# SPDX-License-Identifier: BSD-2-Clause
"""The endpoint: the DMA core behind the adapter of a PCIe block."""

from dataclasses import replace

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from .core import Core, CoreConfig
from .interrupts.irq import USER_INTERRUPTS
from .pcie.adapters import ADAPTERS, AdapterKind
from .pcie.interface import PortsSignature
from .pcie.ports import Port
from .stream.user_blocks.axis import flat_ports, user_module

__all__ = [
    "DEFAULT_ADAPTER",
    "EXTRA_PORTS",
    "MODULE_NAME",
    "SIMULATION_PORTS",
    "Endpoint",
    "ports_of",
    "user_ports",
]

#: Name of the generated Verilog module.
MODULE_NAME = "peerdma_core"

#: The adapter of the boards that are here.
DEFAULT_ADAPTER = ADAPTERS["series7"]

#: Ports that do not go to the PCIe block.
EXTRA_PORTS = (
    Port("clk", "i", 1, "user clock of the PCIe block"),
    Port("rst", "i", 1, "synchronous reset: link down, hot reset"),
    Port("led", "o", 3, "LEDs, 1 is on"),
    Port("gpio", "i", 4, "auxiliary inputs"),
    Port("user_irq", "i", USER_INTERRUPTS, "user interrupt requests, level"),
)

#: Ports that only a core for a simulation has.
SIMULATION_PORTS = (
    Port("time_scale", "i", 32, "how much slower than real time this runs"),
    Port("timeout_cycles", "i", 23, "completion timeout, from before the reset's end on"),
    Port("active", "o", 1, "a source of data is at work; a simulation must not rest"),
    Port("waits_for", "o", 32, "what channels wait for: four bits each, H2C first"),
)

#: Those that are members of the component: clock and reset belong to its domain.
_BOARD_PORTS = tuple(port for port in EXTRA_PORTS if port.name not in ("clk", "rst"))


def user_ports(config: CoreConfig, adapter: AdapterKind = DEFAULT_ADAPTER) -> tuple[Port, ...]:
    """The ports for user logic that is outside of the core."""
    if config.verilog:
        return ()
    return tuple(
        Port(name, "o" if member.flow == Out else "i", Shape.cast(member.shape).width, doc)
        for number in range(config.outside)
        for name, member, doc, _ in flat_ports(number, adapter.block.width)
    )


def ports_of(
    config: CoreConfig, adapter: AdapterKind = DEFAULT_ADAPTER, *, simulation: bool = False
) -> tuple[Port, ...]:
    """All ports of the module, in the order in which they are listed."""
    simulated = SIMULATION_PORTS if simulation else ()
    return (*EXTRA_PORTS, *simulated, *user_ports(config, adapter), *adapter.ports)


class Endpoint(wiring.Component):
    """The core and its adapter, and user logic in Verilog if there is a file of it.

    Parameters
    ----------
    config : CoreConfig
    adapter : AdapterKind
    simulation : bool
        With `SIMULATION_PORTS`, one of which has the completion timeout in place of `config`.

    Members
    -------
    trn, or as `AdapterKind.interface` says : Out(PortsSignature)
        The ports to the PCIe block.
    As in `EXTRA_PORTS`, but for `clk` and `rst`, which are the `sync` domain's, in `user_ports`,
    and perhaps in `SIMULATION_PORTS`
    """

    def __init__(
        self,
        config: CoreConfig = CoreConfig(),
        adapter: AdapterKind = DEFAULT_ADAPTER,
        *,
        simulation: bool = False,
    ):
        if simulation:
            # The longest, for which the port and what counts it are wide enough.
            config = replace(config, completion_timeout_us=regs.COMPLETION_TIMEOUTS_US[-1])
        self._config, self._adapter = config, adapter
        self._core_ports = _BOARD_PORTS + (SIMULATION_PORTS if simulation else ())
        self._simulation = simulation
        flow = {"i": In, "o": Out}
        super().__init__(
            {
                port.name: flow[port.direction](port.width)
                for port in (*self._core_ports, *user_ports(config, adapter))
            }
            | {adapter.interface: Out(PortsSignature(adapter.ports))}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = core = Core(self._adapter.block, self._config)
        m.submodules.adapter = adapter = self._adapter.make(
            self._config.clock_khz, self._config.overcommit
        )
        wiring.connect(m, core.seam, adapter.seam)
        inner, outer = (getattr(each, self._adapter.interface) for each in (adapter, self))
        wiring.connect(m, inner, wiring.flipped(outer))
        for port in self._core_ports:
            inner, outer = getattr(core, port.name), getattr(self, port.name)
            m.d.comb += inner.eq(outer) if port.direction == "i" else outer.eq(inner)
        for number, ports in enumerate(core.user):
            if self._config.verilog:
                m.submodules[f"user{number}"] = user_module(self._config.user, ports)
                continue
            for name, member, _, (interface, part) in flat_ports(number, self._adapter.block.width):
                inner, outer = getattr(getattr(ports, interface), part), getattr(self, name)
                m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
        return m
