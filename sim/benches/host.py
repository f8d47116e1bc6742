# SPDX-License-Identifier: BSD-2-Clause
"""The machine around the board: root complex, switch and a GPU-like peer.

`Host` is cocotbext.pcie's root complex with the freedom that the base specification gives a
completer: completions late, split at any read completion boundary, and in any order across
requests; and with faults on command.
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass

import cocotb
from cocotb.triggers import Event, Timer
from cocotbext.axi import MemoryRegion
from cocotbext.pcie.core import Device, MemoryEndpoint, RootComplex, Switch
from cocotbext.pcie.core.bridge import RootPort, SwitchDownstreamPort
from cocotbext.pcie.core.tlp import MsgType, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId

from .messages import message_code

__all__ = ["Fault", "Gpu", "Host", "IntxLine", "Split"]

#: Time in which what was sent has arrived: completions of all tags, one after the other.
_LINK_DRAINS_NS = 20_000
#: The root complex's own ID, as completer.
_ROOT = PcieId(0, 0, 0)


class Split(enum.Enum):
    """Where the root complex splits the completions of one read."""

    LARGEST = enum.auto()
    EVERY_RCB = enum.auto()
    RANDOM = enum.auto()


class Fault(enum.Enum):
    """What the root complex does to a read of a faulty range instead of answering it."""

    UNSUPPORTED_REQUEST = enum.auto()
    COMPLETER_ABORT = enum.auto()
    #: the data comes, marked bad
    POISONED = enum.auto()
    #: no completion, until `Host.release_withheld`
    WITHHELD = enum.auto()


@dataclass
class IntxLine:
    """The virtual INTA wire of one port, as Assert and Deassert messages left it."""

    level: bool = False
    #: Assert_INTA messages seen
    asserts: int = 0

    def __post_init__(self):
        self.changed = Event()

    def message(self, tlp: Tlp) -> None:
        """Take one interrupt message."""
        self.level = message_code(tlp) == MsgType.ASSERT_INTA
        self.asserts += self.level
        self.changed.set()


class _IntxPort:
    """A downstream port that terminates interrupt messages, which the library does not route."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.intx = IntxLine()

    async def downstream_recv(self, tlp: Tlp) -> None:
        if tlp.fmt_type == TlpType.MSG_LOCAL:
            tlp.release_fc()
            self.intx.message(tlp)
        else:
            await super().downstream_recv(tlp)


class _IntxRootPort(_IntxPort, RootPort):
    pass


class _IntxSwitchPort(_IntxPort, SwitchDownstreamPort):
    pass


class Gpu(Device):
    """A peer whose memory is a large 64-bit prefetchable BAR, as a GPU's aperture is.

    Attributes
    ----------
    function : MemoryEndpoint
    memory : mutable bytes
        What the BAR shows.
    """

    SIZE = 256 * 1024 * 1024

    def __init__(self):
        super().__init__()
        self.function = self.append_function(MemoryEndpoint())
        self.memory = self.function.add_prefetchable_mem_region(self.SIZE)


