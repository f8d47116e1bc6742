# SPDX-License-Identifier: BSD-2-Clause
"""A channel with another owner beside software's registers."""

from peerdma import regs
from peerdma.regs import Status
from tests.hw.channel.control_bench import LAST, Bench, descriptor
from tests.hw.owner import Owner

__all__ = ["SharedBench", "finished", "prepare"]


class SharedBench(Bench):
    """Each owner's runs have two descriptors, at addresses of their own.

    Attributes
    ----------
    owner : Owner
        The one beside software.
    """

    def __init__(self, c2h: bool):
        super().__init__(c2h, shared=True)
        self.descriptors = [descriptor(pci=0x1000), descriptor(**LAST, pci=0x2000)]
        self.owned_descriptors = [descriptor(pci=0x8000), descriptor(**LAST, pci=0x9000)]
        self.owner = Owner(self.dut.owner)


async def finished(bench, ctx, cycles=400):
    """Waits until software's run is over; its status."""
    for _ in range(cycles):
        status = await bench.read(ctx, "status")
        if not status & Status.BUSY:
            return status
        await ctx.tick()  # events wait for a cycle without an access
    raise AssertionError(f"busy after {cycles} reads")


async def prepare(bench, ctx):
    """All interrupts on, performance counters run."""
    counting = regs.CHANNEL["perf_control"].field("run").put(1)
    await bench.write(ctx, "interrupt_enable", 0xFFFF_FFFF)
    await bench.write(ctx, "perf_control", counting)
