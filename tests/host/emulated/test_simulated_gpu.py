# SPDX-License-Identifier: BSD-2-Clause
"""The simulated GPU of a guest, on a stand-in for its node; tests/system has it for real."""

import ctypes
import errno
import gc
import mmap
import os
import subprocess
from pathlib import Path

import pytest

import peerdma
from peerdma.emulated import simulated_gpu
from peerdma.emulated.simulated_gpu import Allocation, Export, Request
from tests.host.conftest import open_files
from tests.system.simgpu import Busy, Counts, GpuRequest, Revoke

HEADER = Path(__file__).resolve().parents[3] / "driver/testing/simgpu_uapi.h"
PAGE = 65536


class FakeNode:
    """A file for the memory, and what the module would answer.

    Attributes
    ----------
    allocated : dict of int to int
        Bytes of each allocation by its address.
    exports : bool
        Whether there are dma-bufs.
    """

    def __init__(self, path: Path):
        self.path = path
        self.allocated: dict[int, int] = {}
        self.exports = True
        self._next = PAGE
        path.touch()
        os.truncate(path, 1 << 20)

    def ioctl(self, fd: int, code: int, argument) -> None:
        assert os.path.samestat(os.fstat(fd), os.stat(self.path))
        if code == Request.ALLOC:
            if self._next + argument.size > 1 << 20:
                raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            argument.va = self._next
            self.allocated[argument.va] = argument.size
            self._next += -(-argument.size // PAGE) * PAGE
        elif code == Request.FREE:
            del self.allocated[argument.va]
        else:
            assert code == Request.EXPORT
            assert argument.va in self.allocated
            if not self.exports:
                raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
            argument.fd = os.dup(fd)


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A guest that has one; nothing may be left allocated."""
    node = FakeNode(tmp_path / "simgpu")
    # Memory of a device holds what was there before.
    node.path.write_bytes(b"\xa5" * (1 << 20))
    monkeypatch.setattr(simulated_gpu, "NODE", str(node.path))
    monkeypatch.setattr(simulated_gpu.fcntl, "ioctl", node.ioctl)
    before = open_files()
    yield node
    gc.collect()
    assert node.allocated == {}
    assert open_files() == before


def test_requests_are_the_headers(tmp_path):
    structures = {
        "simgpu_memory": Allocation,
        "simgpu_export": Export,
        **{f"simgpu_{each.__name__.lower()}": each for each in (Revoke, Counts, Busy)},
    }
    held = [f"sizeof(struct {tag}) == {ctypes.sizeof(s)}" for tag, s in structures.items()]
    for tag, structure in structures.items():
        for name, _ in structure._fields_:
            place = getattr(structure, name)
            held.append(f"offsetof(struct {tag}, {name}) == {place.offset}")
            held.append(f"sizeof(((struct {tag} *)0)->{name}) == {place.size}")
    # Classes have integers of Python's own since 3.13: __firstlineno__.
    public = [name for name in dir(GpuRequest) if not name.startswith("_")]
    codes = {name: code for name in public if isinstance(code := getattr(GpuRequest, name), int)}
    assert len(codes) == 6
    held += [f"SIMGPU_IOC_{name} == {code}u" for name, code in codes.items()]
    source = tmp_path / "check.c"
    source.write_text(
        f'#include <stddef.h>\n#include "{HEADER}"\n'
        + "".join(f'_Static_assert({each}, "{each}");\n' for each in held)
    )
    subprocess.run(["gcc", "-fsyntax-only", source], check=True)


def test_it_is_the_emulated_gpu_where_it_is(node):
    with peerdma.gpu("emulated") as gpu, gpu.surface((30, 40), "u4") as surface:
        assert (gpu.name, gpu.emulated) == ("simulated GPU", True)
        assert surface.on_gpu
        assert surface.path is peerdma.DataPath.PEER_TO_PEER
        assert node.allocated == {surface.address: 4800}
        assert not surface.get().any()
        surface.fill(3)
        gpu.verify(surface, seed=3)
        content = node.path.read_bytes()[surface.address :][:4800]
        assert content == surface.get().tobytes()
    with peerdma.gpu("emulated", memory="host") as gpu:
        assert gpu.name == "emulated integrated GPU"


def test_surfaces_outlive_the_gpu_and_arrays_the_surface(node):
    gpu = peerdma.gpu("emulated")
    surface = gpu.surface(100)
    gpu.close()
    gpu.close()
    with pytest.raises(peerdma.PeerdmaError, match="closed; open another"):
        gpu.surface(100)
    array = surface.array
    array[:] = 7
    surface.close()
    assert node.allocated == {}
    assert (array == 7).all()


def test_a_surface_that_is_forgotten_is_freed(node):
    with peerdma.gpu("emulated") as gpu:
        surface = gpu.surface(100)
        assert node.allocated
        del surface
        gc.collect()
        assert node.allocated == {}


def test_a_surface_without_bytes_takes_nothing(node):
    with peerdma.gpu("emulated") as gpu, gpu.surface((0, 3)) as surface:
        assert node.allocated == {}
        assert surface.get().shape == (0, 3)


def test_a_dma_buf_counts_as_a_pin(node):
    with peerdma.gpu("emulated") as gpu, gpu.surface(100) as surface:
        with surface.dmabuf() as exported:
            assert (exported.offset, exported.nbytes) == (0, 100)
            with pytest.raises(peerdma.PinError, match="pinned 1 times"):
                surface.close()
        node.exports = False
        with pytest.raises(peerdma.UnsupportedError, match="no_dmabuf=1"):
            surface.dmabuf()
    with pytest.raises(peerdma.PinError, match="closed"):
        surface.dmabuf()


def test_what_is_not_there_is_said(node, monkeypatch):
    with peerdma.gpu("emulated") as gpu, pytest.raises(peerdma.PeerdmaError, match="larger GPU"):
        gpu.surface(1 << 21)

    def fails(*_, **__):
        raise OSError(errno.ENOMEM, "no room")

    with peerdma.gpu("emulated") as gpu, monkeypatch.context() as broken:
        broken.setattr(mmap, "mmap", fails)
        with pytest.raises(OSError, match="no room"):
            gpu.surface(100)
    node.path.unlink()
    with pytest.raises(peerdma.GpuNotFound, match="Load the module simgpu"):
        simulated_gpu.SimulatedGpu()
