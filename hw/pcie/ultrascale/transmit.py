# SPDX-License-Identifier: BSD-2-Clause
"""Packets of the seam become packets of the block: our requests (RQ), and our completions (CC)."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...parts.slice import Slice
from ...seam import CompletionHeader, RequestHeader, beat
from .descriptors import CompleterCompletion, RequesterRequest, RequestType
from .insert import HeaderInsert, transmit_beat
from .ports import CC_USER

__all__ = ["CompletionTransmitter", "RequestTransmitter", "is_read"]

#: Lowest bits of the sequence number in `tuser` of requests, and of its upper part.
_SEQUENCE, _SEQUENCE_HIGH, _SEQUENCE_LOW_BITS = 24, 60, 4


def is_read(user: Value, bits: int) -> Value:
    """Whether a request with this `tuser` is a read, by its sequence number of so many bits."""
    number = Cat(user[_SEQUENCE : _SEQUENCE + _SEQUENCE_LOW_BITS], user[_SEQUENCE_HIGH:])
    return ~number[bits - 1]


class _Transmitter(wiring.Component):
    """Latency: 1 cycle, for a beat that is all descriptor; else that of `HeaderInsert` on top."""

    def __init__(self, header, descriptor, width: int, user: int, members: dict):
        self._descriptor = descriptor
        self._width, self._user = width, user
        super().__init__(
            {
                "i": In(stream.Signature(beat(header, width))),
                "o": Out(stream.Signature(transmit_beat(width, user))),
            }
            | members
        )

    def elaborate(self, platform):
        m = Module()
        size = Shape.cast(self._descriptor).width
        insert = HeaderInsert(self._width, size // 32, self._user)
        m.submodules.insert = insert
        m.submodules.slice = slice_ = Slice(transmit_beat(self._width, self._user))
        wiring.connect(m, insert.o, slice_.i)
        wiring.connect(m, slice_.o, wiring.flipped(self.o))
        m.d.comb += [
            getattr(insert.i.payload, name).eq(getattr(self.i.payload, name))
            for name in ("data", "first", "last")
        ]
        m.d.comb += [insert.i.valid.eq(self.i.valid), self.i.ready.eq(insert.i.ready)]
        self._describe(m, data.View(self._descriptor, insert.header), insert)
        return m

    def _describe(self, m, descriptor, insert):
        raise NotImplementedError


class RequestTransmitter(_Transmitter):
    """Our memory requests.

    The block adds the bus number to the requester ID, which is 0 here: of device 0, function 0.

    Parameters
    ----------
    width : int
        Bits of a beat.
    user : int
        Bits of `tuser`.

    Members
    -------
    i : In(stream of beats of RequestHeader)
    sequence : In(6)
        The sequence number, constant over a packet.
    o : Out(stream of transmit_beat)
    """

    def __init__(self, width: int, user: int):
        super().__init__(RequestHeader, RequesterRequest, width, user, {"sequence": In(6)})

    def _describe(self, m, descriptor, insert):
        request = self.i.payload.header
        m.d.comb += [
            descriptor.address.eq(request.address),
            descriptor.dwords.eq(request.dwords),
            descriptor.type.eq(
                Mux(request.write, RequestType.MEMORY_WRITE, RequestType.MEMORY_READ)
            ),
            descriptor.tag.eq(request.tag),
            descriptor.attributes.eq(Cat(C(0, 1), request.relaxed)),
            insert.payload.eq(Mux(request.write, request.dwords, 0)),
            insert.user[:8].eq(Cat(request.first_be, request.last_be)),
            insert.user[_SEQUENCE : _SEQUENCE + _SEQUENCE_LOW_BITS].eq(self.sequence),
            insert.user[_SEQUENCE_HIGH:].eq(self.sequence[_SEQUENCE_LOW_BITS:]),
        ]


class CompletionTransmitter(_Transmitter):
    """Our completions of the host's requests.

    Parameters
    ----------
    width : int
        Bits of a beat.

    Members
    -------
    i : In(stream of beats of CompletionHeader)
    o : Out(stream of transmit_beat)
    """

    def __init__(self, width: int):
        super().__init__(CompletionHeader, CompleterCompletion, width, CC_USER, {})

    def _describe(self, m, descriptor, insert):
        completion = self.i.payload.header
        m.d.comb += [
            getattr(descriptor, name).eq(getattr(completion, name))
            for name, _ in CompletionHeader.as_shape()
        ]
        m.d.comb += insert.payload.eq(completion.dwords)
