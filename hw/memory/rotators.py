# SPDX-License-Identifier: BSD-2-Clause
"""Byte rotators between beats and banks: any byte address, a beat in each cycle.

Two words that follow each other are in different banks, so the bytes of a beat are written, or
read, in one cycle wherever they begin. A rotation is done in steps, each of which is one
multiplexer of four inputs: as many as fit a LUT.
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..records import CardMemory, placement
from .banks import ReadPortSignature

__all__ = ["Get", "Put", "put_beat"]


def _latency(width: int) -> int:
    """Cycles that a rotator takes for beats of `width` bits.

    Raises
    ------
    ValueError
        If there are no such beats.
    """
    if width not in (64, 128, 256):
        raise ValueError(f"a beat must have 64, 128 or 256 bits, not {width}")
    return len(_steps(width // 8)) - 1


def _steps(lanes: int) -> list[slice]:
    """The bits of a lane's number that each step of a rotation looks at."""
    return [slice(low, low + 2) for low in range(0, exact_log2(lanes), 2)]


def _turned(lanes: list, by: Value, step: int) -> list[Value]:
    """Lanes in a circle, moved by `by` times `step` lanes."""
    count = range(1 << len(by))
    return [
        Array(lanes[(n - turn * step) % len(lanes)] for turn in count)[by]
        for n in range(len(lanes))
    ]


def _next_row(row: Value, bank: Value) -> Value:
    """Row of the even word, if the other one is in `row`: behind an odd word it is the next."""
    return (row + bank)[: len(row)]


def _bank_of(lane: int, shift: Value, bank: Value) -> Value:
    """Bank of a lane of a beat that begins in lane `shift`, in `bank`."""
    return bank ^ (shift > lane)


def put_beat(width: int, address_bits: int) -> data.StructLayout:
    """A beat of bytes to write: lane n goes to the byte address `address` + n.

    Members: `client` and `memory`, as of a placement; `address`, in bytes; `data`; `enable`, a bit
    for each lane that is to be written.
    """
    return data.StructLayout(
        {
            "client": 4,
            "memory": CardMemory,
            "address": address_bits,
            "data": width,
            "enable": width // 8,
        }
    )


