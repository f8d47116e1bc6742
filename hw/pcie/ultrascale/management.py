# SPDX-License-Identifier: BSD-2-Clause
"""What no port of the block shows, by its configuration management interface."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["DeviceControl"]

#: Bits of Device Control (PCI Express Base Specification, "Device Control Register").
_RELAXED_ORDERING, _EXTENDED_TAG = 4, 8


class DeviceControl(wiring.Component):
    """Reads Device Control of function 0 again and again.

    An access takes as long as the block does, and a cycle more (PG156 and PG213, "Configuration
    Management Interface"). Both outputs follow a change within two accesses, and are 0 before the
    first one.

    Members
    -------
    read : Out(1)
        Until `done`; at least a cycle without passes before the next access.
    done : In(1), data : In(32)
        For a cycle: the dword with Device Control in its lower half.
    extended_tag, relaxed_ordering : Out(1)
        Extended Tag Field Enable, Enable Relaxed Ordering.
    """

    read: Out(1)
    done: In(1)
    data: In(32)
    extended_tag: Out(1)
    relaxed_ordering: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.read.eq(~(self.read & self.done))
        with m.If(self.read & self.done):
            m.d.sync += [
                self.extended_tag.eq(self.data[_EXTENDED_TAG]),
                self.relaxed_ordering.eq(self.data[_RELAXED_ORDERING]),
            ]
        return m
