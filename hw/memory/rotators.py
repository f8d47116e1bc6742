# SPDX-License-Identifier: BSD-2-Clause
"""Byte rotators between beats and banks: any byte address, a beat in each cycle.

Two words that follow each other are in different banks, so the bytes of a beat are written, or
read, in one cycle wherever they begin. Each multiplexer has four inputs, or two, as many as fit one
LUT of an FPGA.
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..records import CardMemory, placement
from .banks import ReadPortSignature

__all__ = ["Get", "Put", "put_beat"]


def _check_width(width: int) -> None:
    if width not in (64, 128, 256):
        raise ValueError(f"a beat must have 64, 128 or 256 bits, not {width}")


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
        _check_width(width)
        self._width = width
        self._address_bits = address_bits
        self.latency = (exact_log2(width // 8) - 1) // 2
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
        lanes = self._width // 8
        select_bits = exact_log2(lanes)
        beat, out = self.i.payload, self.o.payload

        # A byte and its enable travel together, as nine bits.
        moving = [Cat(beat.data.word_select(n, 8), beat.enable[n]) for n in range(lanes)]
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
            # Behind an odd word comes the even one of the next row.
            head.rows[0].eq((row + head.bank)[: len(row)]),
            head.rows[1].eq(row),
        ]
        for stage, low in enumerate(range(0, select_bits, 2)):
            if stage:
                # A register between two multiplexers.
                was, was_valid, came = head, valid, moving
                head, valid = Signal(carried, name=f"head{stage}"), Signal(name=f"valid{stage}")
                moving = [Signal(9, name=f"lane{stage}_{n}") for n in range(lanes)]
                m.d.sync += [
                    valid.eq(was_valid & ~self.discard),
                    head.eq(was),
                    *(now.eq(before) for now, before in zip(moving, came, strict=True)),
                ]
            turn = head.shift[low : low + 2]
            moving = [
                Array(moving[(n - (count << low)) % lanes] for count in range(1 << len(turn)))[turn]
                for n in range(lanes)
            ]
        m.d.comb += [
            self.o.valid.eq(valid),
            out.client.eq(head.client),
            out.memory.eq(head.memory),
            out.rows.eq(head.rows),
        ]
        for n, lane in enumerate(moving):
            # Lanes below the one of the first byte are of the next word.
            bank = head.bank ^ (head.shift > n)
            m.d.comb += [
                out.data.word_select(n, 8).eq(lane[:8]),
                out.enable[0][n].eq(lane[8] & ~bank),
                out.enable[1][n].eq(lane[8] & bank),
            ]
        return m


class Get(wiring.Component):
    """Reads a beat of bytes out of two banks.

    A beat per cycle, from any byte address. Its bytes are at `data` `latency` cycles after `read`:
    1 for 64 bits, in the cycle in which the memory answers, and 2 for 128 and 256.

    Parameters
    ----------
    width : int
        Bits of a beat and of a word: 64, 128 or 256.
    address_bits : int
        Of a byte address. Rows count modulo what it reaches.

    Members
    -------
    read : In(1), address : In(address_bits)
        Read a beat, whose lane 0 is the byte with this address.
    following : Out(address_bits)
        The address of the beat behind it: `address` and a word.
    memory : Out(ReadPortSignature)
    valid : Out(1), data : Out(width)
        The beat of `latency` cycles ago, if there was one.

    Raises
    ------
    ValueError
        If there is no such width.
    """

    def __init__(self, width: int, address_bits: int):
        _check_width(width)
        self._width = width
        self.latency = exact_log2(width // 8) // 2
        super().__init__(
            {
                "read": In(1),
                "address": In(address_bits),
                "following": Out(address_bits),
                "memory": Out(ReadPortSignature(width)),
                "valid": Out(1),
                "data": Out(width),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 8
        select_bits = exact_log2(2 * lanes)
        lane, bank = self.address[: select_bits - 1], self.address[select_bits - 1]
        row = self.address[select_bits:]
        next_row = Signal.like(row)
        m.d.comb += [
            # Behind an odd word comes the even one of the next row.
            next_row.eq(row + bank),
            self.following.eq(Cat(lane, ~bank, next_row)),
            self.memory.rows[0].eq(next_row),
            self.memory.rows[1].eq(row),
            self.memory.enable.eq(self.read),
        ]
        # A row of both banks is a circle of lanes, out of which the beat begins at `first`. From
        # the coarsest step to the finest, each multiplexer leaves fewer lanes to the next.
        first, valid = Signal(select_bits), Signal()
        m.d.sync += [valid.eq(self.read), first.eq(self.address)]
        moving = [self.memory.data[n // lanes].word_select(n % lanes, 8) for n in range(2 * lanes)]
        for stage, high in enumerate(range(select_bits, 0, -2)):
            if stage == 2:
                # A register behind two multiplexers.
                was, was_valid, came = first, valid, moving
                first, valid = Signal(select_bits, name="first_late"), Signal(name="valid_late")
                moving = [Signal(8, name=f"lane{n}") for n in range(len(came))]
                m.d.sync += [
                    valid.eq(was_valid),
                    first.eq(was),
                    *(now.eq(before) for now, before in zip(moving, came, strict=True)),
                ]
            low = max(high - 2, 0)
            turn, step = first[low:high], 1 << low
            moving = [
                Array(moving[(n + count * step) % len(moving)] for count in range(1 << len(turn)))[
                    turn
                ]
                for n in range(lanes + step - 1)
            ]
        m.d.comb += [self.valid.eq(valid), self.data.eq(Cat(moving))]
        return m