class Put(wiring.Component):
    """Rotates the bytes of a beat to the lanes of two banks.

    A beat per cycle, at any byte address; beats need not belong together. A beat appears at `o`
    `latency` cycles after it was at `i`: 1 for 64 and 128 bits, 2 for 256.

    Parameters
    ----------
    width : int
        Bits of a beat and of a word: 64, 128 or 256.
    address_bits : int
        Of a byte address. Rows count modulo what it reaches.

    Members
    -------
    i : In(stream of put_beat, always ready)
    discard : In(1)
        From the next cycle on nothing of the beats so far appears.
    o : Out(stream of placement, always ready)

    Raises
    ------
    ValueError
        If there is no such width.
    """

    def __init__(self, width: int, address_bits: int):
        self.latency = _latency(width)
        self._lanes = width // 8
        always = {"always_ready": True}
        super().__init__(
            {
                "i": In(stream.Signature(put_beat(width, address_bits), **always)),
                "discard": In(1),
                "o": Out(stream.Signature(placement(width), **always)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self._lanes
        select_bits = exact_log2(lanes)
        beat, out = self.i.payload, self.o.payload
        carried = data.StructLayout(
            {
                "client": 4,
                "memory": CardMemory,
                "rows": out.rows.shape(),
                "bank": 1,
                "shift": select_bits,
            }
        )
        head, valid = Signal(carried), self.i.valid
        row = beat.address[select_bits + 1 :]
        m.d.comb += [
            head.client.eq(beat.client),
            head.memory.eq(beat.memory),
            head.shift.eq(beat.address[:select_bits]),
            head.bank.eq(beat.address[select_bits]),
            head.rows[0].eq(_next_row(row, head.bank)),
            head.rows[1].eq(row),
        ]
        # A byte and its enable travel together, as nine bits.
        moving = [Cat(beat.data.word_select(n, 8), beat.enable[n]) for n in range(lanes)]
        for stage, bits in enumerate(_steps(lanes)):
            if stage:
                was, was_valid, came = head, valid, moving
                head, valid = Signal(carried, name=f"head{stage}"), Signal(name=f"valid{stage}")
                moving = [Signal(9, name=f"lane{stage}_{n}") for n in range(lanes)]
                m.d.sync += [
                    valid.eq(was_valid & ~self.discard),
                    head.eq(was),
                    *(now.eq(before) for now, before in zip(moving, came, strict=True)),
                ]
            moving = _turned(moving, head.shift[bits], 1 << bits.start)
        m.d.comb += [
            self.o.valid.eq(valid),
            out.client.eq(head.client),
            out.memory.eq(head.memory),
            out.rows.eq(head.rows),
        ]
        for n, lane in enumerate(moving):
            bank = _bank_of(n, head.shift, head.bank)
            m.d.comb += [
                out.data.word_select(n, 8).eq(lane[:8]),
                out.enable[0][n].eq(lane[8] & ~bank),
                out.enable[1][n].eq(lane[8] & bank),
            ]
        return m


class Get(wiring.Component):
    """Reads a beat of bytes out of two banks, of one of several memories.

    A beat per cycle, from any byte address. Its bytes are at `data` `latency` cycles after `read`:
    1 for 64 and 128 bits, in the cycle in which the memory answers, and 2 for 256.

    Parameters
    ----------
    width : int
        Bits of a beat and of a word: 64, 128 or 256.
    address_bits : int
        Of a byte address. Rows count modulo what it reaches.
    memories : int
        How many there are.

    Members
    -------
    read : In(1), memory : In(range(memories)), address : In(address_bits)
        Read a beat, whose lane 0 is the byte with this address.
    following : Out(address_bits)
        The address of the beat behind it: `address` and a word.
    memories : array of Out(ReadPortSignature)
    valid : Out(1), data : Out(width)
        The beat of `latency` cycles ago, if there was one.

    Raises
    ------
    ValueError
        If there is no such width.
    """

    def __init__(self, width: int, address_bits: int, memories: int = 1):
        self.latency = _latency(width)
        self._lanes = width // 8
        super().__init__(
            {
                "read": In(1),
                "memory": In(range(memories)),
                "address": In(address_bits),
                "following": Out(address_bits),
                "memories": Out(ReadPortSignature(width)).array(memories),
                "valid": Out(1),
                "data": Out(width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self._lanes
        select_bits = exact_log2(lanes)
        lane, bank = self.address[:select_bits], self.address[select_bits]
        row = self.address[select_bits + 1 :]
        next_row = Signal.like(row)
        m.d.comb += [
            next_row.eq(_next_row(row, bank)),
            self.following.eq(Cat(lane, ~bank, next_row)),
        ]
        for number, port in enumerate(self.memories):
            m.d.comb += [
                port.rows[0].eq(next_row),
                port.rows[1].eq(row),
                port.enable.eq(self.read & (self.memory == number)),
            ]
        # What the memories answer a cycle later belongs to these.
        valid, shift = Signal(), Signal(select_bits)
        memory, banks = Signal.like(self.memory), Signal(lanes)
        m.d.sync += [
            valid.eq(self.read),
            shift.eq(lane),
            memory.eq(self.memory),
            banks.eq(Cat(_bank_of(n, lane, bank) for n in range(lanes))),
        ]
        moving = []
        for n in range(lanes):
            words = [word for port in self.memories for word in (port.data[0], port.data[1])]
            moving.append(Array(word.word_select(n, 8) for word in words)[Cat(banks[n], memory)])
        for stage, bits in enumerate(_steps(lanes)):
            if stage == 2:
                # With the choice of the word, three multiplexers are as many as fit in a cycle.
                was, was_valid, came = shift, valid, moving
                shift, valid = Signal(select_bits, name="shift_late"), Signal(name="valid_late")
                moving = [Signal(8, name=f"lane{n}") for n in range(lanes)]
                m.d.sync += [
                    valid.eq(was_valid),
                    shift.eq(was),
                    *(now.eq(before) for now, before in zip(moving, came, strict=True)),
                ]
            moving = _turned(moving, shift[bits], -1 << bits.start)
        m.d.comb += [self.valid.eq(valid), self.data.eq(Cat(moving))]
        return m
