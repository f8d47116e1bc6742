# SPDX-License-Identifier: BSD-2-Clause
"""A vfio-user client: connects this process to a PCI device that is served over a socket.

The client acts as the host: it gives the device memory for DMA, by file descriptor or by serving
messages, and receives its interrupts as eventfds.
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import struct
import weakref
from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import TypeVar

from ..errors import PeerdmaError, VersionMismatch
from ..memory.memory import GpuFile, Staged
from ..vfio.function import LostWrites
from .channel import Channel, Nonsense
from .simboard import SimulatedBoard
from .wire import (
    CONFIG_REGION,
    GPU_MAPPABLE,
    GPU_MEMORY,
    MAX_DATA_BYTES,
    MAX_FDS,
    PROTOCOL_VERSION,
    Command,
    DeviceInfo,
    DmaAccess,
    DmaMap,
    DmaUnmap,
    GpuMap,
    Irq,
    IrqInfo,
    IrqSet,
    IrqSetFlag,
    MapFlag,
    RegionAccess,
    RegionInfo,
    Version,
    mappable,
    pack,
    unpack,
)

__all__ = ["VfioUserClient"]

_Record = TypeVar("_Record")
_NOTHING = memoryview(b"")
_DMA_COMMANDS = frozenset((int(Command.DMA_READ), int(Command.DMA_WRITE)))
_ACCESS_BYTES = DmaAccess.FORMAT.size
#: `RegionAccess` with a register behind it.
_REGISTER = struct.Struct(f"{RegionAccess.FORMAT.format}I")
_pack_register = _REGISTER.pack
_pack_access, _unpack_dma = RegionAccess.FORMAT.pack, DmaAccess.FORMAT.unpack


class VfioUserClient(Channel):
    """One connection to a device; `Channel` explains the parameters.

    Raises
    ------
    BoardNotFound
        If no process listens at the socket.
    VersionMismatch
        If the device speaks another major version of the protocol.

    Attributes
    ----------
    maps_gpus : bool
        Whether the device takes `gpu_map`.
    """

    def __init__(self, path: str, *, timeout: float, process: SimulatedBoard | None = None):
        self._memory = _Memory()
        self.maps_gpus: bool = False
        with contextlib.ExitStack() as undo:
            undo.callback(self._memory.close)
            super().__init__(path, timeout=timeout, server=self._memory, process=process)
            undo.callback(super().close)
            self._agree_on_version()
            undo.pop_all()

    def _agree_on_version(self) -> None:
        capabilities = {"max_msg_fds": MAX_FDS, "max_data_xfer_size": MAX_DATA_BYTES}
        text = json.dumps({"capabilities": capabilities}).encode() + b"\0"
        ours = Version(*PROTOCOL_VERSION)
        answer = self.request(Command.VERSION, pack(ours) + text)
        found = self._read(Version, answer)
        if found.major != ours.major:
            raise VersionMismatch(
                f"this library speaks vfio-user {ours.major}.{ours.minor}, the board "
                f"{found.major}.{found.minor}; use the simulated board of this checkout"
            )
        text = answer[Version.FORMAT.size :].rstrip(b"\0")
        with contextlib.suppress(ValueError, AttributeError, RecursionError):
            self.maps_gpus = json.loads(text)["capabilities"].get(GPU_MEMORY) is True

    def close(self) -> None:
        """Ends the connection; the device's DMA mappings and interrupts end with it."""
        super().close()
        self._memory.close()

    # Device and regions ----------------------------------------------------------------------

    def device_info(self) -> DeviceInfo:
        """Flags, and how many regions and interrupt indices there are."""
        query = DeviceInfo(DeviceInfo.FORMAT.size)
        return self._read(DeviceInfo, self.request(Command.DEVICE_GET_INFO, pack(query)))

    def region_info(self, index: int) -> RegionInfo:
        """Size and flags of region `index`."""
        query = RegionInfo(RegionInfo.FORMAT.size, region=index)
        answer = self.request(Command.DEVICE_GET_REGION_INFO, pack(query))
        return self._read(RegionInfo, answer)

    def map_page(self, region: int, offset: int, size: int) -> mmap.mmap | None:
        """Maps memory that the device offers; None if it does not, or pages here are larger."""
        if size % mmap.PAGESIZE:
            return None
        query = RegionInfo(MAX_DATA_BYTES, region=region)
        answer = self.request(Command.DEVICE_GET_REGION_INFO, pack(query))
        fds = self.take_fds()
        try:
            info = self._read(RegionInfo, answer)
            try:
                areas = list(mappable(info, answer))
            except struct.error:
                self.broken("sent capabilities of a region that do not fit into it")
            if not any(area.has(offset, size) for area in areas):
                return None
            if not fds:
                self.broken("offered a region to map without its file")
            return mmap.mmap(fds[0], size, offset=info.offset + offset)
        finally:
            for fd in fds:
                os.close(fd)

    def reset(self) -> None:
        """Resets the device, configuration space included."""
        self.request(Command.DEVICE_RESET)

    def region_read(self, region: int, offset: int, count: int) -> int:
        """The little-endian number in `count` bytes at `offset`."""
        body = _pack_access(offset, region, count)
        data = self.request(Command.REGION_READ, body)[len(body) :]
        if len(data) != count:
            self.broken(f"answered a read of {count} bytes with {len(data)}")
        return int.from_bytes(data, "little")

    def read32(self, bar: int, offset: int) -> int:
        """The 32-bit register at byte `offset` of a BAR."""
        answer = self.request(Command.REGION_READ, _pack_access(offset, bar, 4))
        if len(answer) != _REGISTER.size:
            self.broken(f"answered a read of a register with {len(answer)} bytes")
        return _REGISTER.unpack(answer)[-1]

    def write32(self, bar: int, offset: int, value: int) -> None:
        """Writes the 32-bit register at byte `offset` of a BAR; posted."""
        self.send(Command.REGION_WRITE, _pack_register(offset, bar, 4, value))

    def region_write(self, region: int, offset: int, count: int, value: int) -> None:
        """Writes `value` in `count` bytes at `offset`; posted, except in configuration space."""
        body = _pack_access(offset, region, count) + value.to_bytes(count, "little")
        if region == CONFIG_REGION:
            self.request(Command.REGION_WRITE, body)
        else:
            self.send(Command.REGION_WRITE, body)

    # DMA -------------------------------------------------------------------------------------

    def dma_map(
        self,
        address: int,
        size: int,
        memory: memoryview | Staged,
        *,
        skip: int = 0,
        fd: int | None = None,
        fd_offset: int = 0,
    ) -> None:
        """Maps memory for the device's DMA at bus addresses `address` to ``address + size - 1``.

        Parameters
        ----------
        address, size : int
            The window, in whole pages.
        memory : memoryview of bytes
            The memory to map; if it is read-only, so is the window. Must not change size.
        skip : int
            Bytes from the start of the window to the first byte of `memory`.
        fd, fd_offset : int
            The file that backs the memory, if there is one: the device then maps it itself.

        Raises
        ------
        ProtocolError
            If the device refuses; errno EEXIST if something is mapped there.
        """
        request = DmaMap(DmaMap.FORMAT.size, _access(memory), fd_offset, address, size)
        fds = () if fd is None else (fd,)
        self._map(Command.DMA_MAP, pack(request), fds, address, size, memory, skip)

    def gpu_map(
        self, address: int, size: int, memory: Staged, file: GpuFile, *, skip: int = 0
    ) -> str:
        """As `dma_map`, for a GPU's memory, which the device maps by its file.

        Returns why it cannot, and then nothing is mapped; empty if it is.
        """
        flags = _access(memory) | GPU_MAPPABLE * file.mappable
        head = GpuMap.FORMAT.size, flags, file.offset - skip, address, size
        request = GpuMap(*head, file.nbytes, file.identity, file.device)
        answer = self._map(Command.GPU_MAP, pack(request), (file.fd,), address, size, memory, skip)
        if answer:
            self._memory.remove(address + skip)
        return answer.decode(errors="replace")

    def _map(
        self,
        command: Command,
        request: bytes,
        fds: Sequence[int],
        address: int,
        size: int,
        memory: memoryview | Staged,
        skip: int,
    ) -> bytes:
        self._memory.add(address + skip, memory)
        try:
            return self.request(command, request, fds)
        except PeerdmaError:
            self._memory.remove(address + skip)
            raise
        except BaseException:
            # An interrupt: the device may have mapped it.
            with contextlib.suppress(PeerdmaError):
                self.dma_unmap(address, size, skip=skip)
            raise

    def dma_unmap(self, address: int, size: int, *, skip: int = 0) -> None:
        """Undoes `dma_map`; once it returns the device does not access the memory.

        Does nothing if nothing is mapped there.
        """
        if not self._memory.has(address + skip):
            return
        request = DmaUnmap(DmaUnmap.FORMAT.size, 0, address, size)
        try:
            self.request(Command.DMA_UNMAP, pack(request))
        except PeerdmaError:
            raise
        except BaseException:
            # An interrupt. The device refuses what it has done before.
            with contextlib.suppress(PeerdmaError):
                self.request(Command.DMA_UNMAP, pack(request))
            raise
        finally:
            self._memory.remove(address + skip)

    def take_lost_writes(self) -> LostWrites | None:
        """The writes that were lost since the last call; None if there were none.

        Covers what the device wrote before its last interrupt and before its last reply.
        """
        memory = self._memory
        lost, memory.lost_writes = memory.lost_writes, None
        return lost

    # Interrupts ------------------------------------------------------------------------------

    def irq_count(self, index: Irq) -> int:
        """Number of interrupts of kind `index` that the device has."""
        query = IrqInfo(IrqInfo.FORMAT.size, irq=index)
        answer = self.request(Command.DEVICE_GET_IRQ_INFO, pack(query))
        return self._read(IrqInfo, answer).interrupts

    def irq_connect(self, index: Irq, eventfd: int) -> None:
        """Makes the device signal the eventfd when interrupt 0 of `index` fires."""
        self._set_irqs(index, IrqSetFlag.DATA_EVENTFD | IrqSetFlag.ACTION_TRIGGER, 1, eventfd)

    def irq_disconnect(self, index: Irq) -> None:
        """Disconnects all interrupts of `index`."""
        self._set_irqs(index, IrqSetFlag.DATA_NONE | IrqSetFlag.ACTION_TRIGGER, 0)

    def irq_unmask(self, index: Irq) -> None:
        """Unmasks INTx, which the device masks each time it fires."""
        self._set_irqs(index, IrqSetFlag.DATA_NONE | IrqSetFlag.ACTION_UNMASK, 1)

    def _set_irqs(self, index: Irq, flags: IrqSetFlag, count: int, *eventfds: int) -> None:
        request = IrqSet(IrqSet.FORMAT.size, flags, index, 0, count)
        self.request(Command.DEVICE_SET_IRQS, pack(request), eventfds)

    # Messages --------------------------------------------------------------------------------

    def _read(self, kind: type[_Record], payload: bytes) -> _Record:
        try:
            return unpack(kind, payload)
        except struct.error:
            self.broken(f"sent {len(payload)} bytes where a {kind.__name__} belongs")


