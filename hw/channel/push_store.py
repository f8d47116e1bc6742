# SPDX-License-Identifier: BSD-2-Clause
"""Keeps the descriptors that the host pushes while another owner's run uses the slots."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from peerdma import regs

from ..records import Placement
from .signatures import Pushed

__all__ = ["PushStore"]

_DESCRIPTOR_WORDS = regs.DESCRIPTOR.itemsize // 8
_WORDS = regs.PUSH_DESCRIPTORS * _DESCRIPTOR_WORDS


class PushStore(wiring.Component):
    """Hands on pushed words, and repeats them if another owner may have overwritten their slots.

    While the channel is not `owned`, a word passes through in the cycle in which it comes.

    Members
    -------
    word : In(stream of Placement, always ready)
        Words, or halves, that the host pushes, in the rows of slots from 0 on. None while
        `restore` is high.
    pushed : In(Pushed)
        What they make.
    owned : In(1)
        Another owner has the channel, and its slots.
    restore : In(1)
        A run of the host's waits to begin. High until it does, or is given up.
    restored : Out(1)
        The slots hold the descriptors that the run begins with, if it does so with pushed ones: at
        once, or four cycles for each of them after `restore`.
    slots : Out(stream of Placement, always ready)
        To the descriptor fetch, while the channel is not `owned`.
    """

    word: In(stream.Signature(Placement, always_ready=True))
    pushed: In(Pushed)
    owned: In(1)
    restore: In(1)
    restored: Out(1)
    slots: Out(stream.Signature(Placement, always_ready=True))

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Memory(shape=64, depth=_WORDS, init=[])
        write, read = words.write_port(granularity=32), words.read_port(domain="comb")
        word, slots = self.word.payload, self.slots.payload
        bank = word.enable[1].any()
        enable = Mux(bank, word.enable[1], word.enable[0])
        at = Signal(range(_WORDS))
        stale, needed, repeating = Signal(), Signal(), Signal()
        # Not more than were pushed: the fetch keeps the `next` of the one that was written last.
        last = at == (self.pushed.count << exact_log2(_DESCRIPTOR_WORDS)) - 1
        m.d.comb += [
            write.addr.eq(Cat(bank, Mux(bank, word.rows[1], word.rows[0]))),
            write.data.eq(word.data),
            write.en.eq(Mux(self.word.valid, Cat(enable[0], enable[4]), 0)),
            read.addr.eq(at),
            needed.eq(stale & self.pushed.any & self.pushed.whole),
            repeating.eq(self.restore & needed & ~self.owned),
            self.restored.eq(~needed),
            self.slots.valid.eq(self.word.valid | repeating),
            slots.eq(word),
        ]
        with m.If(repeating):
            m.d.comb += slots.data.eq(read.data)
            for number in range(2):
                m.d.comb += [
                    slots.rows[number].eq(at[1:]),
                    slots.enable[number].eq((at[0] == number).replicate(8)),
                ]
        m.d.sync += at.eq(Mux(repeating, at + 1, 0))
        with m.If(self.owned):
            m.d.sync += stale.eq(1)
        with m.Elif(repeating & last):
            m.d.sync += stale.eq(0)
        return m
