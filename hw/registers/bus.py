# SPDX-License-Identifier: BSD-2-Clause
"""The register bus: 64 bits wide, so that a beat of a TLP is one cycle, with what distributes it.

Reads and writes are independent halves. A write is visible to a read of a later cycle. A target
that is not selected returns 0, so that the read data of several targets is merged by OR.

What software reads back as it wrote it, a target may leave to the register file in front of the
targets (`hw.registers.file`): `write.store` and `read.stored` say which bits.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..seam import BUS_WIDTH

__all__ = [
    "READ_LATENCY",
    "BusFanOut",
    "BusSignature",
    "BusStage",
    "RegisterRead",
    "RegisterWrite",
    "hand_on",
]

#: Clock cycles from `read.valid` at the initiator to `read.data`: one in the request stage in front
#: of the banks, one in the bank or in the fan-out of a few banks, one in the register file.
READ_LATENCY = 3


class RegisterWrite(wiring.Signature):
    """The write half of the register bus, from the initiator's side.

    Members
    -------
    valid : Out(1)
        A write, which takes this one cycle.
    bar, address : Out
        BAR number, and byte address within the BAR >> 3.
    data, enable : Out(64), Out(8)
        The word and its byte enables.
    store : In(2)
        In the same cycle: the dwords that are for the register file to store.
    """

    def __init__(self):
        super().__init__(
            {
                "valid": Out(1),
                "bar": Out(3),
                "address": Out(13),
                "data": Out(BUS_WIDTH),
                "enable": Out(BUS_WIDTH // 8),
                "store": In(2),
            }
        )


class RegisterRead(wiring.Signature):
    """The read half of the register bus, from the initiator's side.

    Members
    -------
    valid : Out(1)
        A read; its side effects happen in this cycle.
    bar, address : Out
        BAR number, and byte address within the BAR >> 3.
    enable : Out(8)
        The bytes that are really read: no other register is affected.
    data : In(64)
        Valid a fixed number of cycles after `valid`, for the initiator `READ_LATENCY`; 0 where no
        register is.
    stored : In(64)
        With `data`: the bits that are in the register file instead.
    """

    def __init__(self):
        super().__init__(
            {
                "valid": Out(1),
                "bar": Out(3),
                "address": Out(13),
                "enable": Out(BUS_WIDTH // 8),
                "data": In(BUS_WIDTH),
                "stored": In(BUS_WIDTH),
            }
        )


class BusSignature(wiring.Signature):
    """Both halves of the register bus, from the initiator's side.

    Members
    -------
    write : Out(RegisterWrite)
    read : Out(RegisterRead)
    """

    def __init__(self):
        super().__init__({"write": Out(RegisterWrite()), "read": Out(RegisterRead())})


def hand_on(source, target) -> list:
    """Assignments of the accesses at a `BusSignature` to another one, from initiator to target."""
    return [
        target.write.valid.eq(source.write.valid),
        target.write.bar.eq(source.write.bar),
        target.write.address.eq(source.write.address),
        target.write.data.eq(source.write.data),
        target.write.enable.eq(source.write.enable),
        target.read.valid.eq(source.read.valid),
        target.read.bar.eq(source.read.bar),
        target.read.address.eq(source.read.address),
        target.read.enable.eq(source.read.enable),
    ]


class BusStage(wiring.Component):
    """A pipeline register for accesses: they arrive at `target` one cycle later.

    Read data is not delayed.

    Members
    -------
    bus : In(BusSignature), target : Out(BusSignature)
    """

    bus: In(BusSignature())
    target: Out(BusSignature())

    def elaborate(self, platform):
        m = Module()
        m.d.sync += hand_on(self.bus, self.target)
        m.d.comb += self.bus.read.data.eq(self.target.read.data)
        return m


class BusFanOut(wiring.Component):
    """Gives every access to all targets, and merges their answers by OR.

    Parameters
    ----------
    targets : int
    registered : bool
        Register what is merged of reads, which adds a cycle of read latency.

    Members
    -------
    bus : In(BusSignature)
    targets : array of Out(BusSignature)
    """

    def __init__(self, targets: int, *, registered: bool = True):
        self._registered = registered
        super().__init__({"bus": In(BusSignature()), "targets": Out(BusSignature()).array(targets)})

    def elaborate(self, platform):
        m = Module()
        read, store, data, stored = self.bus.read, 0, 0, 0
        for target in self.targets:
            m.d.comb += hand_on(self.bus, target)
            store = store | target.write.store
            data = data | target.read.data
            stored = stored | target.read.stored
        m.d.comb += self.bus.write.store.eq(store)
        domain = m.d.sync if self._registered else m.d.comb
        domain += [read.data.eq(data), read.stored.eq(stored)]
        return m
