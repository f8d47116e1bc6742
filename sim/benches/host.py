# SPDX-License-Identifier: BSD-2-Clause
"""The machine around the board: root complex, switch and a GPU-like peer.

Both are cocotbext.pcie's, but answer the board's reads as `completer` says.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial

import cocotb
from cocotb.triggers import Event, Lock, Timer
from cocotbext.axi import MemoryRegion
from cocotbext.pcie.core import Device, MemoryEndpoint, RootComplex, Switch
from cocotbext.pcie.core.bridge import RootPort, SwitchDownstreamPort
from cocotbext.pcie.core.tlp import MsgType, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId

from .completer import Completer, Fault, Split
from .messages import message_code
from .series7 import Series7Device

__all__ = ["Fault", "Gpu", "Host", "IntxLine", "Split"]

#: Time in which what was sent has arrived: completions of all tags, one after the other.
_LINK_DRAINS_NS = 20_000
#: The root complex's own ID, as completer.
_ROOT = PcieId(0, 0, 0)
#: An endpoint's read completion boundary in bytes (2.3.1.1).
_ENDPOINT_RCB = 128


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


class _PostingPort:
    """A downstream port that may keep posted writes for a while, until a request pushes them.

    No rule orders them with writes that leave the switch by another port. Here they keep their
    order, and nothing passes them (2.4.1).
    """

    def __init__(self, rng: random.Random):
        super().__init__()
        #: Range of the random time for which a write may be kept.
        self.posted_ns = (0, 0)
        self._rng = rng
        self._posted: list[Tlp] = []
        self._sending = Lock()

    async def route_downstream_tlp(self, tlp: Tlp, from_downstream: bool = False) -> None:
        if tlp.is_posted() and any(self.posted_ns):
            self._posted.append(tlp)
            cocotb.start_soon(self._push(self._rng.randint(*self.posted_ns)))
        else:
            await self._push()
            await super().route_downstream_tlp(tlp, from_downstream)

    async def _push(self, after_ns: int = 0) -> None:
        if after_ns:
            await Timer(after_ns, "ns")
        async with self._sending:
            while self._posted:
                await self.downstream_send(self._posted.pop(0))


class _SwitchPort(_PostingPort, _IntxPort, SwitchDownstreamPort):
    pass


class _GpuFunction(Completer, MemoryEndpoint):
    """The GPU's memory."""

    def __init__(self, rng: random.Random):
        super().__init__()
        self.set_up_completer(rng)

    async def handle_mem_read_tlp(self, tlp: Tlp) -> None:
        self.begin_answer(tlp)

    def _identity(self) -> PcieId:
        return self.pcie_id

    def _mapped(self, tlp: Tlp) -> bool:
        return self.match_bar(tlp.address) is not None

    async def _fetch(self, request: Tlp) -> bytes:
        region, start = self.match_bar(request.address)
        return bytes(await self.read_region(region, start, 4 * request.length))

    def _limits(self) -> tuple[int, int]:
        return 128 << self.pcie_cap.max_payload_size, _ENDPOINT_RCB


class Gpu(Device):
    """A peer whose memory is a large 64-bit prefetchable BAR, as a GPU's aperture is.

    Attributes
    ----------
    function : MemoryEndpoint, Completer
    memory : mutable bytes
        What the BAR shows.
    """

    SIZE = 256 * 1024 * 1024

    def __init__(self, rng: random.Random):
        super().__init__()
        self.function = self.append_function(_GpuFunction(rng))
        self.memory = self.function.add_prefetchable_mem_region(self.SIZE)


class Host(Completer, RootComplex):
    """Root complex with the board, and a GPU behind the same switch if asked for.

    Parameters
    ----------
    rng : random.Random
        Source of every random choice.
    board : Series7Device
    gpu : Gpu or None

    Attributes
    ----------
    intx : IntxLine
        The board's INTA wire, at the port that its link ends in.
    requests : list of Tlp
        Memory requests that reached the root complex.
    stray_writes : list of Tlp
        Those among them that wrote where nothing is mapped.
    gpu_port
        The switch's port to the GPU, if there is one. Its `posted_ns`, (0, 0) at first, is the
        range of the random time for which it keeps a posted write, unless a read pushes it.
    """

    def __init__(self, rng: random.Random, board: Series7Device, gpu: Gpu | None = None):
        super().__init__()
        # The library's pool claims all of the low 2 GiB; here only `map_memory` maps memory.
        self.mem_address_space.regions = [
            entry for entry in self.mem_address_space.regions if entry[3] is not self.mem_pool
        ]
        self.default_downstream_bridge = _IntxRootPort
        self.set_up_completer(rng)
        self.requests: list[Tlp] = []
        self.stray_writes: list[Tlp] = []
        self._completers: list[Completer] = [self]
        if gpu is not None:
            self._completers.append(gpu.function)

        async def plant(tlp: Tlp) -> None:
            # The library's bridges refuse what is malformed, so it goes to the block itself.
            board.checker.plant(tlp)
            await board.upstream_recv(tlp)

        for completer in self._completers:
            completer.plant = plant
        port = self.make_port()
        if gpu is not None:
            switch = Switch()
            switch.default_downstream_bridge = partial(_SwitchPort, rng)
            port.connect(switch)
            port = switch.make_port()
            self.gpu_port = switch.make_port()
            self.gpu_port.connect(gpu)
        port.connect(board)
        self.intx = port.intx

    def map_memory(self, address: int, memory: bytearray) -> None:
        """Show `memory` at bus address `address`."""
        self.mem_address_space.register_region(MemoryRegion(len(memory), memory), address)

    async def lose_link(self) -> None:
        """The board's link went down: no read of before is answered, INTA is deasserted.

        Comes back when nothing of before is on its way any more, in either direction.
        """
        for completer in self._completers:
            completer.drop_answers()
        self.intx.level = False
        self.intx.changed.set()
        await Timer(_LINK_DRAINS_NS, "ns")
        while any(completer.answering for completer in self._completers):
            await Timer(_LINK_DRAINS_NS, "ns")
        for completer in self._completers:
            completer.answer_again()

    async def handle_mem_read_tlp(self, tlp: Tlp) -> None:
        """Answer a memory read, at its own time."""
        self.requests.append(tlp)
        self.begin_answer(tlp)

    async def handle_mem_write_tlp(self, tlp: Tlp) -> None:
        """Do a memory write."""
        self.requests.append(tlp)
        if not self._mapped(tlp):
            self.stray_writes.append(tlp)
        else:
            await super().handle_mem_write_tlp(tlp)

    def _identity(self) -> PcieId:
        return _ROOT

    def _mapped(self, tlp: Tlp) -> bool:
        return bool(self.mem_address_space.find_regions(tlp.address, 4 * tlp.length))

    async def _fetch(self, request: Tlp) -> bytes:
        return await self.mem_address_space.read(request.address, 4 * request.length)

    def _limits(self) -> tuple[int, int]:
        return 128 << self.max_payload_size, 128 if self.read_completion_boundary else 64
