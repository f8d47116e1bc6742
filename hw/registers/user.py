# SPDX-License-Identifier: BSD-2-Clause
"""The user BAR: LEDs, inputs, scratch, and the mailbox page with its timestamps."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from .bank import RegisterBank
from .bus import BusFanOut, BusSignature

__all__ = ["UserRegisters"]


class UserRegisters(wiring.Component):
    """Registers of BAR 0.

    A write to `first`, `last` or `done` of the mailbox keeps the value and the cycle count of its
    arrival, so that a GPU can report its progress and the board can say when. The doorbell page
    reads 0 and drops writes.

    Members
    -------
    bus : In(BusSignature)
    cycles : In(64)
        Free-running cycle count.
    led : Out(3), gpio : In(4)
    user_irq : Out(16)
        User interrupts that software raises.
    """

    bus: In(BusSignature())
    cycles: In(64)
    led: Out(3)
    gpio: In(4)
    user_irq: Out(16)

    def elaborate(self, platform):
        m = Module()
        bar = regs.BAR_USER[0]
        m.submodules.user = user = RegisterBank(regs.USER, bar=bar, registered=False, in_file=True)
        m.submodules.mailbox = mailbox = RegisterBank(
            regs.MAILBOX, bar=bar, registered=False, in_file=True
        )
        m.submodules.fan_out = fan_out = BusFanOut(2)
        wiring.connect(m, wiring.flipped(self.bus), fan_out.bus)
        wiring.connect(m, fan_out.targets[0], user.bus)
        wiring.connect(m, fan_out.targets[1], mailbox.bus)
        m.d.comb += [
            self.led.eq(user.led),
            user.gpio.eq(self.gpio),
            self.user_irq.eq(user.raise_interrupts),
        ]
        for name in ("first", "last", "done"):
            stamp = Signal(64, name=f"{name}_time")
            with m.If(getattr(mailbox, f"{name}_strobe")):
                m.d.sync += stamp.eq(self.cycles)
            m.d.comb += [
                getattr(mailbox, f"{name}_time_lo").eq(stamp[:32]),
                getattr(mailbox, f"{name}_time_hi").eq(stamp[32:]),
            ]
        return m
