# SPDX-License-Identifier: BSD-2-Clause
"""The backend for a board behind the kernel driver, which turns calls into ioctls."""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Sequence

from ..board.backend import (
    BoardInfo,
    Extension,
    Launching,
    LaunchPlan,
    Piece,
    Pinned,
    Transfers,
)
from ..board.clock import Bracket
from ..board.link import Link
from ..board.queue_memory import QueueMemory
from ..board.transfer import Through
from ..errors import BoardLost, CudaError, PeerdmaError, UnsupportedError, VersionMismatch
from ..memory.dmabuf import DmaBuf
from ..memory.mailbox import MailboxPage
from ..memory.memory import DataPath, DmaBufMemory, Memory
from ..regs import EXTENSION_VERSION, Capability, user_block_text, waits_for_text
from ..uapi import (
    Access,
    Clock,
    Context,
    ExportDmabuf,
    Feature,
    Info,
    Interrupts,
    Ioctl,
    MapFlag,
    MapInfo,
    Op,
    PinCuda,
    PinDmabuf,
    PinPages,
    Placement,
    Query,
    RegisterFlag,
    Submit,
    UnpinCuda,
    UserRegister,
)
from .frames import RingRun
from .jobs import Jobs, Requests, divided
from .launch import LaunchRun
from .node import KernelNode

__all__ = ["KernelBackend", "open_node"]

_log = logging.getLogger(__name__)
#: Read completion boundary to assume: the driver does not report it, and it hardly affects limits.
_BOUNDARY = 64
_PATHS = {
    Placement.HOST: DataPath.HOST_MEMORY,
    Placement.PEER: DataPath.PEER_TO_PEER,
    Placement.MIXED: DataPath.HOST_MEMORY,
    Placement.OTHER: DataPath.HOST_MEMORY,
}


