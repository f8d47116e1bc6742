# SPDX-License-Identifier: BSD-2-Clause
"""How much data may be under way when more is asked for.

What the root complex has to send goes out in order, so a descriptor or a short read waits for the
data that was asked for before it. There should be as much of that as keeps the link busy for a
round trip, and little more. How much this is depends on the platform and on whose memory is read,
so it is found by trying.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2, exact_log2

__all__ = ["HASTE", "LATE", "PATIENCE", "PAUSE", "STEP", "TOLERANCE", "ReadWindow"]

#: Charges by which the window changes: half of the largest read's.
STEP = 4
#: Completions are late if they take longer than before by one part in so many, a power of two.
TOLERANCE = 128
#: Measurements until a smaller window is tried: after a try that was too small, and otherwise.
#: Powers of two. A try loses a part of `LATE` measurements and one more.
PATIENCE, HASTE = 4096, 16
#: Late measurements in a row with which the window grows: a short write the other way makes one or
#: two late. Each counts for so many others.
LATE, _LATE = 3, 2
#: Cycles from one in which data waits to the next that count all the same, a power of two: in
#: between a request is made, or waits for its turn.
PAUSE = 64
#: Largest time that is measured, in cycles, plus one.
_LONGEST = 1 << 13


class ReadWindow(wiring.Component):
    """Finds the smallest window of data reads with which completions come as fast as they can.

    It measures how long the completions of a fixed number of charges take, at least three times as
    many as there is room for. Cycles and charges count only while data waits that would be asked
    for with more room, or with a larger window, and for `PAUSE` cycles afterwards; from the first
    completion that comes meanwhile, so that the round trip at the beginning of a transfer does not
    count.

    The shortest time that was seen is the link's. A measurement is late if it takes longer by one
    part in `TOLERANCE`. After `LATE` late ones, or if more than a third are for long, the window
    grows by `STEP` charges, at most until all the room is used. With that nothing is late, whatever
    it takes, and the link's time is what was measured last. After `HASTE` measurements in a row of
    which none was late the window shrinks by `STEP`; after `PATIENCE`, if it has grown because it
    had shrunk too much.

    A measurement that is as much shorter than the link's time means that something else had made
    them late, and that more may be gained: all the room is used, and it is learned anew.

    Whatever else makes completions late for long lets the window grow, and if the time that they
    take keeps changing, all the room is used. What was learned stays when channels are reset: it
    belongs to the platform.

    Latency: `most` changes in the cycle after that of the completion with which a measurement ends.

    Parameters
    ----------
    capacity, most_data : int
        Completions that the PCIe block has room for, and those of the largest data read.

    Members
    -------
    waits : In(1)
        Data waits for room or for the window.
    returned : In(range(capacity + 1))
        Charges that a completion has given back in this cycle, 0 if there was none.
    most : Out(range(capacity + 1))
        Data may be asked for while no more charges than these are out for data: a multiple of
        `STEP`, or `capacity`, with which room is the only limit.
    """

    def __init__(self, capacity: int, most_data: int):
        self._capacity = capacity
        #: steps of the largest window, for which there is always room
        self._top = max(-(-(capacity - most_data) // STEP), 1)
        #: charges of a measurement
        self._charges = 1 << ceil_log2(3 * capacity)
        super().__init__(
            {
                "waits": In(1),
                "returned": In(range(capacity + 1)),
                "most": Out(range(capacity + 1)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        steps = Signal(range(self._top + 1), init=self._top)
        all_room = steps == self._top
        m.d.comb += self.most.eq(Mux(all_room, self._capacity, steps * STEP))

        pause = Signal(range(PAUSE + 1), init=PAUSE)
        waits, running, counts = Signal(), Signal(), Signal()
        with m.If(self.waits):
            m.d.sync += pause.eq(0)
        with m.Elif(waits):
            m.d.sync += pause.eq(pause + 1)
        with m.If(~waits):
            m.d.sync += running.eq(0)
        with m.Elif(self.returned != 0):
            m.d.sync += running.eq(1)
        m.d.comb += [waits.eq(~pause[exact_log2(PAUSE)]), counts.eq(waits & running)]

        # Charges of this measurement; and the measurements before it since the window changed, or
        # since one was late
        count = Signal(exact_log2(self._charges))
        following = Signal(len(count) + 1)
        measured = Signal(exact_log2(PATIENCE))
        ends = Signal()
        shrinks = Signal()
        begins_anew = Signal()
        #: the last change was to a smaller window; such a one was too small
        tried, patient = Signal(), Signal()
        due = measured[: exact_log2(HASTE)].all() & (~patient | measured.all())
        m.d.comb += [
            following.eq(count + Mux(counts, self.returned, 0)),
            ends.eq(following[-1]),
        ]

        # Cycles of this measurement, or, once it has taken as long as the link's time, those beyond
        time, least = Signal(range(_LONGEST)), Signal(range(_LONGEST))
        beyond = Signal()
        late = Signal()
        reached = Signal()
        grows = Signal()
        #: by how much late measurements are more than others
        excess = Signal(range(_LATE * LATE + 1))
        m.d.comb += [
            reached.eq(
                counts & ~all_room & (time == Mux(beyond, least[exact_log2(TOLERANCE) :], least))
            ),
            grows.eq(ends & late & (excess >= _LATE * (LATE - 1))),
            shrinks.eq(ends & ~late & due & (steps != 0)),
            begins_anew.eq(
                ends & ~all_room & ~beyond & (time < least - least[exact_log2(TOLERANCE) :])
            ),
        ]
        with m.If(counts):
            m.d.sync += time.eq(time + 1)
        with m.If(reached):
            m.d.sync += [beyond.eq(1), late.eq(beyond | late), time.eq(0)]
        m.d.sync += count.eq(following)
        with m.If(ends):
            m.d.sync += [beyond.eq(0), late.eq(0), time.eq(0), measured.eq(measured + 1)]
            with m.If(~beyond):
                m.d.sync += least.eq(time)
            with m.If(late):
                m.d.sync += [excess.eq(excess + _LATE), measured.eq(0)]
            with m.Elif(excess != 0):
                m.d.sync += excess.eq(excess - 1)
        with m.If(begins_anew):
            m.d.sync += [steps.eq(self._top), tried.eq(0), patient.eq(0)]
        with m.Elif(grows):
            m.d.sync += [steps.eq(steps + 1), tried.eq(0), patient.eq(tried)]
        with m.Elif(shrinks):
            m.d.sync += [steps.eq(steps - 1), tried.eq(1), patient.eq(0)]
        with m.If(begins_anew | grows | shrinks):
            m.d.sync += [excess.eq(0), count.eq(0), measured.eq(0)]
        return m
