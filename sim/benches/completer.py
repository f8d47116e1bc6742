# SPDX-License-Identifier: BSD-2-Clause
"""Answers to the board's reads, with the freedom that the base specification gives a completer.

Completions may be late, split at any read completion boundary, and in any order across requests;
and there are faults on command.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Awaitable, Callable, Iterator

import cocotb
from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import CplStatus, Tlp
from cocotbext.pcie.core.utils import PcieId

__all__ = ["Completer", "Fault", "Split"]


class Split(enum.Enum):
    """Where a completer splits the completions of one read."""

    LARGEST = enum.auto()
    EVERY_RCB = enum.auto()
    RANDOM = enum.auto()


class Fault(enum.Enum):
    """What a completer does to a read of a faulty range instead of answering it."""

    UNSUPPORTED_REQUEST = enum.auto()
    COMPLETER_ABORT = enum.auto()
    #: Configuration Request Retry, which means Unsupported Request here (2.3.2)
    RETRY = enum.auto()
    #: what comes as data is marked bad, and is
    POISONED = enum.auto()
    #: no completion, until `Completer.release_withheld`
    WITHHELD = enum.auto()
    #: a completion that does not fit the request, and then the right ones
    WRONG_COUNT = enum.auto()
    WRONG_ADDRESS = enum.auto()
    TOO_LONG = enum.auto()


_STATUS = {
    Fault.UNSUPPORTED_REQUEST: CplStatus.UR,
    Fault.COMPLETER_ABORT: CplStatus.CA,
    Fault.RETRY: CplStatus.CRS,
}
_MISFITS = {Fault.WRONG_COUNT, Fault.WRONG_ADDRESS, Fault.TOO_LONG}


class Completer:
    """What the root complex and a GPU have in common.

    Whoever mixes it in has `send` of `cocotbext.pcie`, and the methods `_identity`, `_mapped`,
    `_fetch` and `_limits`.

    Attributes
    ----------
    split : Split
    latency_ns, gap_ns : (int, int)
        Ranges of the random delay before a read's first completion and between its completions.
    plant : async callable
        Sends a completion that is wrong on purpose.
    """

    def set_up_completer(self, rng: random.Random) -> None:
        """Answer at once, in order, with few completions; `rng` makes all random choices."""
        self.split = Split.LARGEST
        self.latency_ns = self.gap_ns = (0, 0)
        self.plant: Callable[[Tlp], Awaitable[None]] = self.send
        self._rng = rng
        self._faults: list[tuple[range, Fault]] = []
        self._withheld: list[Tlp] = []
        #: reads are not answered: those under way, and those that still arrive
        self._link_down = False
        self._answering = 0

    # For whoever mixes this in --------------------------------------------------------------

    def _identity(self) -> PcieId:
        """The completer ID."""
        raise NotImplementedError

    def _mapped(self, tlp: Tlp) -> bool:
        """Whether there is memory at the address of a request."""
        raise NotImplementedError

    async def _fetch(self, request: Tlp) -> bytes:
        """The dwords that a read asks for."""
        raise NotImplementedError

    def _limits(self) -> tuple[int, int]:
        """Max_Payload_Size and the read completion boundary, in bytes."""
        raise NotImplementedError

    def set_manner(
        self, split: Split, latency_ns: tuple[int, int], gap_ns: tuple[int, int]
    ) -> None:
        """How reads are answered from now on."""
        self.split, self.latency_ns, self.gap_ns = split, latency_ns, gap_ns

    # Faults ---------------------------------------------------------------------------------

    def inject(self, addresses: range, fault: Fault) -> None:
        """Answer reads that touch `addresses` with `fault` until `clear_faults`."""
        self._faults.append((addresses, fault))

    def clear_faults(self) -> None:
        """Answer all reads properly again; withheld completions stay withheld."""
        self._faults.clear()

    @property
    def withheld(self) -> list[int]:
        """Tags of the reads whose completions are withheld."""
        return [request.tag for request in self._withheld]

    async def release_withheld(self) -> None:
        """Send the completions that were withheld."""
        withheld, self._withheld = self._withheld, []
        for request in withheld:
            await self._answer(request, None)

    def drop_withheld(self) -> None:
        """Never send the completions that were withheld."""
        self._withheld.clear()

    async def stray(self, request: Tlp) -> None:
        """Complete a read that was never made."""
        completion = self._completion(request, 4 * request.length, request.address % 128)
        completion.set_data(self._rng.randbytes(4 * request.length))
        await self.plant(completion)

    # Link -----------------------------------------------------------------------------------

    def drop_answers(self) -> None:
        """The board's link is down: no read of before is answered."""
        self._link_down = True
        self._withheld.clear()

    @property
    def answering(self) -> bool:
        """Whether answers are still on their way."""
        return self._answering > 0

    def answer_again(self) -> None:
        """The board's link is up."""
        self._link_down = False

    # Answers --------------------------------------------------------------------------------

    def begin_answer(self, tlp: Tlp) -> None:
        """Answer a memory read, at its own time."""
        cocotb.start_soon(self._answer(tlp, self._fault(tlp)))

    def _fault(self, tlp: Tlp) -> Fault | None:
        for addresses, fault in self._faults:
            if tlp.address < addresses.stop and addresses.start < tlp.address + 4 * tlp.length:
                return fault
        return None if self._mapped(tlp) else Fault.UNSUPPORTED_REQUEST

    async def _answer(self, request: Tlp, fault: Fault | None) -> None:
        self._answering += 1
        try:
            await self._complete(request, fault)
        finally:
            self._answering -= 1

    async def _complete(self, request: Tlp, fault: Fault | None) -> None:
        await self._pause(self.latency_ns)
        if self._link_down:
            return
        if fault is Fault.WITHHELD:
            self._withheld.append(request)
            return
        if fault in _STATUS:
            await self.send(
                Tlp.create_completion_for_tlp(request, self._identity(), status=_STATUS[fault])
            )
            return
        if fault in _MISFITS:
            await self.plant(self._misfit(request, fault))
        data = await self._fetch(request)
        if fault is Fault.POISONED:
            data = self._rng.randbytes(len(data))
        for completion in self._completions(request, data):
            if self._link_down:
                return
            completion.ep = fault is Fault.POISONED
            await self.send(completion)
            await self._pause(self.gap_ns)

    async def _pause(self, span_ns: tuple[int, int]) -> None:
        delay = self._rng.randint(*span_ns)
        if delay:
            await Timer(delay, "ns")

    def _completion(self, request: Tlp, remaining: int, address: int) -> Tlp:
        completion = Tlp.create_completion_data_for_tlp(request, self._identity())
        completion.byte_count = remaining
        completion.lower_address = address & 0x7F
        return completion

    def _misfit(self, request: Tlp, fault: Fault) -> Tlp:
        """A completion of the read that is wrong in one respect; its data is garbage."""
        remaining = request.get_be_byte_count()
        address = request.address + request.get_first_be_offset()
        dwords = 1
        if fault is Fault.WRONG_COUNT:
            remaining += self._rng.choice([n for n in (-4, -1, 1, 4) if 0 < remaining + n < 4096])
        elif fault is Fault.WRONG_ADDRESS:
            address ^= 1 << self._rng.randrange(2, 7)
        else:
            dwords = request.length + 1
        completion = self._completion(request, remaining, address)
        completion.set_data(self._rng.randbytes(4 * dwords))
        return completion

    def _completions(self, request: Tlp, data: bytes) -> Iterator[Tlp]:
        """Completions of a good read, cut at read completion boundaries (2.3.1.1)."""
        payload, rcb = self._limits()
        end = request.address + 4 * request.length
        start = request.address
        address = start + request.get_first_be_offset()
        remaining = request.get_be_byte_count()
        while start < end:
            most = start + payload
            cuts = list(range(start // rcb * rcb + rcb, min(most, end - 1) + 1, rcb))
            if end <= most:
                cuts.append(end)
            if self.split is Split.RANDOM:
                stop = self._rng.choice(cuts)
            else:
                stop = cuts[-1] if self.split is Split.LARGEST else cuts[0]
            completion = self._completion(request, remaining, address)
            completion.set_data(data[start - request.address : stop - request.address])
            yield completion
            remaining -= stop - address
            start = address = stop
