# SPDX-License-Identifier: BSD-2-Clause
"""What seldom happens behind the UltraScale and UltraScale+ adapter, once for each family."""

from __future__ import annotations

from cocotb.triggers import ClockCycles
from cocotbext.pcie.core.caps import PciCapId
from cocotbext.pcie.core.tlp import TlpAttr

from .memory import Transfer
from .tb import TB, bench

PCIE = ("ultrascale_plus-128", "ultrascale-256")

#: Device Control: its offset in the PCI Express capability, and Enable Relaxed Ordering.
_DEVICE_CONTROL, _RELAXED_ORDERING = 8, 1 << 4
#: Two accesses of the models' configuration management interface, in cycles.
_FOLLOWS = 12


@bench(us=200)
async def relaxed_ordering(tb: TB):
    """Reads of data have the attribute while the host allows it, two accesses after it says so."""
    control = await tb.pci.capability_read_word(PciCapId.EXP, _DEVICE_CONTROL)
    source = tb.buffer(3000, offset=7)
    for allowed in (True, False, True, False):
        control = control & ~_RELAXED_ORDERING | _RELAXED_ORDERING * allowed
        await tb.pci.capability_write_word(PciCapId.EXP, _DEVICE_CONTROL, control)
        await ClockCycles(tb.dut.clk, _FOLLOWS)
        tb.host.requests.clear()
        await tb.h2c.run(tb.chain([Transfer(source.address, 0, 3000)]))
        data = range(source.address & ~3, source.address + source.size)
        found = [tlp.attr & TlpAttr.RO for tlp in tb.host.requests if tlp.address in data]
        assert len(found) > 5
        assert set(map(bool, found)) == {allowed}
