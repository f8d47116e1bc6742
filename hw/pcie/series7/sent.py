# SPDX-License-Identifier: BSD-2-Clause
"""Which writes the block has sent, and which ones it has dropped."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ...seam import SentToken

__all__ = ["SentWrites"]


class SentWrites(wiring.Component):
    """Says of each write whether it was sent, once the block can drop it no more.

    Parameters
    ----------
    drop_lag : int
        Of the block, as `hw.seam.Block` has it.

    Members
    -------
    takes : In(1), eof : In(1), write : In(1), token : In(8)
        The block takes a beat of a TLP; it is the last one; of a memory write; whose token is this.
    drop, sent
        As at `hw.pcie.series7.transmit.Transmitter`.
    """

    takes: In(1)
    eof: In(1)
    write: In(1)
    token: In(8)
    drop: In(1)
    sent: Out(stream.Signature(SentToken, always_ready=True))

    def __init__(self, drop_lag: int):
        self._drop_lag = drop_lag
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        drop, inside, hit = Signal(name="drop"), Signal(name="inside"), Signal(name="hit")
        ends = self.takes & self.eof
        m.d.sync += drop.eq(self.drop)
        with m.If(self.takes):
            m.d.sync += inside.eq(~self.eof)
        with m.If(ends):
            m.d.sync += hit.eq(0)
        with m.Elif(drop & inside):
            m.d.sync += hit.eq(1)
        valid, token, dropped = ends & self.write, self.token, hit
        for number in range(self._drop_lag + 2):
            before = (valid, token, dropped | drop)
            valid, token, dropped = (
                Signal(name=f"valid{number}"),
                Signal(8, name=f"token{number}"),
                Signal(name=f"dropped{number}"),
            )
            m.d.sync += [valid.eq(before[0]), token.eq(before[1]), dropped.eq(before[2])]
        m.d.comb += [
            self.sent.valid.eq(valid),
            self.sent.payload.token.eq(token),
            self.sent.payload.dropped.eq(dropped),
        ]
        return m
