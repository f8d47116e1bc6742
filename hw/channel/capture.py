# SPDX-License-Identifier: BSD-2-Clause
"""Which errors the error capture registers see."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..read.engine import ReadError
from ..records import ErrorReport, Outcome
from ..registers.extension import CapturedError

__all__ = ["ErrorCapture"]


class ErrorCapture(wiring.Component):
    """Merges failed reads with the errors that channels find by themselves, and names the channel.

    The read engine tells of an error as it happens, with its address. The channel's report of the
    same error is left out; of two errors in one cycle the first in the order of the ports is seen.

    Parameters
    ----------
    h2c, c2h : int
        Channels in each direction.
    shared : bool
        Another owner has runs on the channels, too. Its errors are not captured.

    Members
    -------
    read : In(stream of ReadError, always ready)
        Clients are numbered as in `hw.core`: the descriptor fetches of all channels, then the data
        of H2C channels.
    channels : array of In(stream of ErrorReport, always ready)
        H2C channels, then C2H channels.
    owned : In(h2c + c2h)
        The channels that the other owner has. Only if `shared`.
    error : Out(stream of CapturedError, always ready)
    """

    def __init__(self, *, h2c: int, c2h: int, shared: bool = False):
        self._h2c = h2c
        self._shared = shared
        always = {"always_ready": True}
        super().__init__(
            {
                "read": In(stream.Signature(ReadError, **always)),
                "channels": In(stream.Signature(ErrorReport, **always)).array(h2c + c2h),
                **({"owned": In(h2c + c2h)} if shared else {}),
                "error": Out(stream.Signature(CapturedError, **always)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        read, failed = Signal(CapturedError), self.read.payload
        m.d.comb += [read.outcome.eq(failed.outcome), read.address.eq(failed.address)]
        count, of_host = len(self.channels), self.read.valid
        if self._shared:
            of_host = Signal()
            clients = Cat(self.owned, self.owned[: self._h2c])
            m.d.comb += of_host.eq(self.read.valid & ~clients.bit_select(failed.client, 1))
        sources = [(of_host, read, 1)]
        with m.Switch(failed.client):
            for client in range(count + self._h2c):
                with m.Case(client):
                    m.d.comb += [
                        read.descriptor.eq(client < count),
                        *self._name(read, client % count),
                    ]
        for number, channel in enumerate(self.channels):
            own, report = Signal(CapturedError), channel.payload
            m.d.comb += [
                own.outcome.eq(report.outcome),
                own.address.eq(report.address),
                own.descriptor.eq(report.descriptor),
                *self._name(own, number),
            ]
            unreported = (report.outcome == Outcome.MAGIC) | (report.outcome == Outcome.DECODE)
            if number >= self._h2c:
                unreported = unreported | ~report.descriptor
            sources.append((channel.valid & unreported, own, report.located))
        # Merged by OR, as at most one is not 0: smaller than a chain of multiplexers.
        merged, earlier = 0, Const(0, 1)
        for valid, error, located in sources:
            chosen, first = Signal(CapturedError), valid & ~earlier
            with m.If(first):
                m.d.comb += chosen.eq(error)
            with m.If(~(first & located)):
                m.d.comb += chosen.address.eq(0)
            merged = merged | chosen.as_value()
            earlier = earlier | valid
        m.d.comb += [self.error.valid.eq(earlier), self.error.payload.as_value().eq(merged)]
        return m

    def _name(self, error, number):
        """Assign direction and index of channel `number`."""
        c2h = number >= self._h2c
        return [error.c2h.eq(c2h), error.channel.eq(number - self._h2c if c2h else number)]
