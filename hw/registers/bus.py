# SPDX-License-Identifier: BSD-2-Clause
"""The register bus: 64 bits wide, so that a beat of a TLP is one cycle, with what distributes it.

Reads and writes are independent halves. A write is visible to a read of a later cycle. A target
that is not selected returns 0, so that the read data of several targets is merged by OR.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = [
    "READ_LATENCY",
    "BusFanOut",
    "BusSignature",
    "BusStage",
    "RegisterRead",
    "RegisterWrite",
]

#: Clock cycles from `read.valid` at the initiator to `read.data`: one in the request stage in front
#: of the banks, one in the bank or in the fan-out of a few banks, one in the fan-out of all.
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
    """

    def __init__(self):
        super().__init__(
            {
                "valid": Out(1),
                "bar": Out(3),
                "address": Out(13),
                "data": Out(64),
                "enable": Out(8),
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
    """

    def __init__(self):
        super().__init__(
            {
                "valid": Out(1),
                "bar": Out(3),
                "address": Out(13),
                "enable": Out(8),
                "data": In(64),
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
        write, read = self.bus.write, self.bus.read
        m.d.sync += [
            self.target.write.valid.eq(write.valid),
            self.target.write.bar.eq(write.bar),
            self.target.write.address.eq(write.address),
            self.target.write.data.eq(write.data),
            self.target.write.enable.eq(write.enable),
            self.target.read.valid.eq(read.valid),
            self.target.read.bar.eq(read.bar),
            self.target.read.address.eq(read.address),
            self.target.read.enable.eq(read.enable),
        ]
        m.d.comb += read.data.eq(self.target.read.data)
        return m


class BusFanOut(wiring.Component):
    """Gives every access to all targets, and merges their read data by OR.

    Parameters
    ----------
    targets : int
    registered : bool
        Register the merged read data, which adds a cycle of read latency.

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
        read, merged = self.bus.read, 0
        for target in self.targets:
            wiring.connect(m, wiring.flipped(self.bus.write), wiring.flipped(target.write))
            m.d.comb += [
                target.read.valid.eq(read.valid),
                target.read.bar.eq(read.bar),
                target.read.address.eq(read.address),
                target.read.enable.eq(read.enable),
            ]
            merged = merged | target.read.data
        domain = m.d.sync if self._registered else m.d.comb
        domain += read.data.eq(merged)
        return m