class Host(RootComplex):
    """Root complex with the board, and a GPU behind the same switch if asked for.

    Parameters
    ----------
    rng : random.Random
        Source of every random choice.
    board : Device
    gpu : Gpu or None

    Attributes
    ----------
    split : Split
    latency_ns, gap_ns : (int, int)
        Ranges of the random delay before a read's first completion and between its completions.
    intx : IntxLine
        The board's INTA wire, at the port that its link ends in.
    requests : list of Tlp
        Memory requests that reached the root complex.
    stray_writes : list of Tlp
        Those among them that wrote where nothing is mapped.
    """

    def __init__(self, rng: random.Random, board: Device, gpu: Gpu | None = None):
        super().__init__()
        # The library's pool claims all of the low 2 GiB; here only `map_memory` maps memory.
        self.mem_address_space.regions = [
            entry for entry in self.mem_address_space.regions if entry[3] is not self.mem_pool
        ]
        self.default_downstream_bridge = _IntxRootPort
        self.split = Split.LARGEST
        self.latency_ns = self.gap_ns = (0, 0)
        self.requests: list[Tlp] = []
        self.stray_writes: list[Tlp] = []
        self._rng = rng
        self._faults: list[tuple[range, Fault]] = []
        self._withheld: list[Tlp] = []
        #: reads are not answered: those under way, and those that still arrive
        self._link_down = False
        self._answering = 0
        port = self.make_port()
        if gpu is not None:
            switch = Switch()
            switch.default_downstream_bridge = _IntxSwitchPort
            port.connect(switch)
            port = switch.make_port()
            switch.make_port().connect(gpu)
        port.connect(board)
        self.intx = port.intx

    def map_memory(self, address: int, memory: bytearray) -> None:
        """Show `memory` at bus address `address`."""
        self.mem_address_space.register_region(MemoryRegion(len(memory), memory), address)

    def inject(self, addresses: range, fault: Fault) -> None:
        """Answer reads that touch `addresses` with `fault` until `clear_faults`."""
        self._faults.append((addresses, fault))

    def clear_faults(self) -> None:
        """Answer all reads properly again; withheld completions stay withheld."""
        self._faults.clear()

    async def lose_link(self) -> None:
        """The board's link went down: no read of before is answered, INTA is deasserted.

        Comes back when nothing of before is on its way any more, in either direction.
        """
        self._link_down = True
        self._withheld.clear()
        self.intx.level = False
        self.intx.changed.set()
        await Timer(_LINK_DRAINS_NS, "ns")
        while self._answering:
            await Timer(_LINK_DRAINS_NS, "ns")
        self._link_down = False

    async def release_withheld(self) -> None:
        """Send the completions that were withheld."""
        withheld, self._withheld = self._withheld, []
        for request in withheld:
            await self._answer(request, None)

    async def handle_mem_read_tlp(self, tlp: Tlp) -> None:
        """Answer a memory read, at its own time."""
        self.requests.append(tlp)
        cocotb.start_soon(self._answer(tlp, self._fault(tlp)))

    async def handle_mem_write_tlp(self, tlp: Tlp) -> None:
        """Do a memory write."""
        self.requests.append(tlp)
        if not self._mapped(tlp):
            self.stray_writes.append(tlp)
        else:
            await super().handle_mem_write_tlp(tlp)

    def _mapped(self, tlp: Tlp) -> bool:
        return bool(self.mem_address_space.find_regions(tlp.address, 4 * tlp.length))

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
            pass
        elif fault is Fault.WITHHELD:
            self._withheld.append(request)
        elif fault is Fault.UNSUPPORTED_REQUEST:
            await self.send(Tlp.create_ur_completion_for_tlp(request, _ROOT))
        elif fault is Fault.COMPLETER_ABORT:
            await self.send(Tlp.create_ca_completion_for_tlp(request, _ROOT))
        else:
            data = await self.mem_address_space.read(request.address, 4 * request.length)
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

    def _completions(self, request: Tlp, data: bytes):
        """Completions of a good read, cut at read completion boundaries (2.3.1.1)."""
        rcb = 128 if self.read_completion_boundary else 64
        end = request.address + 4 * request.length
        start = request.address
        address = start + request.get_first_be_offset()
        remaining = request.get_be_byte_count()
        while start < end:
            most = start + (128 << self.max_payload_size)
            cuts = list(range(start // rcb * rcb + rcb, min(most, end - 1) + 1, rcb))
            if end <= most:
                cuts.append(end)
            if self.split is Split.RANDOM:
                stop = self._rng.choice(cuts)
            else:
                stop = cuts[-1] if self.split is Split.LARGEST else cuts[0]
            completion = Tlp.create_completion_data_for_tlp(request, _ROOT)
            completion.byte_count = remaining
            completion.lower_address = address & 0x7F
            completion.set_data(data[start - request.address : stop - request.address])
            yield completion
            remaining -= stop - address
            start = address = stop
