# SPDX-License-Identifier: BSD-2-Clause
"""On a real CUDA GPU: sizes, what CUDA really allows, and what it really refuses."""

import importlib
import os

import numpy as np
import pytest

import peerdma
from peerdma import testing
from peerdma.testing import pattern
from tests.host.conftest import simulated_path
from tests.host.cuda import libraries

LIBRARIES = libraries.present()
SIZES = [4096, 65_536, 1 << 20, 16 << 20, 256 << 20, 1 << 30]


@pytest.fixture(params=["device", "host"])
def cuda(request):
    """The GPU, with surfaces in each kind of memory."""
    with peerdma.gpu("cuda", memory=request.param) as gpu:
        yield gpu


@pytest.mark.parametrize("nbytes", SIZES)
def test_kernels_at_every_size(cuda, nbytes, seed):
    """One wrong word anywhere is found; the first and last words are numpy's."""
    random = np.random.default_rng(seed)
    with cuda.surface(nbytes) as one, cuda.surface(nbytes) as other:
        one.fill(seed)
        other.fill(seed)
        cuda.verify(one, seed=seed)
        testing.compare(one, other)
        piece = np.empty(4096, np.uint8)
        for start in (0, nbytes - 4096):
            one.copy_out(start, piece)
            assert (piece == pattern.fill_bytes(seed, start // 4, 4096)).all()
        for word in {0, nbytes // 4 - 1, *random.integers(0, nbytes // 4, 5).tolist()}:
            one.copy_out(4 * word, piece[:4])
            changed = piece[:4] ^ np.uint8(1)
            one.copy_in(4 * word, changed)
            for check in (lambda: cuda.verify(one, seed=seed), lambda: testing.compare(one, other)):
                with pytest.raises(peerdma.VerifyError) as caught:
                    check()
                assert (caught.value.offset, caught.value.wrong) == (4 * word, 1)
            assert testing.checksum(one) != testing.checksum(other)
            one.copy_in(4 * word, piece[:4])
        assert testing.checksum(one) == testing.checksum(other)
        if nbytes <= 16 << 20:
            assert testing.checksum(one) == pattern.checksum(one.get())


def test_word_offsets_have_64_bits():
    """A surface of more than 2^32 words, on both sides of that boundary."""
    nbytes, boundary = (16 << 30) + 4096, 1 << 32
    with peerdma.gpu("cuda", memory="device") as gpu, gpu.surface(nbytes) as surface:
        surface.fill(3)
        piece = np.empty(4096, np.uint8)
        surface.copy_out(4 * boundary - 2048, piece)
        assert (piece == pattern.fill_bytes(3, boundary - 512, 4096)).all()
        gpu.verify(surface, seed=3)
        piece[-1] ^= 4
        surface.copy_in(4 * boundary - 2048, piece)
        with pytest.raises(peerdma.VerifyError) as caught:
            gpu.verify(surface, seed=3)
        assert caught.value.offset == 4 * boundary + 2044


@pytest.mark.parametrize("nbytes", [4096, 65_536, 1 << 20])
def test_copies_through_the_simulated_board(board, cuda, nbytes):
    with cuda.surface(nbytes) as src, cuda.surface(nbytes) as dst:
        src.fill(1)
        dst.fill(2)
        with board.pin(src) as s, board.pin(dst) as d:
            transfer = board.copy(s, d)
            on_gpu = src.path is peerdma.DataPath.PEER_TO_PEER
            expected = simulated_path(s) if on_gpu else peerdma.DataPath.HOST_MEMORY
        cuda.verify(dst, seed=1)
        assert transfer.path == (expected, expected)


def test_dma_buf_is_a_file_of_the_memorys_length():
    with (
        peerdma.gpu("cuda", memory="device") as gpu,
        gpu.surface(100_000) as surface,
        surface.dmabuf() as exported,
    ):
        assert os.lseek(exported.fd, 0, os.SEEK_END) >= exported.offset + 100_000
        assert os.readlink(f"/proc/self/fd/{exported.fd}").startswith("/dmabuf")


def test_memory_that_runs_out_is_named():
    with peerdma.gpu("cuda", memory="device") as gpu:
        with pytest.raises(peerdma.CudaError, match=r"a surface of .* Close surfaces") as caught:
            gpu.surface(1 << 50)
        assert caught.value.name == "CUDA_ERROR_OUT_OF_MEMORY"
        gpu.surface(1 << 20).close()


def test_cuda_host_alloc_memory(monkeypatch):
    """As an integrated GPU has it."""
    with peerdma.gpu("cuda", memory="host") as gpu:
        attribute = gpu.device.attribute
        monkeypatch.setattr(
            gpu.device, "attribute", lambda name: name == "INTEGRATED" or attribute(name)
        )
        with gpu.surface(1 << 20) as surface:
            surface.fill(5)
            assert (surface.array == pattern.fill_bytes(5, 0, 1 << 20)).all()
            gpu.verify(surface, seed=5)
            surface.acquire()
            surface.release()


def managed_of_cupy(gpu):
    cupy = importlib.import_module("cupy")
    memory = cupy.cuda.malloc_managed(4096)
    return cupy.ndarray(1024, "f4", memory)


def pool_of_cupy(gpu):
    cupy = importlib.import_module("cupy")
    return cupy.ndarray(1024, "f4", cupy.cuda.malloc_async(4096))


REFUSED = {"managed": (managed_of_cupy, "managed memory"), "pool": (pool_of_cupy, "other devices")}


@pytest.mark.parametrize("kind", REFUSED if "cupy" in LIBRARIES else [])
def test_memory_no_board_can_reach_is_refused(kind):
    make, message = REFUSED[kind]
    gpu = peerdma.gpu("cuda", memory="device")
    with gpu, pytest.raises(peerdma.PinError, match=message):
        gpu.register(make(gpu))


@pytest.mark.parametrize("pinned", [False, True] if "torch" in LIBRARIES else [])
def test_tensors_of_the_cpu_are_registered(pinned):
    torch = importlib.import_module("torch")
    with peerdma.gpu("cuda", memory="host") as gpu:
        tensor = torch.zeros(5000, dtype=torch.uint8, pin_memory=pinned)
        with gpu.register(tensor) as surface:
            assert surface.path is peerdma.DataPath.HOST_MEMORY
            surface.fill(6)
            assert (tensor.numpy() == pattern.fill_bytes(6, 0, 5000)).all()
            surface.acquire()
            surface.release()
