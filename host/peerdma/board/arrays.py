# SPDX-License-Identifier: BSD-2-Clause
"""Arrays as arguments of transfers: pinned when they are first passed, and kept pinned.

What is kept, up to a limit in bytes: allocations in a GPU's memory, each known by an identity that
no other ever has, which is compared on every use; and arrays that numpy allocated, until they are
freed. Memory of the host that others allocated may be freed or mapped over without a notice: it is
pinned for one transfer, or for as long as its plan exists. The same goes for all surfaces but those
in a CUDA GPU's memory.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import PeerdmaError
from ..memory.dmabuf import DmaBuf
from ..memory.external import ExternalArray, Origin, Part, describe
from ..memory.memory import HostArray, Memory, array_interface, host_bytes, is_memory
from ..memory.surface import Surface
from ..uapi import Access
from ..waiting import OwnLock
from .pin import Pin, PinTable, Span, read_only

if TYPE_CHECKING:
    from ..cuda.arrays import CudaArrays

__all__ = ["LIMIT", "Arrays", "Lease", "memory_of"]

#: Most bytes that are kept pinned.
LIMIT = 256 << 20
_ACTION = "transfer"


def memory_of(thing: object, cuda: Callable[[], CudaArrays]) -> Memory:
    """Memory to pin explicitly; PinError if `thing` is none that a board can reach."""
    if not isinstance(thing, np.ndarray) and is_memory(thing):
        return thing
    array = describe(thing, "pin", ordered=False)
    found = cuda().memory(array, None) if array.on_gpu and array.nbytes else None
    memory = found or HostArray(array.bytes())
    if array.nbytes:
        parts, identity = (found.parts, cuda().identity) if found else ((), None)
        memory.origin = Origin(thing, array, parts, identity)
    return memory


class _Pinned:
    """A pin made for an array that was passed, and how many leases use it."""

    __slots__ = ("key", "over", "owner", "pin", "place", "users")

    def __init__(self, pin: Pin, key: Hashable | None, place: tuple[int, int, bool]):
        self.pin: Pin = pin
        #: None if it is not kept
        self.key: Hashable | None = key
        #: address and length of what is pinned, and whether it may be written
        self.place: tuple[int, int, bool] = place
        self.users: int = 0
        #: to be unpinned when nobody uses it
        self.over: bool = key is None
        #: of an array of numpy's
        self.owner: weakref.ref[np.ndarray] | None = None


class Lease:
    """What a plan holds of an array: the array itself, and its pin. Ends with the plan."""

    __slots__ = (
        "__weakref__",
        "_arrays",
        "_given",
        "_owner",
        "_pinned",
        "_surface",
        "origin",
        "produced",
    )

    def __init__(
        self,
        given: object,
        owner: object,
        pinned: _Pinned,
        arrays: Arrays,
        surface: Surface | None,
        origin: Origin | None,
        produced: int,
    ):
        self._given = given
        self._owner = owner
        self._pinned = pinned
        #: to be released in the end
        self._surface = surface
        self._arrays: Arrays | None = arrays
        #: tells whether the array has moved
        self.origin: Origin | None = origin
        #: address in a GPU's memory if its library may queue work on it, see `order`; else 0
        self.produced: int = produced

    def order(self) -> None:
        """Waits for the work that the array's library has queued on it."""
        if self._arrays is not None:
            self._arrays.wait_for_producer(self._given, self.produced)

    def close(self) -> None:
        """Ends the lease, from any thread and at any time. Closing again does nothing."""
        # One whose making was interrupted has none.
        arrays, self._arrays = getattr(self, "_arrays", None), None
        if arrays is not None:
            arrays.returned.append((self._pinned, 1, self._surface))

    __del__ = close


