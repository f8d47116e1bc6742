# SPDX-License-Identifier: BSD-2-Clause
"""Watchdog of the read tags: ends reads that are not answered, and quarantines."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

__all__ = ["TimeoutScan"]


class TimeoutScan(wiring.Component):
    """Scans each tag once in `timeout_cycles`, and counts the scans since its request was offered.

    The second scan ends a job that still waits; `quarantine_timeouts` further scans end the
    quarantine. Two scans are never in consecutive cycles.

    Parameters
    ----------
    tags, timeout_cycles, quarantine_timeouts : int
        As for `hw.read.engine.ReadEngine`.

    Members
    -------
    timeout_cycles : In
        As there.
    tag : Out(range(tags))
        The tag that is scanned next, if not in this cycle.
    due : Out(1)
        A tag is to be scanned as soon as it may.
    allowed : In(1)
        A tag may be scanned in this cycle.
    scan : Out(1)
        `tag` is scanned in this cycle.
    waiting, open : In(1)
        State of `tag` while it is scanned: a job waits for completions; completions may come.
    late : Out(1)
        With `scan`: the completions that may come have not come in time.
    timed_out : Out(1)
        With `late`: a job waits for them, and ends.
    expired : Out(1)
        With `scan`: the quarantine ends.
    opened : In(stream of tag, always ready)
        This tag begins anew. Not in a cycle with `scan`.
    """

    def __init__(self, tags: int, timeout_cycles: int, quarantine_timeouts: int):
        self._tags = tags
        self._timeout_cycles = timeout_cycles
        self._quarantine_timeouts = quarantine_timeouts
        super().__init__(
            {
                "timeout_cycles": In(range(timeout_cycles + 1), init=timeout_cycles),
                "tag": Out(range(tags)),
                "due": Out(1),
                "allowed": In(1),
                "scan": Out(1),
                "waiting": In(1),
                "open": In(1),
                "late": Out(1),
                "timed_out": Out(1),
                "expired": Out(1),
                "opened": In(stream.Signature(8, always_ready=True)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        shape = range(2 + self._quarantine_timeouts)
        m.submodules.age = ages = memory.Memory(shape=shape, depth=self._tags, init=[])
        write, read = ages.write_port(), ages.read_port(domain="comb")
        countdown = Signal(range(self._timeout_cycles // self._tags))
        period = self.timeout_cycles >> exact_log2(self._tags)
        m.d.sync += countdown.eq(Mux(countdown == 0, period - 1, countdown - 1))
        with m.If(countdown == 0):
            m.d.sync += self.due.eq(1)
        with m.If(self.scan):
            m.d.sync += [self.due.eq(0), self.tag.eq(self.tag + 1)]

        age = read.data
        m.d.comb += [
            self.scan.eq(self.due & self.allowed),
            self.late.eq(self.scan & self.open & (age == 1)),
            self.timed_out.eq(self.late & self.waiting),
            self.expired.eq(self.scan & self.open & (age == 1 + self._quarantine_timeouts)),
            read.addr.eq(self.tag),
            write.addr.eq(Mux(self.scan, self.tag, self.opened.p)),
            write.data.eq(Mux(self.scan, age + 1, 0)),
            write.en.eq(self.scan | self.opened.valid),
        ]
        return m
