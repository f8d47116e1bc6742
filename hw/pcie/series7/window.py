# SPDX-License-Identifier: BSD-2-Clause
"""How many of our TLPs may be in the PCIe block before another write starts.

The block keeps a TLP until the link partner has acknowledged it, and sends what it has in order: a
read waits for all that is in front of it. So there should be as much in the block as keeps the link
busy, and no more: what is sent in the time of an acknowledgement, and little that waits. How long
that time is, and how many TLPs the block holds, both depend on the platform, and are measured.
"""

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

__all__ = ["WriteWindow"]

#: Bytes that TLPs are counted in: a beat of theirs, and what a TLP has around itself on the link.
UNIT = 8
#: kHz of a clock in which a lane of 2.5 GT/s carries a unit per cycle.
_LANE_KHZ = 250_000 // UNIT
#: TLPs that may wait in the block: one on its way out, and one that the core hands over meanwhile.
#: With a third one, reads wait so long for writes of 512 bytes that both together lose a tenth.
_WAITING = 2
#: Units by which acknowledgements may be later than measured.
_SPARE = 20
#: Reads in a row that do not count among these: fewer than make what the counters hold.
_READS = 15
#: TLPs whose beginnings are remembered. More of them in the block are taken for fewer.
_TLPS = 32
#: Largest latency that is measured, in units.
_LONGEST = 255
#: Units for the cycles in which the core does not know yet that a buffer is free.
_REACTION = 8
#: Units without a TLP after which the block's count shows all that it was given.
_SETTLED = 16
#: A turn is slow if the link would be idle for as many units, and one for each `1 << _SHARE` of
#: the window.
_SLOW, _SHARE = 4, 5
#: Cycles without a beat, though a write may start, after which the core is taken to have none.
_STARTED = 16
#: Units by which the window grows beyond what a turn lacked: less is not noticed.
_MARGIN = 24
#: A slow turn weighs as much as so many others. With so much the link is slow for another reason
#: than the window.
_TURN, _VAIN = 4, 31
#: Turns after which it is tried whether less is enough, or more is needed, a power of two.
_PATIENCE = 4096


