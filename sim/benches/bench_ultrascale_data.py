# SPDX-License-Identifier: BSD-2-Clause
"""Whether all that the core sends and receives crosses the UltraScale adapter whole, at each width.

All four streams pause. On UltraScale+ only: both blocks have the same descriptors, and what differs
between them is the subject of `bench_ultrascale`.
"""

from __future__ import annotations

from peerdma import regs

from .bench_dma import in_disorder, random_pieces, there_and_back
from .bench_ultrascale import copy
from .channel import CONTROL_STOP
from .host import Fault, Split
from .memory import Transfer
from .tb import TB, bench

PCIE = ("ultrascale_plus-256", "ultrascale_plus-128", "ultrascale_plus-64")


@bench(us=1500)
async def alignments(tb: TB):
    """Every host address modulo 8, card addresses all over the beat, lengths around it."""
    beat = len(tb.dut.s_axis_rq_tdata) // 8
    for source in range(8):
        pieces, card = [], 0
        for phase in range(0, beat, 3):
            for size in (1, 3, 4, 5, 8, 11, 15, 16, 17, 20, 31, 32, 33, 64 + phase):
                card += -(card - phase) % 32
                pieces.append((size, source, card, (source + 3 * phase) % 8))
                card += size
        await there_and_back(tb, pieces)


@bench(us=1500)
async def limits(tb: TB):
    """Every combination of payload, request size and boundary, with each way to split."""
    for mps in (128, 256, 512):
        for mrrs in (128, 512, 4096):
            for number, rcb in enumerate((64, 128)):
                await tb.configure(mps=mps, mrrs=mrrs, rcb=rcb)
                tb.host.split = tb.rng.choice(list(Split))
                await there_and_back(tb, random_pieces(tb, 2, 2500), high=bool(number))


@bench(us=2000, stall=0.3)
async def disorder(tb: TB):
    """Late, split and reordered completions while all four streams pause."""
    await in_disorder(tb)


@bench(us=1500)
async def copies(tb: TB):
    """Both directions at once, with and without pauses."""
    for stall in (0.0, 0.3):
        tb.device.stall = stall
        for size in (1, 333, 4096, 20_000):
            await tb.configure(mps=tb.rng.choice((128, 256)))
            await copy(tb, size)


@bench(us=600, stall=0.1)
async def failed_reads(tb: TB):
    """Each way in which a completion can be bad ends its run, and the next one is good."""
    for fault, status in (
        (Fault.UNSUPPORTED_REQUEST, regs.Status.READ_UNSUPPORTED),
        (Fault.COMPLETER_ABORT, regs.Status.READ_ABORT),
        (Fault.POISONED, regs.Status.READ_POISONED),
    ):
        source = tb.buffer(900, offset=7)
        tb.host.inject(range(source.address + 300, source.address + 301), fault)
        chain = tb.chain([Transfer(source.address, 0, 900)])
        await tb.h2c.start(chain)
        found = await tb.h2c.idle(100)
        assert found & status, f"{fault}: {found!r}"
        await tb.h2c.read("status_rc")
        await tb.h2c.write("control", CONTROL_STOP)
        tb.host.clear_faults()
        await there_and_back(tb, [(900, 7, 3, 1)])
