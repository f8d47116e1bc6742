# SPDX-License-Identifier: BSD-2-Clause
"""What joins a channel's run to the user stream of its pair."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["StreamRunSignature"]


class StreamRunSignature(wiring.Signature):
    """The run of a channel, as far as the stream depends on it, from the channel's side.

    Members
    -------
    start_ok : In(1)
        While low, a run that software starts waits, busy.
    running : Out(1)
        A run is under way: from its start until nothing of it is left.
    breaks : Out(1)
        A run that used the stream is ending otherwise than by Stop. High up to its last cycle.
    """

    def __init__(self):
        super().__init__({"start_ok": In(1, init=1), "running": Out(1), "breaks": Out(1)})
