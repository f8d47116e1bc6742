# SPDX-License-Identifier: BSD-2-Clause
"""A board's whole design: the core behind its PHY, and the board's pins."""

from amaranth import *
from amaranth.lib import io, wiring

from .core import CoreConfig
from .endpoint import DEFAULT_ADAPTER, Endpoint, user_ports
from .pcie.series7.parameters import Identity
from .pcie.series7.phy import Pads, Phy
from .pcie.series7.phy.synchronise import synchronised

__all__ = ["Top"]


class Top(Elaboratable):
    """For platforms with the resources of `hw.boards.Board`.

    User logic in Verilog becomes a file of the platform.

    While the link is down the first LED shows that the clocks are good, the second that the
    transceiver is up. While the link is up software controls the LEDs.

    Parameters
    ----------
    config : CoreConfig
        `clock_khz` is the frequency of the user clock.
    identity : Identity

    Raises
    ------
    ValueError
        If the core has ports for user logic: nothing here would be connected to them. If the
        configuration is more than the PCIe block can do.
    """

    def __init__(self, config: CoreConfig, identity: Identity = Identity()):
        if user_ports(config):
            raise ValueError(
                f"nothing here is connected to the ports of the user block {config.user.__name__}: "
                "name a file with your logic instead (--user FILE.v), or write the core alone "
                "(hw.build core) for a project of your own"
            )
        config.require(DEFAULT_ADAPTER.block)
        self._config, self._identity = config, identity

    def elaborate(self, platform):
        m = Module()
        m.domains += ClockDomain("sync")
        pcie = platform.request("pcie", dir="-")
        m.submodules.phy = phy = Phy(
            Pads(
                refclk_p=pcie.refclk.p,
                refclk_n=pcie.refclk.n,
                rx_p=pcie.rx.p,
                rx_n=pcie.rx.n,
                tx_p=pcie.tx.p,
                tx_n=pcie.tx.n,
            ),
            self._config.clock_khz,
            self._identity,
        )
        m.submodules.endpoint = endpoint = Endpoint(self._config)
        for path in self._config.verilog:
            platform.add_file(path.name, path.read_text())
        wiring.connect(m, endpoint.trn, phy.trn)

        m.submodules.perst = perst = io.Buffer("i", pcie.perst)
        m.submodules.clkreq = clkreq = io.Buffer("o", pcie.clkreq)
        m.submodules.led = led = io.Buffer("o", platform.request("led", dir="-"))
        m.submodules.gpio = gpio = io.Buffer("i", platform.request("gpio", dir="-"))
        up = Signal()
        m.d.sync += up.eq(1)  # reset while the link is down
        m.d.comb += [
            phy.perst_n.eq(~perst.i),
            clkreq.o.eq(1),  # the reference clock is always needed
            endpoint.gpio.eq(synchronised(m, gpio.i)),
            led.o.eq(Mux(up, endpoint.led, Cat(phy.clock_good, phy.transceiver_good))),
        ]
        return m
