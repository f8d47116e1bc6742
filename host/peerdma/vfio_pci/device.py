# SPDX-License-Identifier: BSD-2-Clause
"""A function that VFIO offers: its registers, its interrupts, and its end."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import select
import struct
import threading
import weakref
from collections.abc import Iterable
from typing import ClassVar, NoReturn

from ..errors import BoardLost, BoardNotFound, PeerdmaError, ProtocolError
from ..process import AtExit, forked, own, watched
from ..regs import BAR_DMA, CHANNEL
from ..vfio.function import COMMAND, Command, LostWrites
from ..vfio.structures import (
    CONFIG_REGION,
    DeviceFlag,
    DeviceInfo,
    Irq,
    IrqInfo,
    IrqSet,
    IrqSetFlag,
    MapFlag,
    RegionInfo,
    mappable,
    unpack,
)
from ..waiting import OwnLock
from .ioctls import Vfio, control
from .place import Place
from .space import AddressSpace, attach

__all__ = ["VfioDevice"]

#: Whether stores to memory and then to registers arrive in that order. Where they do not, registers
#: are accessed by the kernel, which has the barriers.
_ORDERED = platform.machine() in ("x86_64", "AMD64")
#: Regions of registers: the BARs.
_BARS = 6
_ONES = 0xFFFF_FFFF
#: Bytes that capabilities of a region may take.
_ROOM = 4096
_LOST = {
    Irq.ERROR: "PCI Express reported an error that is not correctable",
    Irq.REQUEST: "the system asked for it back: it is unplugged, or gets another driver",
}


_MAP_FIXED = 0x10
_mmap = ctypes.CDLL(None, use_errno=True).mmap
_mmap.restype = ctypes.c_void_p
_mmap.argtypes = (
    *(ctypes.c_void_p, ctypes.c_size_t),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long),
)


def _leave(device: VfioDevice) -> None:
    """Ends a board's DMA before the program's memory is freed."""
    device.give_up("the program ends")


#: Devices that are open.
_open = AtExit(_leave)


class VfioDevice:
    """An open function; see `peerdma.vfio.function.Device`.

    However the process ends, it loses the bus and its memory is unmapped. When the system asks for
    the board, or reports an error of it, a thread gives it back at once: the kernel waits for that.

    Parameters
    ----------
    place : Place

    Raises
    ------
    BoardNotFound
        If it cannot be opened, with the command to run.
    """

    def __init__(self, place: Place):
        self.address: str = place.address
        self._lock = OwnLock()
        #: why the board is gone
        self._lost: str | None = None
        #: readable once it is
        self._gone = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._forget = weakref.finalize(self, os.close, self._gone)
        undo = contextlib.ExitStack()
        self._end = weakref.finalize(self, undo.close)
        # At the end of the program, `_leave` comes first, and threads may still use the board.
        self._forget.atexit = self._end.atexit = False
        _open.add(self)
        watched(self)
        #: what programs have mapped
        self._pages: weakref.WeakSet[_Page] = weakref.WeakSet()
        undo.callback(_let_go, self._pages)
        #: registers that are mapped, by BAR
        self._words: dict[int, memoryview] = {}
        try:
            self._space: AddressSpace = attach(place, undo)
            self._fd = self._space.device
            info = self._ask(Vfio.DEVICE_GET_INFO, DeviceInfo(DeviceInfo.FORMAT.size))
            self._flags = info.flags
            if not info.flags & DeviceFlag.PCI:
                raise ProtocolError(f"VFIO says that {self.address} is not a PCI function")
            self._regions = [self._region(index) for index in range(CONFIG_REGION + 1)]
            if _ORDERED:
                for bar in range(_BARS):
                    self._map_registers(bar, undo)
            self._watch(undo)
            # First of all at the end: the board reaches no memory when anybody is told of it.
            undo.callback(own(self._space.unmap_all))
            undo.callback(own(_leave_bus), self._fd, self._regions[CONFIG_REGION].offset)
        except BaseException as error:
            self.close()
            if isinstance(error, OSError) and not isinstance(error, PeerdmaError):
                raise BoardNotFound(
                    f"VFIO cannot open {self.address}: {error.strerror}. `sudo dmesg | grep -e "
                    "vfio -e iommu` says more",
                    errno=error.errno,
                ) from None
            raise

    def _map_registers(self, bar: int, undo: contextlib.ExitStack) -> None:
        for area in self._areas(bar):
            # The MSI-X table may divide a BAR; what is behind it is accessed by the kernel then.
            if area.offset == 0:
                memory = mmap.mmap(self._fd, area.size, offset=self._regions[bar].offset)
                undo.callback(memory.close)
                whole = memoryview(memory)
                undo.callback(whole.release)
                self._words[bar] = whole.cast("I")
                undo.callback(self._words[bar].release)

    def _watch(self, undo: contextlib.ExitStack) -> None:
        """Starts the thread that waits for the system's messages about the device."""
        kinds = [irq for irq in (Irq.ERROR, Irq.REQUEST) if self.irq_count(irq)]
        events = {os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK): irq for irq in kinds}
        stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        arguments = weakref.ref(self), events, stop
        thread = threading.Thread(target=_watch, args=arguments, name="peerdma-vfio", daemon=True)
        # The thread closes the descriptors, at its end.
        thread.start()
        undo.callback(own(os.eventfd_write), stop, 1)
        for fd, irq in events.items():
            self.irq_connect(irq, fd)

    @property
    def lost(self) -> bool:
        """True once the device is gone, or was given back."""
        return self._lost is not None

    def give_up(self, why: str) -> None:
        """Gives the board back to the system, because of what happened to it."""
        with self._lock:
            if self._lost is None:
                try:
                    self._end()
                finally:
                    self._lost = why
                    os.eventfd_write(self._gone, 1)

    def close(self) -> None:
        """Takes the bus from the function, unmaps all memory and closes it. Can be called again."""
        if self._lock.foreign:
            return
        with self._lock:
            self._end()
            self._lost = self._lost or "it was closed"
            self._forget()

    def disown(self) -> None:
        """Closes a child's copies, and unmaps what it inherited: they would keep the device open.

        The function keeps the bus, and its mappings.
        """
        self._lost = forked()
        # A thread that does not exist here may have held it.
        _Page.closing = threading.Lock()
        self._end()
        self._forget()

    def reset(self) -> bool:
        """Resets the function; False if the kernel cannot."""
        if not self._flags & DeviceFlag.RESET:
            return False
        with self._lock:
            self._require()
            try:
                control(self._fd, Vfio.DEVICE_RESET)
            except OSError:
                return False
        return True

    # Memory ----------------------------------------------------------------------------------

    def dma_map(self, place: int, size: int, flags: MapFlag, preferred: int) -> int:
        """Maps memory for DMA; see `AddressSpace.map`."""
        with self._lock:
            self._require()
            return self._space.map(place, size, flags, preferred)

    def dma_unmap(self, start: int) -> None:
        """Undoes `dma_map`; does nothing on a board that is gone, whose memory is unmapped."""
        with self._lock:
            if self.lost:
                return
            try:
                self._space.unmap(start)
            except OSError as error:
                self.give_up(f"the kernel does not unmap memory ({error.strerror})")

    def map_page(self, region: int, offset: int, size: int) -> mmap.mmap | None:
        """Maps a page of registers for the program; None if the kernel does not allow that.

        Once the board is gone, stores to the page are lost.
        """
        with self._lock:
            self._require()
            if size % mmap.PAGESIZE or not any(
                area.has(offset, size) for area in self._areas(region)
            ):
                return None
            page = _Page(self._fd, size, offset=self._regions[region].offset + offset)
            self._pages.add(page)
            return page

    # Regions ---------------------------------------------------------------------------------

    def read32(self, bar: int, offset: int) -> int:
        """The 32-bit register at byte `offset` of a BAR; BoardLost if the board is gone."""
        value = self.region_read(bar, offset, 4)
        # All ones is what reads of a board without link or power return, too.
        if value == _ONES and self.region_read(BAR_DMA[0], CHANNEL.base, 4) == _ONES:
            self.give_up("its registers read all ones: it has lost its link or its power")
            self._require()
        return value

    def write32(self, bar: int, offset: int, value: int) -> None:
        """Writes the 32-bit register at byte `offset` of a BAR; BoardLost if it is gone."""
        self.region_write(bar, offset, 4, value)

    def region_read(self, region: int, offset: int, count: int) -> int:
        """The little-endian number in `count` bytes at `offset`; BoardLost if it is gone."""
        if count == 4 and region in self._words:
            # What is not mapped is an index too large, and a board that is gone a view released.
            with contextlib.suppress(IndexError, ValueError):
                return self._words[region][offset >> 2]
        with self._lock:
            self._require()
            try:
                data = os.pread(self._fd, count, self._regions[region].offset + offset)
            except OSError as error:
                self._fail(error)
        return int.from_bytes(data, "little")

    def region_write(self, region: int, offset: int, count: int, value: int) -> None:
        """Writes `value` in `count` bytes at `offset`; BoardLost if it is gone."""
        if count == 4 and region in self._words:
            with contextlib.suppress(IndexError, ValueError):
                self._words[region][offset >> 2] = value
                return
        with self._lock:
            self._require()
            data = value.to_bytes(count, "little")
            try:
                os.pwrite(self._fd, data, self._regions[region].offset + offset)
            except OSError as error:
                self._fail(error)

    def take_lost_writes(self) -> LostWrites | None:
        """None: the IOMMU reports such writes in the kernel's log only."""
        return None

    def _region(self, index: int) -> RegionInfo:
        return self._ask(Vfio.DEVICE_GET_REGION_INFO, RegionInfo(RegionInfo.FORMAT.size, 0, index))

    def _areas(self, bar: int) -> list:
        """The parts of a BAR that can be mapped."""
        query = RegionInfo(RegionInfo.FORMAT.size + _ROOM, 0, bar)
        answer = control(self._fd, Vfio.DEVICE_GET_REGION_INFO, query, bytes(_ROOM))
        return [area for area in mappable(unpack(RegionInfo, answer), answer) if area.size]

    # Interrupts ------------------------------------------------------------------------------

    def irq_count(self, index: Irq) -> int:
        """Number of interrupts of kind `index` that the function has."""
        query = IrqInfo(IrqInfo.FORMAT.size, irq=index)
        try:
            return self._ask(Vfio.DEVICE_GET_IRQ_INFO, query).interrupts
        except OSError:  # a kind that the function cannot have
            return 0

    def irq_connect(self, index: Irq, eventfd: int) -> None:
        """Makes the kernel signal the eventfd when interrupt 0 of `index` fires."""
        self._set_irqs(index, IrqSetFlag.DATA_EVENTFD | IrqSetFlag.ACTION_TRIGGER, 1, eventfd)

    def irq_disconnect(self, index: Irq) -> None:
        """Disconnects all interrupts of `index`."""
        self._set_irqs(index, IrqSetFlag.DATA_NONE | IrqSetFlag.ACTION_TRIGGER, 0)

    def irq_unmask(self, index: Irq) -> None:
        """Unmasks INTx, which the kernel masks each time it fires."""
        self._set_irqs(index, IrqSetFlag.DATA_NONE | IrqSetFlag.ACTION_UNMASK, 1)

    def wait_event(self, eventfd: int, timeout: float) -> bool:
        """Waits up to `timeout` seconds for the eventfd; BoardLost if the board goes away."""
        poll = select.poll()
        for fd in (eventfd, self._gone):
            poll.register(fd, select.POLLIN)
        ready = [fd for fd, _ in poll.poll(timeout * 1000)]
        self.serve()
        if eventfd in ready:
            os.eventfd_read(eventfd)
        return eventfd in ready

    def fileno(self) -> int:
        """Readable once the board is gone."""
        return self._gone

    def serve(self) -> None:
        """BoardLost if the board is gone."""
        self._require()

    def _set_irqs(self, index: Irq, flags: IrqSetFlag, count: int, *eventfds: int) -> None:
        tail = struct.pack(f"<{len(eventfds)}i", *eventfds)
        request = IrqSet(IrqSet.FORMAT.size + len(tail), flags, index, 0, count)
        with self._lock:
            self._require()
            try:
                control(self._fd, Vfio.DEVICE_SET_IRQS, request, tail)
            except OSError as error:
                self._fail(error)

    # -----------------------------------------------------------------------------------------

    def _ask(self, request: Vfio, query):
        """The kernel's answer to a query, a structure of the same kind."""
        return unpack(type(query), control(self._fd, request, query))

    def _require(self) -> None:
        if self._lost is not None:
            raise BoardLost(
                f"the board at {self.address} is gone: {self._lost}. `lspci -s {self.address}` "
                "shows whether it is there; open it again"
            )

    def _fail(self, error: OSError) -> NoReturn:
        self.give_up(f"the kernel does not reach it ({error.strerror})")
        self._require()
        raise AssertionError("a board that was given up is gone")


