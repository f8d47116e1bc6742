# SPDX-License-Identifier: BSD-2-Clause
"""What joins a channel's run to the user stream of its pair."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ..records import PlacementAddress

__all__ = [
    "PacketSignature",
    "ReservationSignature",
    "StreamChannelSignature",
    "StreamRunSignature",
]


class StreamRunSignature(wiring.Signature):
    """The run of a channel, as far as the stream depends on it, from the channel's side.

    Members
    -------
    start_ok : In(1)
        While low, a run that software starts waits, busy.
    running : Out(1)
        A run is under way: from its start until nothing of it is left.
    breaks : Out(1)
        A run that used the stream, or may have, is ending otherwise than by Stop. High up to its
        last cycle, and after an error until software has cleared Run. High as well from when a run
        that waited was given up until `start_ok`.
    """

    def __init__(self):
        super().__init__({"start_ok": In(1, init=1), "running": Out(1), "breaks": Out(1)})


class ReservationSignature(wiring.Signature):
    """Space of a ring for the next read, or bytes of a ring for the next write.

    From the side of the channel, which reserves them before it offers the piece.

    Members
    -------
    length : Out(10)
        Bytes of the piece.
    ready : In(1)
        They are there, at `place`; depends on `length` in the same cycle. It may fall only with
        `take`.
    place : In(PlacementAddress)
        Of the first byte.
    take : Out(1)
        Reserve them. Only while `ready`.
    """

    def __init__(self):
        super().__init__(
            {"length": Out(10), "ready": In(1), "place": In(PlacementAddress), "take": Out(1)}
        )


class PacketSignature(wiring.Signature):
    """The packet whose bytes are next in a ring, from the side of the channel that takes them.

    Members
    -------
    ends : In(1), rest : In(10)
        It ends `rest` bytes further, which is not more than the reservation's `length`, and is
        known when these bytes are there. It stays so until bytes are reserved.
    drop : Out(1)
        Drop what is there of it. Only while all that was reserved is released.
    dropped : In(1)
        Bytes are dropped in this cycle.
    """

    def __init__(self):
        super().__init__({"ends": In(1), "rest": In(10), "drop": Out(1), "dropped": In(1)})


class StreamChannelSignature(wiring.Signature):
    """All that joins a channel to its pair, from the channel's side.

    Parameters
    ----------
    packets : bool
        The channel may take the bytes of a packet and no more.

    Members
    -------
    run : Out(StreamRunSignature)
    reservation : Out(ReservationSignature)
    failed : Out(1)
        High for one cycle: a piece has failed. No later than the first in-order mark of the next.
    drained : Out(1)
        No piece of the channel is under way, and none is waiting.
    packet : Out(PacketSignature)
        Only with `packets`.
    """

    def __init__(self, packets: bool = False):
        super().__init__(
            {
                "run": Out(StreamRunSignature()),
                "reservation": Out(ReservationSignature()),
                "failed": Out(1),
                "drained": Out(1),
                **({"packet": Out(PacketSignature())} if packets else {}),
            }
        )