class WriteWindow(wiring.Component):
    """Says when a write may start.

    It does if all TLPs in the block but the last two are no more than the link carries while an
    acknowledgement is on its way (the window), and if another TLP then has a buffer, too. Reads do
    not count among the last two, unless there are very many in a row.

    The latency of an acknowledgement is measured with each TLP of two beats (a read request, or
    what carries a dword) that finds the block empty: from its first beat to the first buffer that
    is free again. Before the first one it counts as none; later ones count if no other TLP comes
    meanwhile. The block's number of buffers is the largest that it has shown; when that has not
    changed for `_LONGEST` units, what it shows then.

    A latency that rises while writes go on is seen by the link being idle, if it carries TLPs as
    fast as it can. A turn is the time from the beginning of a TLP until the first one begins after
    it has left the block. After the second turn in a row with notable idle time, though the core
    had writes, the window grows by that time. If that does not help the link is slow for another
    reason, and the window is again what was measured; it is also after `_PATIENCE` turns, to see
    whether that is enough.

    Latency: 3 cycles from `free` to `write`.

    Parameters
    ----------
    clock_khz : int

    Members
    -------
    link_up : In(1)
        Low: what was learned is forgotten.
    speed, lanes : In
        In the codes of Link Status.
    beat : In(1), first : In(1), last : In(1)
        The block takes a beat of a TLP.
    payload : In(1)
        With the first beat: the TLP has some.
    free : In(6)
        Its free transmit buffers, in TLPs; may be late.
    read, write : Out(1)
        The block has room for a request of this kind.
    """

    link_up: In(1)
    speed: In(2)
    lanes: In(4)
    beat: In(1)
    first: In(1)
    last: In(1)
    payload: In(1)
    free: In(6)
    read: Out(1)
    write: Out(1)

    def __init__(self, clock_khz: int):
        if clock_khz < _LANE_KHZ:
            raise ValueError(f"the clock must have {_LANE_KHZ} kHz or more, not {clock_khz}")
        self._cycles = clock_khz // _LANE_KHZ
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        begins = self.beat & self.first

        # The block's count, registered because its port is far away.
        free, free_before = Signal(6), Signal(6)
        most, used = Signal(6), Signal(6)
        changed, forget = Signal(), Signal()
        m.d.sync += [free.eq(self.free), free_before.eq(free), used.eq(most - free)]
        with m.If((free > most) | forget):
            m.d.sync += most.eq(free)
        empty = used == 0
        # When the link comes up, it is no TLP that comes or goes.
        m.d.comb += changed.eq((free != free_before) & (free <= most))

        # Units that went into the block in all, and how many these were when each TLP began.
        total, count = Signal(10), Signal(range(_TLPS))
        m.submodules.starts = starts = memory.Memory(shape=len(total), depth=_TLPS, init=[])
        write, read = starts.write_port(), starts.read_port(domain="comb")
        oldest = Signal.like(total)
        m.d.comb += [
            write.addr.eq(count),
            write.data.eq(total),
            write.en.eq(begins),
            read.addr.eq(count - used),
        ]
        m.d.sync += [
            total.eq(total + self.beat + begins),
            count.eq(count + begins),
            oldest.eq(read.data),
        ]
        # Reads between writes take hardly any time on the link, and do not count as waiting.
        start, reads, many = total, Signal(range(_READS + 1)), Signal()
        m.d.comb += many.eq(reads == _READS)
        with m.If(begins & self.payload):
            m.d.sync += reads.eq(0)
        with m.Elif(begins & ~many):
            m.d.sync += reads.eq(reads + 1)
        for number in range(_WAITING):
            before, start = start, Signal.like(total, name=f"start{number}")
            with m.If(begins & (self.payload | many)):
                m.d.sync += start.eq(before)

        # `time` counts from a TLP that found the block empty, and otherwise from when a TLP last
        # came or went: the block has some of its own.
        time, latency = (Signal(range(_LONGEST + 1), init=init) for init in (_LONGEST, 0))
        measuring, second = Signal(), Signal()
        late = time == _LONGEST
        tick = self._tick(m)
        window = self._window(m, begins, used, tick, latency)
        with m.If(tick & ~late):
            m.d.sync += time.eq(time + 1)
        with m.If(measuring):
            with m.If((free > free_before) | late):
                m.d.sync += [latency.eq(time), window.eq(time), measuring.eq(0)]
            with m.If(late):
                m.d.sync += time.eq(0)
            with m.If(self.beat):
                m.d.sync += second.eq(0)
            with m.If(self.beat & second & ~self.last):
                m.d.sync += measuring.eq(0)
            # The count stays if it shows another TLP in the cycle in which it shows the first
            # one's end.
            with m.If(begins & (latency != 0)):
                m.d.sync += measuring.eq(0)
        with m.Elif(begins | changed):
            m.d.sync += [
                time.eq(_REACTION),
                measuring.eq(begins & empty & (time >= _REACTION + _SETTLED)),
                second.eq(1),
            ]
        with m.If(~self.link_up):
            m.d.sync += [time.eq(_LONGEST), latency.eq(0), window.eq(0), measuring.eq(0)]

        inside = Signal(signed(len(total)))
        m.d.comb += [
            forget.eq(late & ~measuring & ~changed),
            inside.eq(start - oldest),
            self.read.eq(free != 0),
            self.write.eq((free > 1) & (empty | (inside <= window + _SPARE))),
        ]
        return m

    def _window(self, m, begins: Value, used: Value, tick: Value, latency: Value) -> Signal:
        """The latency that is reckoned with: what was measured, or more."""
        opened = Signal(range(_STARTED + 1))
        with m.If(self.beat | ~self.write):
            m.d.sync += opened.eq(0)
        with m.Elif(opened != _STARTED):
            m.d.sync += opened.eq(opened + 1)

        # Units that would wait in the block if the link carried them as fast as it can. More than
        # it holds are not counted: units are a little more than a TLP's bytes.
        queue = Signal(7)
        full, idle = queue[1:].all(), queue == 0
        m.d.sync += queue.eq(queue + Mux(full, 0, self.beat + begins) - (tick & ~idle))

        # Of this turn: TLPs, units for which the link would be idle, and whether the core had
        # writes all the time.
        since, lost, counts = Signal(6), Signal.like(latency), Signal()
        window = Signal.like(latency)
        left, ends, slow = Signal(), Signal(), Signal()
        m.d.comb += [
            left.eq(used < since),
            ends.eq(begins & counts & left),
            slow.eq(lost >= _SLOW + window[_SHARE:]),
        ]
        with m.If(begins & (left | ~counts)):
            m.d.sync += [since.eq(1), lost.eq(0), counts.eq(1)]
        with m.Else():
            m.d.sync += since.eq(since + begins)
            with m.If(tick & idle & (lost != _LONGEST)):
                m.d.sync += lost.eq(lost + 1)
        with m.If(opened == _STARTED):
            m.d.sync += counts.eq(0)

        larger = Signal(range(3 * _LONGEST))
        excess, turns = Signal(range(_VAIN + 1)), Signal(range(_PATIENCE))
        vain = excess == _VAIN
        m.d.comb += larger.eq(window + lost + _MARGIN)
        with m.If(ends):
            m.d.sync += turns.eq(turns + 1)
            with m.If(turns.all()):
                m.d.sync += [excess.eq(0), window.eq(latency)]
            with m.Elif(slow & ~vain):
                m.d.sync += excess.eq(Mux(excess > _VAIN - _TURN, _VAIN, excess + _TURN))
                with m.If(excess > _VAIN - _TURN):
                    m.d.sync += [window.eq(latency), turns.eq(0)]
                with m.Elif(excess >= _TURN):
                    m.d.sync += [window.eq(Mux(larger > _LONGEST, _LONGEST, larger)), turns.eq(0)]
            with m.Elif((excess != 0) & ~vain):
                m.d.sync += excess.eq(excess - 1)
        return window

    def _tick(self, m) -> Value:
        """High whenever the link has carried a unit."""
        if self._cycles == 1:
            return Const(1)
        phase = Signal(ceil_log2(self._cycles))
        m.d.sync += phase.eq(phase + 1)
        lanes = Mux(self.speed[1], self.lanes << 1, self.lanes)
        tick = phase == 0
        for bit in range(1, len(phase) + 1):
            tick = tick | (lanes[bit:].any() & (phase[: len(phase) - bit] == 0))
        return tick
