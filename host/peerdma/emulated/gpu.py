# SPDX-License-Identifier: BSD-2-Clause
"""The emulated GPU: shared memory for surfaces, numpy for kernels, so that it runs anywhere.

Two personalities. A *discrete* GPU's surfaces are 64 KiB pages scattered over an aperture high
above 4 GiB, reached peer-to-peer. An *integrated* GPU's are short runs of 4 KiB pages of the
host's memory on both sides of 4 GiB, as on a Jetson.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from ..errors import PinError
from ..memory.external import Origin, describe
from ..memory.mailbox import Mailbox, MailboxMap
from ..memory.memory import DataPath, Extent
from ..memory.scatter import ScatterList
from ..memory.surface import Gpu, SelfTest, Surface, layout
from ..process import watched
from .aperture import Aperture

__all__ = ["DISCRETE", "INTEGRATED", "EmulatedGpu", "EmulatedSurface", "Personality"]

_APERTURE_BYTES = 1 << 32


@dataclass(frozen=True)
class Personality:
    """What an emulated GPU's memory looks like from the bus."""

    name: str
    path: DataPath
    #: bus address of the first GPU's aperture; further ones follow
    base: int
    page_bytes: int
    #: pages come in runs of 1 to this many
    longest_run: int


DISCRETE = Personality("discrete", DataPath.PEER_TO_PEER, 0x38_0000_0000, 64 * 1024, 1)
INTEGRATED = Personality("integrated", DataPath.HOST_MEMORY, 0x8000_0000, 4096, 16)


class _Slots:
    """Numbers the GPUs that are alive, so that no two share bus addresses."""

    def __init__(self):
        self._used: set[int] = set()
        self._lock = threading.Lock()
        watched(self)

    def disown(self) -> None:
        """In a child, a thread that does not exist there may hold the lock."""
        self._lock = threading.Lock()

    def acquire(self) -> int:
        with self._lock:
            number = next(n for n in range(len(self._used) + 1) if n not in self._used)
            self._used.add(number)
            return number

    def release(self, number: int) -> None:
        self._used.discard(number)


_slots = _Slots()


class EmulatedGpu(Gpu):
    """A GPU made of the CPU and shared memory.

    Parameters
    ----------
    personality : Personality
        `DISCRETE` or `INTEGRATED`.
    seed : int
        Of the order in which pages are allocated.
    """

    emulated = True

    def __init__(self, personality: Personality = DISCRETE, *, seed: int = 0):
        self.personality = personality
        self.name: str = f"emulated {personality.name} GPU"
        self.memory: str = f"emulated {str(personality.path).removesuffix(' memory')} memory"
        slot = _slots.acquire()
        self._aperture = Aperture(
            personality.base + slot * _APERTURE_BYTES,
            _APERTURE_BYTES,
            personality.page_bytes,
            personality.longest_run,
            seed,
        )
        # Released with the aperture, not the GPU: surfaces may outlive the GPU object.
        weakref.finalize(self._aperture, _slots.release, slot)

    def __repr__(self) -> str:
        state = ", closed" if self._aperture.closed else ""
        return f"<EmulatedGpu {self.personality.name}, aperture {self._aperture.base:#x}{state}>"

    def surface(self, shape: int | Sequence[int], dtype: DTypeLike = "u1") -> EmulatedSurface:
        """A new surface, zeroed; PeerdmaError if there is no memory for it."""
        _, _, nbytes = layout(shape, dtype)
        place, pages = ScatterList((), ()), np.empty(0, np.uint8)
        if nbytes:
            place, mapping = self._aperture.allocate(nbytes)
            pages = np.asarray(cast(np.ndarray, mapping))
        aperture, path = self._aperture, self.personality.path
        return EmulatedSurface(
            self, shape, dtype, path, pages, lambda pages: aperture.extents(place, pages)
        )

    def register(self, array: Any) -> EmulatedSurface:
        """See `Gpu.register`: any array in host memory; not read-only, as surfaces are not."""
        external = describe(array)
        if external.on_gpu or external.readonly:
            where = "in a GPU's memory" if external.on_gpu else "read-only"
            raise PinError(
                f"cannot register a {type(array).__name__} that is {where} as a surface of an "
                "emulated GPU; use a writable one in host memory"
            )
        data = external.bytes()
        return EmulatedSurface(
            self,
            external.shape,
            external.dtype,
            DataPath.HOST_MEMORY,
            data,
            lambda pages: [Extent(pages.data)] if pages.size else [],
            Origin(array, external) if external.nbytes else None,
        )

    def synchronize(self) -> None:
        """Nothing to do: the CPU's work is done when its calls return."""

    def map_mailbox(self, mailbox: Mailbox) -> MailboxMap:
        """See `Gpu.map_mailbox`; kernels are the CPU's, so addresses are this process's."""
        mailbox.acquire()
        return MailboxMap(mailbox.address, mailbox.release)

    def _self_test(self) -> SelfTest:
        from ..testing.cpu import CpuKernels

        return CpuKernels()

    def close(self) -> None:
        """Ends the allocation and pinning of surfaces; those in use stay. Can be called again."""
        self._aperture.close()


class EmulatedSurface(Surface):
    """A surface of an `EmulatedGpu`, in memory that numpy and a board can both access."""

    def __init__(
        self,
        gpu: EmulatedGpu,
        shape: int | Sequence[int],
        dtype: DTypeLike,
        path: DataPath,
        pages: np.ndarray,
        extents: Callable[[np.ndarray], list[Extent]],
        origin: Origin | None = None,
    ):
        super().__init__(gpu, shape, dtype, origin)
        self.path = path
        self._extents = extents
        self._pages: np.ndarray | None = pages
        self.address: int = pages.ctypes.data

    @property
    def bytes(self) -> np.ndarray:
        """The surface as a flat uint8 array."""
        return self._whole_pages()[: self.nbytes]

    @property
    def array(self) -> np.ndarray:
        """The surface as a numpy array that shares its memory, and keeps it after `close`."""
        return self.bytes.view(self.dtype).reshape(self.shape)

    def extents(self) -> list[Extent]:
        """The runs of whole pages; the surface starts at the beginning of the first."""
        return self._extents(self._whole_pages())

    def flush_writes(self) -> None:
        """Nothing to do: the CPU's memory is coherent."""

    def _whole_pages(self) -> np.ndarray:
        self.require_open()
        assert self._pages is not None
        return self._pages

    def _free(self) -> None:
        self._pages = None
