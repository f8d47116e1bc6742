# SPDX-License-Identifier: BSD-2-Clause
"""Records that the parts of the read engine pass to each other."""

from amaranth.lib import data

from ..records import PLACE_BITS, Outcome

__all__ = ["Ended", "Owner", "Progress"]


class Owner(data.Struct):
    """Who uses a tag."""

    #: number of the client
    client: 4
    tag: 8


class Ended(data.Struct):
    """The job of a tag has ended; no data of it will be placed any more."""

    tag: 8
    outcome: Outcome


class Progress(data.Struct):
    """What a request expects next."""

    #: number of the client
    client: 4
    #: placement address, as a number, of lane 0 of the next completion: up to three bytes before
    #: the next byte. It may wrap around; the bytes before the next one are never written
    start: PLACE_BITS
    #: bytes from there to the end of the read
    end: 10
    #: low bits of the PCIe address of the next byte
    lower_address: 7