class Arrays:
    """The arrays that a board knows. All is called with the board's lock held, unless it says else.

    Parameters
    ----------
    lock : OwnLock
        The board's.
    pins : PinTable
    """

    def __init__(self, lock: OwnLock, pins: PinTable):
        self._pins = pins
        pins.spare = self
        self._lock = lock
        #: least recently used first; and those that are not kept, by identity
        self._kept: OrderedDict[Hashable, _Pinned] = OrderedDict()
        self._others: set[_Pinned] = set()
        #: those of surfaces that are held
        self._surfaces: weakref.WeakSet[Lease] = weakref.WeakSet()
        self.nbytes: int = 0
        #: Pins with how many leases ended, and a surface to release: `reap` takes note. It is
        #: appended to by garbage collection, which can come at any time.
        self.returned: deque[tuple[_Pinned, int, Surface | None]] = deque()
        self._cuda: CudaArrays | None = None

    def cuda(self) -> CudaArrays:
        """What knows memory of GPUs; can be called without the lock."""
        if self._cuda is None:
            # Not imported before: most programs with arrays of the host have no CUDA.
            from ..cuda.arrays import CudaArrays

            self._cuda = CudaArrays()
        return self._cuda

    def wait_for_producer(self, thing: object, address: int) -> None:
        """Waits for work that is queued on an array of a GPU; called without the lock."""
        self.cuda().wait(thing, address, _ACTION)

    def lease(self, thing: object, needed: Access) -> tuple[Span, Lease]:
        """The bytes of an array, pinned; they stay so at least until the lease is closed.

        Raises
        ------
        PinError
            If a board cannot reach the memory, it is not contiguous, or it is read-only and
            `needed` is to write it; says what to do.
        """
        if self.returned:
            self.reap()
        if not isinstance(thing, np.ndarray) and is_memory(thing) and not _on_cuda_gpu(thing):
            if thing.readonly and needed is Access.WRITE:
                raise read_only("use", thing.nbytes, thing.address)
            pinned = self._for_now(thing)
            return pinned.pin[:], self._leased(thing, None, pinned, None)
        array = describe(thing, _ACTION, ordered=False)
        if array.readonly and needed is Access.WRITE:
            raise read_only("use", array.nbytes, array.address)
        pinned, start, parts = self._pinned(array)
        lease = self._leased(thing, array.owner, pinned, array, parts)
        return Span(pinned.pin, start, start + array.nbytes), lease

    def reap(self) -> None:
        """Takes note of leases that ended and arrays that were freed; unpins what is over.

        Can be called without the lock.
        """
        if not self.returned or self._lock.foreign:
            return
        with self._lock:
            while self.returned:
                pinned, ended, surface = self.returned.popleft()
                pinned.users -= ended
                if surface is not None:
                    surface.release()
                if pinned.over:
                    self._drop_if_over(pinned)

    def close(self) -> None:
        """Unpins all that is not in use. What is, the board's end unpins."""
        self.reap()
        for pinned in list(self._kept.values()):
            pinned.over = True
            self._drop_if_over(pinned)
        if self._cuda is not None:
            self._cuda.close()

    def end(self) -> None:
        """Releases the surfaces of plans that there still are: the board is closed."""
        for lease in list(self._surfaces):
            lease.close()
        self.reap()

    def _pinned(self, array: ExternalArray) -> tuple[_Pinned, int, Sequence[Part]]:
        """A pin with the array's bytes in it, where they start, and what they consist of."""
        if array.on_gpu and array.nbytes:
            found = self._in_gpu(array)
            if found is not None:
                return found
        owner = _owner(array.owner)
        if owner is None or not 0 < owner.nbytes <= LIMIT:
            return self._for_now(HostArray(array.bytes())), 0, ()
        key, address, readonly = id(owner), array.address, array.readonly
        if owner is not array.owner:
            address, readonly = array_interface(owner)["data"]
        place = address, owner.nbytes, not readonly
        pinned = self._kept.get(key)
        if pinned is not None:
            if pinned.place == place and pinned.owner is not None and pinned.owner() is owner:
                self._kept.move_to_end(key)
                return pinned, array.address - address, ()
            pinned.over = True
            self._drop_if_over(pinned)
        # Memory without an owner, which is not kept alive by being pinned.
        memory = HostArray(host_bytes(address, owner.nbytes, None, readonly))
        try:
            pinned = self._keep(key, memory, place)
        except PeerdmaError:
            if array.nbytes == owner.nbytes:
                raise
            # The array may be a small part of more than this user may pin.
            return self._for_now(HostArray(array.bytes())), 0, ()
        returned = self.returned

        def freed(_: object, pinned: _Pinned = pinned) -> None:
            pinned.over = True
            returned.append((pinned, 0, None))

        pinned.owner = weakref.ref(owner, freed)
        return pinned, array.address - address, ()

    def _in_gpu(self, array: ExternalArray) -> tuple[_Pinned, int, Sequence[Part]] | None:
        """As `_pinned`; None if it is memory of the host after all."""
        cuda = self.cuda()
        block = cuda.block(array.address)
        inside = cuda.one_part(block, array)
        start, parts = array.address - block.base, [Part(array.address, block.buffer_id)]
        pinned = self._kept.get(block)
        if pinned is not None and inside:
            self._kept.move_to_end(block)
            return pinned, start, parts
        self._drop_freed()
        # A range of several parts is not kept: there is no notice when one of them is replaced.
        keep = pinned is None and inside and 0 < block.size <= LIMIT and cuda.one_part(block)
        memory = cuda.memory(array, block if keep else None)
        if memory is None:
            return None
        if not keep:
            return self._for_now(memory), 0, memory.parts
        return self._keep(block, memory, (block.base, block.size, True)), start, parts

    def _drop_freed(self) -> None:
        """Unpins allocations of GPUs that have been freed."""
        for key, pinned in list(self._kept.items()):
            if isinstance(key, tuple) and self.cuda().block(pinned.place[0]) != key:
                pinned.over = True
                self._drop_if_over(pinned)

    def _keep(self, key: Hashable, memory: Memory, place: tuple[int, int, bool]) -> _Pinned:
        """Pins memory and keeps it pinned; makes room for it."""
        if self.nbytes + place[1] > LIMIT:
            self.make_room(self.nbytes + place[1] - LIMIT)
        pinned = _Pinned(self._pins.pin(memory), key, place)
        self._kept[key] = pinned
        self.nbytes += place[1]
        return pinned

    def make_room(self, nbytes: int) -> bool:
        """Unpins what is kept and nobody uses, until so many bytes are free; whether it found any.

        The lock is held.
        """
        self.reap()
        before = self.nbytes
        for pinned in list(self._kept.values()):
            if before - self.nbytes >= max(1, nbytes):
                break
            if not pinned.users:
                pinned.over = True
                self._drop_if_over(pinned)
        return self.nbytes < before

    def _for_now(self, memory: Memory) -> _Pinned:
        """Pins memory until its last lease ends."""
        pinned = _Pinned(
            self._pins.pin(memory), None, (memory.address, memory.nbytes, not memory.readonly)
        )
        self._others.add(pinned)
        return pinned

    def _leased(
        self,
        given: object,
        owner: object,
        pinned: _Pinned,
        array: ExternalArray | None,
        parts: Sequence[Part] = (),
    ) -> Lease:
        """A lease of what was given; `array` is what `describe` said of it, if it was asked."""
        surface, produced = None, 0
        # Most are arrays of numpy, and asking what else it may be takes longer.
        if isinstance(given, np.ndarray) or not is_memory(given):
            assert array is not None
            identity = self.cuda().identity if parts else None
            origin = Origin(given, array, parts, identity) if array.nbytes else None
            produced = origin.produced if origin else 0
        else:
            origin = getattr(given, "origin", None)
            if isinstance(given, Surface):
                given.acquire()
                surface = given
            if isinstance(given, (Surface, DmaBuf)):
                given.holders.add(self)
        pinned.users += 1
        lease = Lease(given, owner, pinned, self, surface, origin, produced)
        if surface is not None:
            self._surfaces.add(lease)
        return lease

    def _drop_if_over(self, pinned: _Pinned) -> None:
        if not pinned.over or pinned.users:
            return
        if pinned.key is None:
            self._others.discard(pinned)
        elif self._kept.get(pinned.key) is pinned:
            del self._kept[pinned.key]
            self.nbytes -= pinned.place[1]
        else:
            return
        # It may come from garbage collection, where nobody waits for an error.
        with contextlib.suppress(PeerdmaError):
            self._pins.unpin_now(pinned.pin)


def _on_cuda_gpu(memory: Memory) -> bool:
    return memory.on_gpu and hasattr(memory, "__cuda_array_interface__")


def _owner(array: object) -> np.ndarray | None:
    """The array of numpy whose memory it is; None if somebody else allocated that."""
    while isinstance(array, np.ndarray):
        if array.base is None:
            return array if array.flags.owndata else None
        array = array.base
    return None
