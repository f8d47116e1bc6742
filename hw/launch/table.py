# SPDX-License-Identifier: BSD-2-Clause
"""The table of what software has prepared: slots, and what is set for the queues."""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..registers.bus import BusSignature
from .records import PLACES, QUEUE_COLUMN, ROW_BITS, SETTINGS, SLOT_BITS

__all__ = ["LaunchTable"]

_QUEUE, _TICKET = regs.LAUNCH_QUEUE, regs.LAUNCH_TICKET
#: Bit of a word's address that is 1 for the queues and 0 for the slots; and the bits above it.
_PAGE, _BASE = ROW_BITS, regs.LAUNCH_SLOT.base >> 4 + ROW_BITS
assert regs.LAUNCH_SLOT.base >> 3 + _PAGE == 2 * _BASE
assert _QUEUE.base >> 3 + _PAGE == _TICKET.base >> 3 + _PAGE == 2 * _BASE + 1
#: The address of a ticket's register ends with its place.
assert _TICKET.stride == 8 and _TICKET.base % (8 * PLACES * regs.LAUNCH_QUEUES) == 0


class LaunchTable(wiring.Component):
    """A block RAM that software writes and the sequencer reads; and registers that act.

    A slot has eight words, of which the last one is not its own: these are the words of the queues.
    What is in the RAM cannot be read over the bus: gating 64 bits takes a LUT for each.

    Parameters
    ----------
    queues : int

    Members
    -------
    bus : In(BusSignature)
    get : In(1), row : In(9), word : Out(64)
        Row to read, and what it has, from the next cycle until another one is read.
    settings : Out(SETTINGS), one for each queue
    armed : Out(queues)
        High for the cycle in which software arms the queue.
    load : Out(queues), first : Out(16)
        High for the cycle in which software sets the first ticket.
    resume : Out(queues)
        High for the cycle of a write to `resume`.
    state : In(32), one for each queue; ignored : In(8)
        Registers of these names.
    place : Out(range(PLACES * queues)), slot : In(SLOT_BITS)
        What a ticket's register shows, in the same cycle.
    """

    def __init__(self, queues: int):
        self._queues = queues
        super().__init__(
            {
                "bus": In(BusSignature()),
                "get": In(1),
                "row": In(ROW_BITS),
                "word": Out(64),
                "settings": Out(SETTINGS).array(queues),
                "armed": Out(queues),
                "load": Out(queues),
                "first": Out(16),
                "resume": Out(queues),
                "state": In(32).array(queues),
                "ignored": In(8),
                "place": Out(range(PLACES * queues)),
                "slot": In(SLOT_BITS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        read, write = self.bus.read, self.bus.write
        m.submodules.rows = rows = memory.Memory(
            shape=64, depth=1 << ROW_BITS, init=[], attrs={"ram_style": "block"}
        )
        put, get = rows.write_port(granularity=32), rows.read_port()

        def here(access):
            base = access.address[_PAGE + 1 :] == _BASE
            return access.valid & (access.bar == regs.BAR_DMA[0]) & base

        # The words of the queues are not to be hit through those of a slot.
        writing, of_queues = Signal(), write.address[_PAGE]
        lanes = Cat(write.enable[:4].all(), write.enable[4:].all())
        in_rows = of_queues | (write.address[:3] != QUEUE_COLUMN)
        of_queue = Cat(Const(QUEUE_COLUMN, 3), write.address[:SLOT_BITS])
        m.d.comb += [
            writing.eq(here(write)),
            put.addr.eq(Mux(of_queues, of_queue, write.address[:ROW_BITS])),
            put.data.eq(write.data),
            put.en.eq(Mux(writing & in_rows, lanes, 0)),
            get.en.eq(self.get),
            get.addr.eq(self.row),
            self.word.eq(get.data),
        ]

        def lane(name):
            return _QUEUE[name].offset // 4 % 2

        def written(queue, name):
            at = queue << 3 | _QUEUE[name].offset // 8
            here = of_queues & (write.address[:SLOT_BITS] == at)
            return writing & here & lanes[lane(name)]

        m.d.comb += self.first.eq(write.data.word_select(lane("first"), 32))
        for queue, settings in enumerate(self.settings):
            control = SETTINGS(write.data.word_select(lane("control"), 32))
            m.d.comb += [
                self.load[queue].eq(written(queue, "first")),
                self.resume[queue].eq(written(queue, "resume")),
            ]
            with m.If(written(queue, "control")):
                m.d.sync += settings.eq(control)
                m.d.comb += self.armed[queue].eq(control.armed & ~settings.armed)

        # A register for each queue, cleared where it was not read: a choice would take LUTs.
        asked = here(read) & read.address[_PAGE] & (read.address[:3] == _QUEUE["state"].offset // 8)
        states, ignored = [], Signal.like(self.ignored)
        m.d.sync += ignored.eq(Mux(asked, self.ignored, 0))
        for queue, state in enumerate(self.state):
            states.append(kept := Signal(32, name=f"state{queue}"))
            this = asked & (read.address[3:ROW_BITS] == queue)
            m.d.sync += kept.eq(Mux(this, state, 0))
        bits, slot = len(self.place), Signal.like(self.slot)
        of_ticket = read.address[bits : _PAGE + 1] == (_TICKET.base >> 3) % (2 << _PAGE) >> bits
        m.d.comb += self.place.eq(read.address)
        m.d.sync += slot.eq(Mux(here(read) & of_ticket, self.slot, 0))
        m.d.comb += read.data.eq(Cat(reduce(or_, [*states, slot]), ignored))
        return m