class KernelBackend:
    """See `peerdma.board.backend.Backend`.

    Parameters
    ----------
    node : KernelNode
        The board's; closed with the backend.
    timeout : float or None
        See `Jobs`.
    channel, card_ram : int
        See `peerdma.open`.
    """

    def __init__(
        self, node: KernelNode, *, timeout: float | None = None, channel: int = 0, card_ram: int = 0
    ):
        self._node = node
        self._channel = channel
        own_card_ram = (0, 0)
        if channel or card_ram:
            own_card_ram = _set_context(node, channel, card_ram)
        info = node.info()
        self._features = Feature(info.features)
        self._jobs = Jobs(node, info.time_scale, timeout)
        self.transfers: Transfers = self._jobs
        self.info: BoardInfo = _describe(node.path, info, own_card_ram)
        streams = Feature.STREAM_COPY in self._features
        self._copies_through = Through.STREAM if streams else Through.CARD_RAM
        link = self.info.extension.link if self.info.extension else None
        # What the link can carry, if the board says what it is and answered.
        self._copy_limit = self._read_limit = self._write_limit = None
        if link and link.speed:
            self._copy_limit = link.copy_limit(wide=False)
            self._read_limit = link.read_limit(wide=False)
            self._write_limit = link.write_limit(wide=False)

    # Pins ------------------------------------------------------------------------------------

    def pin(self, memory: Memory, access: Access) -> Pinned:
        """Pins the memory: a GPU's as dma-buf where it can be, else by its CUDA address."""
        if not memory.nbytes:
            return Pinned(memory.path)
        why = ""
        if isinstance(memory, DmaBuf):
            handle = self._pin_dmabuf(memory, access)
        elif memory.on_gpu:
            handle, why = self._pin_gpu(memory, access)
        else:
            handle = self._pin_pages(memory, access)
        try:
            query = Query(handle=handle)
            self._node.request(Ioctl.QUERY, query, "query pinned memory")
        except BaseException:
            self._unpin(handle)
            raise
        path = _path(query)
        provider = f"{query.provider.decode()}{why and f', as this failed: {why}'}"
        _log.debug(
            "pinned %d bytes at %#x, reached by %s (%s)",
            *(memory.nbytes, memory.address, path, provider),
        )
        return Pinned(path, provider, handle)

    def unpin(self, handle: Pinned) -> None:
        """Undoes one `pin`; jobs that use it have ended when this returns."""
        if handle.number:
            with contextlib.suppress(BoardLost):
                self._unpin(handle.number)

    def _pin_pages(self, memory: Memory, access: Access) -> int:
        pin = PinPages(address=memory.address, length=memory.nbytes, access=access)
        action = f"pin {memory.nbytes} bytes of host memory at {memory.address:#x}"
        self._node.request(Ioctl.PIN_PAGES, pin, action)
        return pin.handle

    def _pin_gpu(self, memory: Memory, access: Access) -> tuple[int, str]:
        """The handle, and why it is not that of a dma-buf; empty if it is."""
        if Feature.DMABUF not in self._features or not isinstance(memory, DmaBufMemory):
            return self._pin_cuda(memory), "this driver or memory has no dma-bufs"
        try:
            return self._pin_dmabuf(memory, access), ""
        except (UnsupportedError, CudaError) as error:
            # Not every memory, driver and board supports dma-bufs, and CUDA exports no range
            # that ends beyond an allocation; nvidia_p2p may still pin it.
            if Feature.CUDA not in self._features:
                raise
            _log.info("pinning by address instead: %s", error)
            try:
                return self._pin_cuda(memory), str(error)
            except PeerdmaError as last:
                raise last from error

    def _pin_cuda(self, memory: Memory) -> int:
        pin = PinCuda(va=memory.address, size=memory.nbytes)
        action = f"pin {memory.nbytes} bytes of GPU memory at {memory.address:#x}"
        self._node.request(Ioctl.PIN_CUDA, pin, action)
        return pin.handle

    def _pin_dmabuf(self, memory: DmaBufMemory, access: Access) -> int:
        with memory.dmabuf() as exported:
            pin = PinDmabuf(
                fd=exported.fd,
                access=access,
                offset=exported.offset,
                length=exported.nbytes,
            )
            what = "a dma-buf" if isinstance(memory, DmaBuf) else "GPU memory as a dma-buf"
            action = f"pin {exported.nbytes} bytes of {what}"
            self._node.request(Ioctl.PIN_DMABUF, pin, action)
        return pin.handle

    def _unpin(self, handle: int) -> None:
        self._node.request(Ioctl.UNPIN_CUDA, UnpinCuda(handle), "unpin memory")

    # Transfers -------------------------------------------------------------------------------

    def prepare_copy(self, source: Sequence[Piece], destination: Sequence[Piece]) -> Requests:
        """Prepares a copy, as one job per run of bytes that is in one pin on both sides."""
        total = sum(piece.stop - piece.start for piece in source)
        jobs = list(divided(Op.COPY, source, destination))
        return Requests(jobs, total, self._copy_limit, self._copies_through, total)

    def prepare_process(self, source: Sequence[Piece], destination: Sequence[Piece]) -> Requests:
        """Prepares a transfer through the user block, as jobs like those of a copy."""
        extension = self._require_streams("transfers through the user block")
        jobs = list(divided(Op.PROCESS, source, destination, extension.user_ratio))
        total, received = (
            sum(piece.stop - piece.start for piece in side) for side in (source, destination)
        )
        return Requests(jobs, total, None, Through.STREAM, received)

    def fill(
        self, frames: Sequence[Sequence[Piece]], *, overwrite: bool, timeout: float | None
    ) -> RingRun:
        """Begins to fill frames from the user stream; not with `overwrite`."""
        extension = self._require_streams("frames")
        if overwrite:
            raise UnsupportedError(
                "cannot overwrite frames that are in use: the kernel driver never lets the board "
                "do that. Leave overwrite out"
            )
        records = Capability.FRAME_RECORDS in extension.capabilities
        return RingRun(self._node, self._jobs, frames, records=records, timeout=timeout)

    def _require_streams(self, what: str) -> Extension:
        if Feature.STREAMS not in self._features or self.info.extension is None:
            raise UnsupportedError(
                f"the kernel driver that is loaded makes no {what}. Install driver and library of "
                "the same release"
            )
        return self.info.extension

    def prepare_write(self, source: Piece, card_address: int) -> Requests:
        """Prepares a transfer from memory to the card."""
        length = source.stop - source.start
        job = Submit(
            op=Op.H2C,
            src_handle=source.handle.number,
            src_offset=source.start,
            dst_offset=card_address,
            length=length,
        )
        return Requests([job], length, self._read_limit, None, length)

    def prepare_read(self, destination: Piece, card_address: int) -> Requests:
        """Prepares a transfer from the card to memory."""
        length = destination.stop - destination.start
        job = Submit(
            op=Op.C2H,
            src_offset=card_address,
            dst_handle=destination.handle.number,
            dst_offset=destination.start,
            length=length,
        )
        return Requests([job], length, self._write_limit, None, length)

    # LEDs, mailbox, closing -------------------------------------------------------------------

    def leds(self, value: int | None) -> int:
        """Sets the LEDs; the driver cannot read their state."""
        if value is None:
            raise UnsupportedError(
                "cannot read the LEDs: the kernel driver can only set them. Give a value"
            )
        self._node.request(Ioctl.LED, value, "set the LEDs")
        return value

    def user_register(self, offset: int, value: int | None) -> int:
        """Writes a register of the user block unless `value` is None; returns what it reads."""
        register = UserRegister(block=self._channel, offset=offset)
        if value is not None:
            register.flags, register.value = RegisterFlag.WRITE, value
            self._node.request(Ioctl.USER_REGISTER, register, "write a register of the user block")
            register.flags = 0
        self._node.request(Ioctl.USER_REGISTER, register, "read a register of the user block")
        return register.value

    def queue(self, plans: Sequence[LaunchPlan], memory: QueueMemory) -> Launching:
        """Opens a launch queue, if the driver has one, and slots for all plans."""
        overlaps = Feature.OVERLAP in self._features
        return LaunchRun(self._node, self._jobs, self.pin, self.unpin, plans, memory, overlaps)

    def read_clock(self) -> Bracket | None:
        """Has the driver read the cycle counter; None if the board or this driver cannot."""
        if Feature.CLOCK not in self._features:
            return None
        clock = Clock()
        self._node.request(Ioctl.READ_CLOCK, clock, "read the board's cycle counter")
        return Bracket(clock.before_ns, clock.cycles, clock.after_ns)

    def mailbox(self) -> MailboxPage:
        """The mailbox page of the board itself."""
        if Feature.MAILBOX not in self._features:
            raise UnsupportedError("this board's gateware has no mailbox")
        place = MapInfo(flags=MapFlag.MAILBOX)
        self._node.request(Ioctl.MAP_INFO, place, "map the mailbox page")
        memory = self._node.map(place.offset, place.length)

        def read32(register: int) -> int:
            return ctypes.c_uint32.from_buffer(memory, register).value

        return MailboxPage(memory, True, read32)

    def export_mailbox(self) -> int:
        """The mailbox page as a dma-buf."""
        return self._node.export(ExportDmabuf(), "export the mailbox page")

    def close(self) -> None:
        """Closes the node, and all pins with it."""
        self._node.close()


