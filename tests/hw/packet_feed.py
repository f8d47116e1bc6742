# SPDX-License-Identifier: BSD-2-Clause
"""A user block whose frames a bench makes, and what launch queues do with them at the seam."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from amaranth.hdl import Module
from amaranth.lib import stream, wiring

from hw.stream.ring import stream_beat
from hw.stream.user_blocks import FrameBlock
from peerdma import regs
from tests.hw.helpers import send
from tests.hw.launch_queue import BASE, prepare, word
from tests.hw.seam_model import SeamModel
from tests.hw.stream.beats import beats_of

__all__ = ["RECORD", "Fed", "PacketSlot", "feed"]

RECORD = regs.FRAME_RECORD.itemsize


class Fed(FrameBlock):
    """Frames that a bench offers at `source`."""

    NAME, RATIO = "TEST", (0, 1)
    #: that of the core that was built last
    source = stream.Signature(stream_beat(64)).create()

    def __init__(self, width: int):
        super().__init__(width)
        Fed.source = self._source = stream.Signature(stream_beat(width)).create()

    def elaborate(self, platform):
        m = Module()
        wiring.connect(m, self._source, wiring.flipped(self.o))
        m.d.comb += self.i.ready.eq(1)
        return m


async def feed(ctx, rng, *packets: bytes, pause=lambda: 0, sizes: Sequence[int] = ()):
    """Offer packets, in beats that are full or of these sizes, each after so many idle cycles."""
    source = Fed.source
    lanes = source.payload.data.shape().width // 8
    for packet in packets:
        beats = beats_of(packet, rng, sizes or [lanes], lanes)
        beats[-1]["last"] = 1
        await send(ctx, source, beats, pause)


class PacketSlot:
    """A slot for a packet, with its memory in the model's.

    Parameters
    ----------
    model : SeamModel
    number : int
        Of the slot, which is even.
    at : int
        Where its memory is: the record, what there is for a packet, and the list.
    spans : int
        Bytes of each piece of memory for a packet, 64 bytes apart.
    control : int
        As for `prepare`.
    """

    GUARD = 64

    def __init__(self, model: SeamModel, number: int, at: int, *spans: int, **control: int):
        self.model, self.number, self.at, self.sizes = model, number, at, spans
        self.places, place = [], at + RECORD + self.GUARD
        for size in spans:
            self.places.append((place, size))
            place += size + self.GUARD
        self.end = place
        #: behind its list
        self.behind = (place + 31 & ~31) + 32 * (len(spans) + 1)
        window = regs.STREAM_WINDOW
        lists = [(window, BASE + place, size) for place, size in self.places]
        lists.append((window, BASE + at, RECORD))
        options = {"c2h": 1, "receive": 1} | control
        prepare(model, number, lists, place + 31 & ~31, **options)
        # The second one is in the slot behind.
        base = regs.LAUNCH_SLOT.address("descriptor", number + 1)
        second = (place + 31 & ~31) + regs.DESCRIPTOR.itemsize
        for dword in range(0, regs.DESCRIPTOR.itemsize, 4):
            model.write(base + dword, word(model, second + dword))
        model.memory[second : second + regs.DESCRIPTOR.itemsize] = bytes(32)
        self.clear()

    def clear(self):
        """Forget what was received."""
        self.model.memory[self.at : self.end] = b"\xa5" * (self.end - self.at)

    @property
    def room(self) -> int:
        return sum(self.sizes)

    def check(self, packet: bytes, number: int):
        """It has the packet, as far as there is room, with its record, and nothing beside it."""
        expected = bytearray(b"\xa5" * (self.end - self.at))
        rest = packet
        for place, size in self.places:
            part, rest = rest[:size], rest[size:]
            expected[place - self.at : place - self.at + len(part)] = part
        found = self.model.memory[self.at : self.end]
        assert found[RECORD:] == expected[RECORD:], f"packet {number}"
        (record,) = np.frombuffer(bytes(found[:RECORD]), regs.FRAME_RECORD)
        assert record["number"] == regs.FRAME_NUMBER_VALID | number
        assert record["bytes"] == len(packet)
        assert record["crc"] == zlib.crc32(packet)
