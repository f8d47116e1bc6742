# SPDX-License-Identifier: BSD-2-Clause
"""CRC-32 of the bytes of a stream."""

from functools import reduce
from operator import xor

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from .ring import stream_beat

__all__ = ["Crc32"]

#: The polynomial of IEEE 802.3, the coefficient of x^31 in bit 0.
_POLYNOMIAL = 0xEDB8_8320


def _step(state: list, bit) -> list:
    """The state after one more bit of data.

    State and bit hold anything that ^ adds: bits of an expression, or sets of bits.
    """
    out = state[0] ^ bit
    return [
        state[n + 1] ^ out
        if n < 31 and _POLYNOMIAL >> n & 1
        else (out if n == 31 else state[n + 1])
        for n in range(32)
    ]


class Crc32(wiring.Component):
    """Hands a stream on, and computes the CRC-32 (IEEE 802.3, zlib's) of the bytes that pass.

    No latency. A full beat passes at once. One of fewer bytes waits here while its bits are taken,
    in each cycle a 64th of what a full one has, but one at least: a byte takes eight cycles where a
    full beat has 4 or 8, four cycles where it has 16, and two where it has 32.

    Parameters
    ----------
    lanes : int
        Bytes of a full beat, 4, 8, 16 or 32.
    width : int
        Bits of a beat, full or not.

    Members
    -------
    i : In(stream of stream_beat), o : Out(stream of stream_beat)
        No beat has more than `lanes` bytes.
    enable : In(1)
        Low: short beats pass at once, too, and `value` means nothing until it is cleared.
    clear : In(1)
        From the next cycle on, only the bytes count that pass then. Also while a beat passes.
    value : Out(32)
        Of the bytes that have passed. It counts only while no beat is offered: a short one is in it
        partly.
    """

    def __init__(self, lanes: int, *, width: int):
        if lanes not in (4, 8, 16, 32):
            raise ValueError(f"a full beat must have 4, 8, 16 or 32 bytes, not {lanes}")
        self._lanes = lanes
        super().__init__(
            {
                "i": In(stream.Signature(stream_beat(width))),
                "o": Out(stream.Signature(stream_beat(width))),
                "enable": In(1),
                "clear": In(1),
                "value": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        beat, bits = self.i.payload, 8 * self._lanes
        #: of a short beat, in a cycle
        at_once = max(1, bits // 64)
        state = Signal(32, init=0xFFFF_FFFF)
        #: cycles in which some of a short beat have been taken
        taken = Signal(range(bits // at_once + 1))
        full, whole = Signal(), Signal()
        m.d.comb += [
            full.eq(beat.count == self._lanes),
            whole.eq(full | ~self.enable | (taken == beat.count << exact_log2(8 // at_once))),
            self.o.payload.eq(beat),
            self.o.valid.eq(self.i.valid & whole),
            self.i.ready.eq(self.o.ready & whole),
            self.value.eq(~state),
        ]
        # Once all bits of a short beat have been taken, they wait for the sink.
        some = beat.data.word_select(taken[:-1], at_once)
        takes, passes = self.i.valid & ~whole, self.i.valid & self.i.ready
        with m.If(takes | passes & full):
            stepped = reduce(_step, some, list(state))
            m.d.sync += state.eq(Mux(full, self._after(state, beat.data[:bits]), Cat(stepped)))
        with m.If(takes):
            m.d.sync += taken.eq(taken + 1)
        with m.If(passes):
            m.d.sync += taken.eq(0)
        with m.If(self.clear):
            m.d.sync += state.eq(~0)
        return m

    @staticmethod
    def _after(state: Value, data: Value) -> Value:
        """The state after all of `data`.

        Each of its bits is the sum of some bits of state and data: which ones, `_step` finds out by
        sets of them. The first 32 bits of data are added to the state at once, which halves it.
        """
        sources = [*(state ^ data[:32]), *data[32:]]
        sums = [frozenset({n}) for n in range(32)]
        for n in range(len(data)):
            sums = _step(sums, frozenset({n}) if n >= 32 else frozenset())
        # By 64 bits of data: a simulator goes as deep into an expression as it has terms.
        parts = [{*range(at, at + 64)} for at in range(0, len(data), 64)]

        def added(numbers):
            return reduce(xor, (sources[n] for n in sorted(numbers)))

        return Cat(reduce(xor, (added(each & part) for part in parts)) for each in sums)