def open_node(
    path: str, timeout: float | None, channel: int = 0, card_ram: int = 0
) -> KernelBackend:
    """The board at a device node."""
    node = KernelNode(path)
    try:
        return KernelBackend(node, timeout=timeout, channel=channel, card_ram=card_ram)
    except BaseException:
        node.close()
        raise


def _path(query: Query) -> DataPath:
    """The path of the bytes; of memory in a device that nobody vouches for, still that to it."""
    placement = Placement(query.placement)
    if placement is Placement.OTHER and query.peer:
        return DataPath.PEER_TO_PEER
    return _PATHS[placement]


def _set_context(node: KernelNode, channel: int, card_ram: int) -> tuple[int, int]:
    """Chooses a channel, and gets card RAM for this program alone: its address, and bytes."""
    info = node.info()
    channels = min(info.h2c_channels, info.c2h_channels)
    if not 0 <= channel < channels:
        raise ValueError(
            f"the board at {node.path} has channels 0 to {channels - 1} in both directions, and "
            f"no channel {channel}"
        )
    if not 0 <= card_ram <= info.card_ram_size:
        raise ValueError(
            f"the board at {node.path} has {info.card_ram_size} bytes of card RAM, of which no "
            f"program can have {card_ram}"
        )
    context = Context(channel=channel, ram_length=card_ram)
    action = f"get channel {channel} and {card_ram} bytes of card RAM"
    node.request(Ioctl.SET_CONTEXT, context, action)
    return context.ram_address, card_ram


def _describe(path: str, info: Info, own_card_ram: tuple[int, int]) -> BoardInfo:
    extension = None
    if info.board_version:
        version = (info.board_version >> 16, info.board_version & 0xFFFF)
        if version[0] != EXTENSION_VERSION[0]:
            raise VersionMismatch(
                f"the board at {path} has register map {version[0]}.{version[1]}, this library "
                f"knows {EXTENSION_VERSION[0]}.{EXTENSION_VERSION[1]}. Install a library of the "
                "gateware's release"
            )
        extension = Extension(
            version=version,
            capabilities=Capability(info.capabilities),
            card_ram_size=info.card_ram_size,
            link=Link(
                info.link_speed,
                info.link_width,
                info.max_payload,
                info.max_read_request,
                _BOUNDARY,
            ),
            clock_khz=info.clock_khz,
            time_scale=info.time_scale,
            waits_for=(waits_for_text(info.h2c_waits_for), waits_for_text(info.c2h_waits_for)),
            user_block=user_block_text(info.user_block),
            user_ratio=(info.user_ratio & 0xFF, info.user_ratio >> 8 & 0xFF),
        )
    return BoardInfo(
        name=f"board {info.index} at {info.bus_id.decode()}",
        simulated=info.time_scale > 1,
        identity=(info.vendor, info.device, info.subsystem_vendor, info.subsystem_device),
        interrupts=Interrupts(info.interrupts).name,
        channels=(info.h2c_channels, info.c2h_channels),
        card_ram_size=info.card_ram_size,
        extension=extension,
        own_card_ram=own_card_ram,
        receives=Feature.RECEIVE in Feature(info.features),
    )
