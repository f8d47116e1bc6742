# SPDX-License-Identifier: BSD-2-Clause
"""Packets of the block become packets of the seam: requests of the host (CQ), completions (RC)."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ...parts.slice import Slice
from ...seam import CompletionHeader, CompletionStatus, TargetHeader, TargetKind, beat
from .descriptors import CompleterRequest, CompletionError, RequesterCompletion, RequestType
from .straddle import STRADDLE_WIDTH, StraddleFlags, StraddleStrip
from .strip import HeaderStrip, receive_beat

__all__ = ["CompletionReceiver", "RequestReceiver"]

#: A tag that no request of ours has.
_NO_TAG = 0xFF
#: Error codes for what the engine finds itself.
_FOUND = (
    CompletionError.NONE,
    CompletionError.BAD_STATUS,
    CompletionError.INVALID_LENGTH,
    CompletionError.INVALID_ADDRESS,
)


class _Receiver(wiring.Component):
    """Latency: 1 cycle on top of that of `HeaderStrip`."""

    def __init__(self, header, descriptor, width: int, user: int, *, always_ready: bool):
        self._descriptor = descriptor
        self._width, self._user = width, user
        super().__init__(
            {
                "i": In(stream.Signature(receive_beat(width, user))),
                "o": Out(stream.Signature(beat(header, width), always_ready=always_ready)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.slice = slice_ = Slice(receive_beat(self._width, self._user))
        m.submodules.strip = strip = self._strip()
        wiring.connect(m, wiring.flipped(self.i), slice_.i)
        wiring.connect(m, slice_.o, strip.i)
        m.d.comb += [
            getattr(self.o.payload, name).eq(getattr(strip.o.payload, name))
            for name in ("data", "first", "last")
        ]
        m.d.comb += [self.o.valid.eq(strip.o.valid), strip.o.ready.eq(self.o.ready)]
        self._parse(m, data.View(self._descriptor, strip.header), strip)
        return m

    def _strip(self):
        size = Shape.cast(self._descriptor).width
        return HeaderStrip(self._width, size // 32, self._user)

    def _parse(self, m, descriptor, strip):
        raise NotImplementedError


class RequestReceiver(_Receiver):
    """Requests of the host.

    Parameters
    ----------
    width : int
        Bits of a beat.
    always_ready : bool
        Of `o`.

    Members
    -------
    i : In(stream of receive_beat)
        `user` is the byte enables of the first dword, then those of the last one.
    o : Out(stream of beats of TargetHeader)
    """

    def __init__(self, width: int, *, always_ready: bool):
        super().__init__(TargetHeader, CompleterRequest, width, 8, always_ready=always_ready)

    def _parse(self, m, descriptor, strip):
        target = self.o.payload.header
        m.d.comb += [
            getattr(target, name).eq(getattr(descriptor, name))
            for name in ("dwords", "bar", "tag", "requester_id", "traffic_class", "attributes")
        ]
        m.d.comb += [
            target.address.eq(Cat(C(0, 2), descriptor.address[2:])),
            Cat(target.first_be, target.last_be).eq(strip.user),
            target.locked.eq(descriptor.type == RequestType.LOCKED_READ),
        ]
        kind = descriptor.type.as_value()
        with m.If(kind >= RequestType.MESSAGE.value):
            m.d.comb += target.kind.eq(TargetKind.MESSAGE)
        with m.Elif(kind == RequestType.MEMORY_WRITE.value):
            m.d.comb += target.kind.eq(TargetKind.WRITE)
        with m.Elif(kind != RequestType.MEMORY_READ.value):
            m.d.comb += target.kind.eq(TargetKind.OTHER)


class CompletionReceiver(_Receiver):
    """Completions of our reads.

    The engine checks itself what the block has checked, status, length and address, so most error
    codes add nothing. A completion that belongs to no request gets a tag that none has. Where the
    block has ended a request, because it timed out or the function was reset, it makes a completion
    up: here that is TIMEOUT or Unsupported Request. So are reserved codes the latter, whatever the
    descriptor says: data of which the block reports an error must not count as good.

    Parameters
    ----------
    width : int
        Bits of a beat.

    Members
    -------
    i : In(stream of receive_beat)
        `user` is `StraddleFlags`, which count at 256 bits only.
    o : Out(stream of beats of CompletionHeader, always ready)
    """

    def __init__(self, width: int):
        user = Shape.cast(StraddleFlags).width
        super().__init__(CompletionHeader, RequesterCompletion, width, user, always_ready=True)

    def _strip(self):
        return StraddleStrip() if self._width == STRADDLE_WIDTH else super()._strip()

    def _parse(self, m, descriptor, strip):
        completion, error = self.o.payload.header, descriptor.error.as_value()
        m.d.comb += [
            getattr(completion, name).eq(getattr(descriptor, name))
            for name, _ in CompletionHeader.as_shape()
        ]
        with m.Switch(error):
            with m.Case(CompletionError.POISONED.value):
                m.d.comb += completion.poisoned.eq(1)
            with m.Case(CompletionError.MISMATCH.value, CompletionError.INVALID_TAG.value):
                m.d.comb += completion.tag.eq(_NO_TAG)
            with m.Case(CompletionError.TIMEOUT.value):
                m.d.comb += [
                    completion.status.eq(CompletionStatus.TIMEOUT),
                    completion.locked.eq(0),
                ]
            with m.Case(*(each.value for each in _FOUND)):
                pass
            with m.Default():
                m.d.comb += [completion.status.eq(CompletionStatus.UR), completion.locked.eq(0)]
