# SPDX-License-Identifier: BSD-2-Clause
"""Headers of TLPs, in the two or three dwords that differ, of the seam's."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from ...seam import CompletionHeader, RequestHeader
from ..tlp import CompletionDword1, CompletionDword2, Dword0, RequestDword1, TlpType

__all__ = ["Headers"]


class Headers(wiring.Component):
    """Makes the dwords of a request's header and of a completion's, in the same cycle.

    Members
    -------
    request : In(RequestHeader), completion : In(CompletionHeader)
    requester_id : In(16)
        Our bus, device and function number.
    request0, request1, completion0, completion1, completion2 : Out
        The dwords; those of a request's address are not among them.
    """

    request: In(RequestHeader)
    completion: In(CompletionHeader)
    requester_id: In(16)
    request0: Out(Dword0)
    request1: Out(RequestDword1)
    completion0: Out(Dword0)
    completion1: Out(CompletionDword1)
    completion2: Out(CompletionDword2)

    def elaborate(self, platform):
        m = Module()
        request, completion = self.request, self.completion
        m.d.comb += [
            self.completion0.type.eq(
                Mux(completion.locked, TlpType.COMPLETION_LOCKED, TlpType.COMPLETION)
            ),
            self.completion0.with_data.eq(completion.dwords != 0),
            self.completion0.length.eq(completion.dwords),
            self.completion0.traffic_class.eq(completion.traffic_class),
            Cat(self.completion0.attributes, self.completion0.id_ordering).eq(
                completion.attributes
            ),
            self.completion0.poisoned.eq(completion.poisoned),
            self.completion1.byte_count.eq(completion.byte_count),
            self.completion1.status.eq(completion.status),
            self.completion1.completer_id.eq(self.requester_id),
            self.completion2.lower_address.eq(completion.lower_address),
            self.completion2.tag.eq(completion.tag),
            self.completion2.requester_id.eq(completion.requester_id),
            self.request0.type.eq(TlpType.MEMORY),
            self.request0.four_dwords.eq(request.address[32:] != 0),
            self.request0.with_data.eq(request.write),
            self.request0.length.eq(request.dwords),
            self.request0.attributes.eq(Cat(C(0, 1), request.relaxed)),
            self.request1.first_be.eq(request.first_be),
            self.request1.last_be.eq(request.last_be),
            self.request1.tag.eq(request.tag),
            self.request1.requester_id.eq(self.requester_id),
        ]
        return m
