# SPDX-License-Identifier: BSD-2-Clause
"""The window through which the host pushes a channel's first descriptors into the ring of its
fetch, so that a run begins without reading them from memory."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from ..records import PushedWord
from ..registers.bus import BusSignature
from .signatures import Pushed

__all__ = ["PushWindow"]

#: Words of a descriptor on the register bus, and dwords.
_WORDS = regs.DESCRIPTOR.itemsize // 8
_DWORDS = 2 * _WORDS
_WINDOW = regs.PUSH_DESCRIPTORS * _WORDS


class PushWindow(wiring.Component):
    """Hands on the words of descriptors that the host writes, and counts those that are complete.

    Dwords are taken in ascending order from the first one of the window, and only while `open`. One
    that is not the next, or comes while closed, is dropped and spoils what was pushed, until the
    first dword of the window is written again. So a descriptor counts only when all its dwords
    have been written since the first one, and no older content of a slot is ever taken for it.
    A dword is written whole or not at all.

    Parameters
    ----------
    index : int
        Channel number within its direction.
    c2h : bool
        Direction.

    Members
    -------
    bus : In(BusSignature)
        Reads as 0.
    open : In(1)
        The channel has no run: words may be written to the ring.
    clear : In(1)
        Forget what was pushed; a write in the same cycle counts.
    word : Out(stream of PushedWord, always ready)
        In the cycle of the write: a word, or half of one, for the slots from 0 on.
    pushed : Out(Pushed)
        From the cycle after the last write.
    """

    def __init__(self, *, index: int, c2h: bool):
        self._base = regs.C2H_PUSH_BASE if c2h else regs.H2C_PUSH_BASE
        self._base += index * regs.PUSH_STRIDE
        super().__init__(
            {
                "bus": In(BusSignature()),
                "open": In(1),
                "clear": In(1),
                "word": Out(stream.Signature(PushedWord, always_ready=True)),
                "pushed": Out(Pushed),
            }
        )

    def elaborate(self, platform):
        m = Module()
        write, placed = self.bus.write, self.word.payload
        within = exact_log2(_WINDOW)
        at = write.address[:within]
        #: dwords pushed; all ones if they are spoilt
        dwords = Signal(range(2 * 2 * _WINDOW))
        low, high = write.enable[:4].all(), write.enable[4:].all()
        writing, accepted = Signal(), Signal()
        first = (at == 0) & low
        follows = (dwords[1:] == at) & (dwords[0] == ~low)
        m.d.comb += [
            writing.eq(
                write.valid
                & (write.bar == regs.BAR_DMA[0])
                & (write.address[within:] == self._base // 8 >> within)
                & (low | high)
            ),
            accepted.eq(self.open & (first | follows)),
            self.word.valid.eq(writing & accepted),
            placed.data.eq(write.data),
            self.pushed.any.eq(dwords.any()),
            self.pushed.whole.eq(dwords % _DWORDS == 0),
            self.pushed.count.eq(dwords // _DWORDS),
        ]
        for bank in range(2):
            with m.If(at[0] == bank):
                m.d.comb += placed.enable[bank].eq(Cat(low.replicate(4), high.replicate(4)))
            m.d.comb += placed.rows[bank].eq(at[1:])
        with m.If(self.clear):
            m.d.sync += dwords.eq(0)
        with m.If(writing):
            m.d.sync += dwords.eq(Mux(accepted, Cat(~high, at + high), ~0))
        return m
