# SPDX-License-Identifier: BSD-2-Clause
"""A PCIe block and a host as the seam shows them: the smallest thing that the core runs against."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from hw.core import Core
from hw.pcie.series7.block import SERIES7
from hw.seam import BUS_WIDTH, Block, CompletionStatus, TargetKind
from peerdma import regs
from tests.hw.helpers import fields
from tests.hw.pcie.tlps import seam_beats
from tests.hw.read.completions import enabled_bytes

__all__ = ["SeamModel", "block_of", "descriptors_of", "finish", "start", "transfer"]

#: Most bytes of one completion, which also ends at multiples of this.
_COMPLETION_BYTES = 64
#: Cycles from the end of a write to its token.
_TOKEN_DELAY = 3


def block_of(width: int) -> Block:
    """A block of this width that is otherwise as the 7-series'."""
    return replace(SERIES7, width=width)


class SeamModel:
    """Host memory that the core reads and writes, and accesses to its DMA registers.

    Completions come in order and writes are taken as soon as the seam allows. Inbound packets
    follow as closely as the seam allows. A request outside of the memory fails the test.

    Parameters
    ----------
    core : Core
    base : int
        Bus address of the first byte of memory.
    size : int
        Bytes of memory.

    Attributes
    ----------
    writes : list of (int, int, int)
        Address, dwords and the relaxed ordering attribute of each write, in order.
    refused : set of int
        Offsets in memory: a read of one of these bytes ends there, by Unsupported Request.
    lost : set of int
        Offsets in memory: a read gets no answer from one of these bytes on.
    """

    def __init__(self, core: Core, base: int, size: int):
        self.core, self.seam, self.base = core, core.seam, base
        self.width = core.block.width
        self.memory = bytearray(size)
        self.writes: list[tuple[int, int, int]] = []
        self.refused: set[int] = set()
        self.lost: set[int] = set()
        self._completions, self._targets, self._answers = deque(), deque(), []

    @property
    def benches(self):
        """What has to run in the background."""
        return (
            self._take_requests,
            self._send(self.seam.requester_completion, self._completions, pause=False),
            self._send(self.seam.target, self._targets, pause=self.width == BUS_WIDTH),
            self._take_answers,
        )

    async def link_up(self, ctx):
        """The state of a link on which everything may go: MPS 128, MRRS 512."""
        ctx.set(
            self.seam.link,
            {
                "link_up": 1,
                "bus_master": 1,
                "max_read_request": 2,
                "read_room": 1,
                "write_room": 1,
                "np_headers": 0xFF,
                "speed": 2,
                "width": 1,
            },
        )
        await ctx.tick().repeat(2)

    def write(self, offset: int, value: int, bar: int = regs.BAR_DMA[0], *, dwords: int = 1):
        """Write a register, or several at once, in order with all other accesses."""
        header = self._header(TargetKind.WRITE, offset, bar)
        header |= {"dwords": dwords, "last_be": 0xF if dwords > 1 else 0}
        self._targets.append(seam_beats(header, value.to_bytes(4 * dwords, "little"), self.width))

    async def read(self, ctx, offset: int) -> int:
        """Read a DMA register."""
        self._answers.clear()
        self._targets.append(seam_beats(self._header(TargetKind.READ, offset), None, self.width))
        while not self._answers:
            await ctx.tick()
        (value,) = self._answers
        return value

    @staticmethod
    def _header(kind: TargetKind, offset: int, bar: int = regs.BAR_DMA[0]) -> dict:
        return {"kind": kind, "address": offset, "dwords": 1, "first_be": 0xF, "bar": bar}

    def _span(self, header: dict, count: int) -> slice:
        at = header["address"] - self.base
        assert 0 <= at <= at + count <= len(self.memory), f"request to {header['address']:#x}"
        return slice(at, at + count)

    async def _take_requests(self, ctx):
        requester, sent = self.seam.requester, self.seam.sent
        tokens, cycle, data = deque(), 0, b""
        async for _, _, beat, valid, taken in ctx.tick().sample(
            requester.payload, requester.valid, requester.ready
        ):
            cycle += 1
            # The first beat is offered for a cycle before it is taken.
            ctx.set(requester.ready, valid and not (taken and beat.last))
            due = bool(tokens) and tokens[0][0] <= cycle
            ctx.set(sent.valid, due)
            if due:
                ctx.set(sent.payload.token, tokens.popleft()[1])
            if not (valid and taken):
                continue
            header = fields(beat.header)
            if header["write"]:
                data += beat.data.to_bytes(self.width // 8, "little")
                if beat.last:
                    self.writes.append((header["address"], header["dwords"], header["relaxed"]))
                    self._store(header, data)
                    tokens.append((cycle + _TOKEN_DELAY, header["token"]))
                    data = b""
            else:
                self._load(header)

    def _store(self, header: dict, data: bytes):
        first, count = enabled_bytes(header["first_be"], header["last_be"], header["dwords"])
        span = self._span(header, 4 * header["dwords"])
        self.memory[span.start + first : span.start + first + count] = data[first : first + count]

    def _load(self, header: dict):
        first, left = enabled_bytes(header["first_be"], header["last_be"], header["dwords"])
        address = header["address"] + first
        while left:
            count = min(left, _COMPLETION_BYTES - address % _COMPLETION_BYTES)
            start, end = address & ~3, address + count + 3 & ~3
            span = self._span({"address": start}, end - start)
            if not self.lost.isdisjoint(range(span.start, span.stop)):
                return
            refused = not self.refused.isdisjoint(range(span.start, span.stop))
            completion = {
                "status": CompletionStatus.UR if refused else CompletionStatus.SC,
                "byte_count": left,
                "lower_address": address & 0x7F,
                "dwords": 0 if refused else (end - start) // 4,
                "tag": header["tag"],
            }
            content = None if refused else bytes(self.memory[span])
            self._completions.append(seam_beats(completion, content, self.width))
            if refused:
                return
            address, left = address + count, left - count

    @staticmethod
    def _send(stream, packets, *, pause: bool):
        """Sends packets; with `pause` a cycle follows each, not only one of one beat."""

        async def run(ctx):
            cycle, began = 0, -2
            while True:
                beats = packets.popleft() if packets else []
                for beat in beats:
                    if beat["first"]:
                        assert cycle - began >= 2, "first beats of packets are two cycles apart"
                        began = cycle
                    ctx.set(stream.payload, beat)
                    ctx.set(stream.valid, 1)
                    ready = False
                    while not ready:
                        _, _, ready = await ctx.tick().sample(stream.ready)
                        cycle += 1
                if pause or len(beats) < 2:
                    ctx.set(stream.valid, 0)
                    await ctx.tick()
                    cycle += 1

        return run

    async def _take_answers(self, ctx):
        completion = self.seam.completion
        ctx.set(completion.ready, 1)
        async for _, _, beat, valid in ctx.tick().sample(completion.payload, completion.valid):
            if valid:
                assert beat.first and beat.last and beat.header.status == CompletionStatus.SC
                self._answers.append(beat.data & 0xFFFF_FFFF)


def descriptors_of(spans, address: int) -> np.ndarray:
    """A list of `regs.DESCRIPTOR` for (source, destination, length) each, to be at an address."""
    rows = [
        (regs.DESC_MAGIC << 16, length, source, destination, address + 32 * (number + 1))
        for number, (source, destination, length) in enumerate(spans)
    ]
    table = np.array(rows, regs.DESCRIPTOR)
    table["control"][-1] |= regs.DESC_STOP | regs.DESC_COMPLETED
    return table


def start(model, *, c2h: bool, descriptors, pushed: int = 0) -> int:
    """Let channel 0 run one list, (source, destination, length) each; the channel's address.

    Its first descriptors, `pushed` many, are not in memory: they are pushed. The others are in the
    first 4 KiB.
    """
    at = 0x800 * c2h
    table = descriptors_of(descriptors, model.base + at)
    model.memory[at : at + table.nbytes] = bytes(32 * pushed) + table[pushed:].tobytes()

    channel = regs.C2H_CHANNEL_BASE if c2h else regs.CHANNEL.base
    sgdma = regs.C2H_SGDMA_BASE if c2h else regs.SGDMA.base
    model.write(sgdma + regs.SGDMA["descriptor_lo"].offset, model.base + at & 0xFFFF_FFFF)
    model.write(sgdma + regs.SGDMA["descriptor_hi"].offset, model.base + at >> 32)
    window = regs.C2H_PUSH_BASE if c2h else regs.H2C_PUSH_BASE
    for number, dword in enumerate(table[:pushed].view("<u4")):
        model.write(window + 4 * number, int(dword))
    events = regs.Status.DESCRIPTOR_STOPPED | regs.Status.errors()
    control = regs.CHANNEL["control"]
    model.write(channel + control.offset, control.field("run").put(1) | events & control.writable)
    return channel


async def transfer(ctx, model, *, c2h: bool, descriptors, pushed: int = 0) -> int:
    """`start` a list, and wait for its end; the channel's status."""
    return await finish(ctx, model, start(model, c2h=c2h, descriptors=descriptors, pushed=pushed))


async def finish(ctx, model, channel: int) -> int:
    """Wait for the end of a run that was started; the channel's status."""
    while True:
        status = await model.read(ctx, channel + regs.CHANNEL["status"].offset)
        if not status & regs.Status.BUSY:
            model.write(channel + regs.CHANNEL["control"].offset, 0)
            return status
