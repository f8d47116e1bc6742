# SPDX-License-Identifier: BSD-2-Clause
"""The error captures: how each channel's last run failed, and which one failed first."""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In

from ..records import ErrorReport, Outcome, ReadError
from ..registers.extension import CaptureIndex, CaptureSignature

__all__ = ["ErrorCapture"]


class _Kept(data.Struct):
    outcome: Outcome
    descriptor: 1
    #: where its address is: in the channel's report, or in that of the read engine
    reported: 1
    read: 1


class ErrorCapture(wiring.Component):
    """Keeps the error that ended the last run of each channel, until the next one begins.

    What is kept is what a channel reports, the error that its status shows. So errors behind it,
    and those that a run met that was stopped, are not seen. Of an error that is not `located` in
    the report, the read engine gives the address, at an earlier time: the channel's first read of
    data that failed is the one that ends its run.

    Beside that, it knows which channel has failed first since the last `clear`.

    Parameters
    ----------
    h2c, c2h : int
        Channels in each direction.
    first : int
        Number, as a client of the read engine, of the data of H2C channel 0; the next ones follow.
    shared : bool
        Another owner has runs on the channels, too. Its errors are not captured.

    Members
    -------
    read : In(stream of ReadError, always ready)
    channels : array of In(stream of ErrorReport, always ready)
        H2C channels, then C2H channels.
    begins : In(h2c + c2h)
        The channel's run begins, or it is reset: what is kept is forgotten.
    owned : In(h2c + c2h)
        The channels that the other owner has. Only if `shared`.
    reader : In(CaptureSignature)
    """

    def __init__(self, *, h2c: int, c2h: int, first: int, shared: bool = False):
        self._h2c, self._first = h2c, first
        self._shared = shared
        always = {"always_ready": True}
        super().__init__(
            {
                "read": In(stream.Signature(ReadError, **always)),
                "channels": In(stream.Signature(ErrorReport, **always)).array(h2c + c2h),
                "begins": In(h2c + c2h),
                **({"owned": In(h2c + c2h)} if shared else {}),
                "reader": In(CaptureSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        reader, failed, h2c = self.reader, self.read.payload, self._h2c
        first, held = Signal(CaptureIndex), Signal()
        index = Signal(CaptureIndex)
        m.d.comb += index.eq(Mux(reader.of_channel, reader.index, first))

        # Where the first read of data failed
        m.submodules.addresses = addresses = memory.Memory(shape=64, depth=h2c, init=[])
        write, read = addresses.write_port(), addresses.read_port(domain="comb")
        noted = Signal(h2c)
        m.d.comb += [
            write.addr.eq(failed.client - self._first),
            write.data.eq(failed.address),
            read.addr.eq(index.channel),
        ]
        for number in range(h2c):
            with m.If(self.read.valid & (failed.client == self._first + number)):
                of_host = ~self.owned[number] if self._shared else 1
                m.d.comb += write.en.eq(~noted[number] & of_host)
                m.d.sync += noted[number].eq(noted[number] | of_host)

        # Merged by OR, as at most one is not 0: smaller than a chain of multiplexers.
        any_failed, shown, address = 0, 0, 0
        for number, channel in reversed(list(enumerate(self.channels))):
            c2h = number >= h2c
            own = {"c2h": c2h, "channel": number - h2c if c2h else number}
            report, chosen = channel.payload, Signal(name=f"chosen{number}")
            kept = Signal(_Kept, name=f"kept{number}")
            m.d.comb += chosen.eq((index == CaptureIndex.const(own)) & (reader.of_channel | held))
            with m.If(channel.valid):
                m.d.sync += [
                    kept.outcome.eq(report.outcome),
                    kept.descriptor.eq(report.descriptor),
                    kept.reported.eq(report.located),
                    kept.read.eq(~report.located & (not c2h)),
                ]
            with m.If(channel.valid & ~held):
                m.d.sync += [first.eq(CaptureIndex.const(own)), held.eq(1)]
            with m.If(self.begins[number]):
                m.d.sync += kept.eq(0)
                if not c2h:
                    m.d.sync += noted[number].eq(0)
            shown = shown | Mux(chosen, kept.as_value(), 0)
            address = address | Mux(chosen & kept.reported, report.address, 0)
            any_failed = any_failed | channel.valid
        with m.If(reader.clear):
            m.d.sync += held.eq(0)

        error, seen = reader.error, Signal(_Kept)
        m.d.comb += [
            seen.as_value().eq(shown),
            error.outcome.eq(seen.outcome),
            error.descriptor.eq(seen.descriptor),
            error.place.eq(Mux(seen.outcome == Outcome.OK, 0, index)),
            error.address.eq(address | Mux(seen.read, read.data, 0)),
            reader.failed.eq(any_failed),
        ]
        return m
