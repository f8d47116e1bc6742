# SPDX-License-Identifier: BSD-2-Clause
"""Virtual memory management of the stand-in for CUDA: pieces of memory, each a file."""

# ruff: noqa: N802 - the names are CUDA's

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
from types import SimpleNamespace

_GRAIN = 2 << 20
_FIXED, _NORESERVE = 0x10, 0x4000
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def _mmap(address: int | None, nbytes: int, fd: int = -1) -> int:
    """Maps a file, or reserves addresses."""
    protection, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED
    if fd < 0:
        protection, flags = 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    flags |= _FIXED if address else 0
    at = _libc.mmap(address, nbytes, protection, flags, fd, 0)
    assert at not in (None, ctypes.c_void_p(-1).value), os.strerror(ctypes.get_errno())
    return at


class Piece:
    """Memory that a handle means: a file, and how many handles and mappings there are."""

    def __init__(self, nbytes: int, properties):
        self.nbytes = nbytes
        self.properties = properties
        self.fd = os.memfd_create("fake-gpu-memory", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, nbytes)
        os.pwrite(self.fd, b"\xcc" * nbytes, 0)
        self.users = 0

    def release(self) -> None:
        self.users -= 1
        if not self.users:
            os.close(self.fd)


class FakeVirtual:
    """A part of `FakeCuda`."""

    _handles: itertools.count

    CUmemAllocationType = SimpleNamespace(CU_MEM_ALLOCATION_TYPE_PINNED=1)
    CUmemAllocationHandleType = SimpleNamespace(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR=1)
    CUmemLocationType = SimpleNamespace(CU_MEM_LOCATION_TYPE_DEVICE=1)
    CUmemAccess_flags = SimpleNamespace(CU_MEM_ACCESS_FLAGS_PROT_READWRITE=3)
    CUmemAllocationGranularity_flags = SimpleNamespace(CU_MEM_ALLOC_GRANULARITY_MINIMUM=0)
    CUmemLocation = CUmemAccessDesc = SimpleNamespace

    def __init__(self):
        super().__init__()
        #: what is mapped: bytes and attributes, by address
        self.mapped: dict[int, tuple[int, dict]] = {}
        self.handles: dict[int, Piece] = {}
        self.reserved: dict[int, tuple[int, int]] = {}

    @staticmethod
    def CUmemAllocationProp():
        """A structure, as the bindings make it."""
        return SimpleNamespace(allocFlags=SimpleNamespace())

    def map(self, address: int, nbytes: int, **kind) -> dict:
        """Maps a piece of memory by virtual memory management; its attributes."""
        self.unmap(address, nbytes)
        found = {
            "MEMORY_TYPE": 2,
            "IS_GPU_DIRECT_RDMA_CAPABLE": 1,
            "RANGE_START_ADDR": address,
            "RANGE_SIZE": nbytes,
            "BUFFER_ID": next(self._handles),
            "UNORDERED": True,
            **kind,
        }
        self.mapped[address] = nbytes, found
        return found

    def unmap(self, address: int, nbytes: int) -> None:
        """Takes away what is mapped in a range."""
        for at in [at for at in self.mapped if address <= at < address + nbytes]:
            _, kind = self.mapped.pop(at)
            if "PIECE" in kind:
                kind["PIECE"].release()

    def _handle(self, piece: Piece) -> int:
        piece.users += 1
        self.handles[handle := next(self._handles)] = piece
        return handle

    def _cuMemGetAllocationGranularity(self, properties, option):
        assert properties.location.type == 1 and option == 0
        return _GRAIN

    def _cuMemCreate(self, nbytes, properties, flags):
        assert nbytes and nbytes % _GRAIN == 0 and flags == 0
        assert properties.type == 1 and properties.requestedHandleTypes == 1
        assert properties.allocFlags.gpuDirectRDMACapable == 1
        return self._handle(Piece(nbytes, properties))

    def _cuMemRelease(self, handle):
        self.handles.pop(handle).release()

    def _cuMemAddressReserve(self, nbytes, alignment, address, flags):
        raw = _mmap(None, nbytes + _GRAIN)
        at = raw + -raw % _GRAIN
        self.reserved[at] = raw, nbytes + _GRAIN
        return at

    def _cuMemAddressFree(self, address, nbytes):
        raw, whole = self.reserved.pop(address)
        assert address not in self.mapped and raw + whole >= address + nbytes
        _libc.munmap(raw, whole)

    def _cuMemMap(self, address, nbytes, offset, handle, flags):
        piece = self.handles[handle]
        assert (offset, flags, piece.nbytes) == (0, 0, nbytes)
        _mmap(address, nbytes, piece.fd)
        piece.users += 1
        self.map(address, nbytes, PIECE=piece, DEVICE=piece.properties.location.id)

    def _cuMemUnmap(self, address, nbytes):
        _mmap(address, nbytes)
        self.unmap(address, nbytes)

    def _cuMemSetAccess(self, address, nbytes, access, count):
        assert count == len(access) == 1 and access[0].flags == 3 and address in self.mapped

    def _cuMemRetainAllocationHandle(self, address):
        piece = (self._kind(address) or {}).get("PIECE")
        return self._handle(piece) if piece else self.CUresult("CUDA_ERROR_INVALID_VALUE")

    def _cuMemGetAllocationPropertiesFromHandle(self, handle):
        return self.handles[handle].properties

    def _cuMemExportToShareableHandle(self, handle, kind, flags):
        assert (kind, flags) == (1, 0)
        return os.dup(self.handles[handle].fd)