def _access(memory: memoryview | Staged) -> int:
    """What a device may do with memory."""
    return MapFlag.READ if memory.readonly else MapFlag.READ | MapFlag.WRITE


class _Memory:
    """The memory that DMA messages read and write, as the `Server` of the channel.

    The kernel copies the bytes, through a file: if the program has meanwhile unmapped or protected
    them, or truncated the file behind them, that fails with EFAULT and not with a signal.
    """

    def __init__(self):
        self._starts: list[int] = []
        self._views: dict[int, memoryview | Staged] = {}
        #: since somebody looked
        self.lost_writes: LostWrites | None = None
        self._file = os.memfd_create("peerdma-dma", os.MFD_CLOEXEC)
        self._closer = weakref.finalize(self, os.close, self._file)
        # When the interpreter ends, the board may still use it, until its jobs are cancelled.
        self._closer.atexit = False

    def add(self, start: int, view: memoryview | Staged) -> None:
        self._views[start] = view
        if start not in self._starts:  # as an interrupt may leave it
            insort(self._starts, start)

    def has(self, start: int) -> bool:
        """Whether memory was added there."""
        return start in self._views

    def remove(self, start: int) -> None:
        if start in self._starts:
            self._starts.remove(start)
        self._views.pop(start, None)

    def close(self) -> None:
        self._starts.clear()
        self._views.clear()
        self._closer()

    def execute(self, command: int, payload: bytes) -> bytes:
        """Reads or writes for the device; see `Server`.

        Does nothing if some of it is not mapped, or not writable. In one function, as a copy of
        4 KiB is some forty of these.
        """
        if command not in _DMA_COMMANDS:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        access, data = payload[:_ACCESS_BYTES], payload[_ACCESS_BYTES:]
        if len(access) < _ACCESS_BYTES:
            raise Nonsense(f"sent {len(access)} bytes where a DmaAccess belongs")
        address, nbytes = _unpack_dma(access)
        write = command == Command.DMA_WRITE
        if nbytes > MAX_DATA_BYTES or (write and nbytes != len(data)):
            raise Nonsense(f"sent {len(data)} bytes of DMA data, saying {nbytes}")
        try:
            pieces: list[memoryview | Staged] = []
            place, end = address, address + nbytes
            while place < end:
                index = bisect_right(self._starts, place) - 1
                if index < 0:
                    raise OSError(errno.EFAULT, f"nothing is mapped at {place:#x}")
                start = self._starts[index]
                piece = self._views.get(start, _NOTHING)[place - start : end - start]
                if not piece or (write and piece.readonly):
                    raise OSError(errno.EFAULT, f"nothing to access at {place:#x}")
                pieces.append(piece)
                place += len(piece)
            answer, place = access, 0
            for piece in pieces:
                length = len(piece)
                part = data[place : place + length]
                place += length
                if type(piece) is not memoryview:
                    if write:
                        piece[:] = part
                    else:
                        answer += bytes(piece)
                    continue
                if write:
                    os.pwrite(self._file, part, 0)
                    copied = os.preadv(self._file, (piece,), 0)
                else:
                    copied = os.pwritev(self._file, (piece,), 0)
                if copied != length:
                    raise OSError(errno.EFAULT, f"only {copied} of {length} bytes are memory")
                if not write:
                    answer += os.pread(self._file, length, 0)
        except OSError:
            if write:
                first, lost, writes = self.lost_writes or (address, 0, 0)
                self.lost_writes = LostWrites(first, lost + nbytes, writes + 1)
            raise
        return answer