class _Page(mmap.mmap):
    """A page of registers, which its user closes."""

    #: nobody closes one while it is let go
    closing: ClassVar[threading.Lock] = threading.Lock()

    def close(self) -> None:
        """Unmaps it."""
        with self.closing:
            super().close()


def _let_go(pages: Iterable[_Page]) -> None:
    """Puts memory where pages are mapped: the kernel waits for the end of each mapping."""
    with _Page.closing:
        for page in list(pages):
            if not page.closed:
                place = ctypes.addressof(ctypes.c_char.from_buffer(page))
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
                _mmap(place, len(page), mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)


def _watch(device: weakref.ref[VfioDevice], events: dict[int, Irq], stop: int) -> None:
    """Waits for one of the eventfds, gives the board up unless it was `stop`, and closes them."""
    # No limit: whatever ends the device writes to `stop`.
    ready = _readable(*events, stop)
    found = device()
    if stop not in ready and found is not None:
        found.give_up(_LOST[events[ready[0]]])
    del found
    _readable(stop)
    for fd in (*events, stop):
        os.close(fd)


def _readable(*fds: int) -> list[int]:
    """Waits until one of the descriptors is readable; those that are."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll()]


def _leave_bus(fd: int, config: int) -> None:
    """Clears the function's right to use the bus."""
    with contextlib.suppress(OSError):  # it may be gone
        command = int.from_bytes(os.pread(fd, 2, config + COMMAND), "little")
        os.pwrite(fd, (command & ~Command.BUS_MASTER).to_bytes(2, "little"), config + COMMAND)
