# SPDX-License-Identifier: BSD-2-Clause
"""What every GPU does alike: arrays, kernels, and how they are asked for."""

import numpy as np
import pytest

import peerdma
from peerdma import testing
from peerdma.testing import pattern
from tests.host.conftest import CUDA

SIZES = [1, 3, 4, 5, 15, 16, 17, 4097, 262_144, 300_003]


@pytest.mark.parametrize(
    ("shape", "dtype", "nbytes"),
    [(7, "u1", 7), ((3, 5), "f4", 60), ((), "f8", 8), ((4, 0), "u4", 0), (0, "u1", 0)],
)
def test_surfaces_are_arrays(every_gpu, shape, dtype, nbytes):
    with every_gpu.surface(shape, dtype) as surface:
        assert surface.nbytes == nbytes
        assert not surface.get().any()
        surface.set(3)
        found = surface.get()
        assert (found == 3).all()
        assert found.shape == surface.shape
        assert found.dtype == np.dtype(dtype)
        assert sum(len(extent.memory) for extent in surface.extents()) >= nbytes
        surface.fill(5)
        every_gpu.verify(surface, seed=5)


def test_arrays_are_put_in_and_got_back(every_gpu, seed):
    random = np.random.default_rng(seed)
    content = random.integers(0, 1 << 32, (30, 40), np.uint32)
    with every_gpu.surface((30, 40), "u4") as surface:
        surface.set(content)
        assert (surface.get() == content).all()
        surface.set(content[:1])
        assert (surface.get() == content[0]).all()
        with pytest.raises(ValueError, match="broadcast"):
            surface.set(content[:, :39])
        piece = np.empty(7, np.uint8)
        surface.copy_in(13, np.arange(7, dtype=np.uint8))
        surface.copy_out(13, piece)
        assert piece.tolist() == list(range(7))


def test_numpy_sees_memory_that_the_cpu_reaches(every_gpu):
    surface = every_gpu.surface((10, 20), "u4")
    if every_gpu.emulated or surface.path is peerdma.DataPath.HOST_MEMORY:
        surface.array[3, 7] = 5
        assert surface.get()[3, 7] == 5
        assert np.asarray(surface)[3, 7] == 5
        assert np.asarray(surface, dtype="f8").dtype == np.float64
        assert np.from_dlpack(surface)[3, 7] == 5
    else:
        with pytest.raises(peerdma.UnsupportedError, match=r"the CPU cannot access.* get\(\)"):
            _ = surface.array
        with pytest.raises(peerdma.UnsupportedError, match="the CPU cannot access"):
            np.asarray(surface)


@pytest.mark.parametrize("shape", [-1, (4, -4)])
def test_dimensions_are_not_negative(every_gpu, shape):
    with pytest.raises(ValueError, match="dimensions are 0 or more"):
        every_gpu.surface(shape)


def test_emulated_memory_is_named_once():
    for memory, name in (("host", "host memory"), ("device", "peer-to-peer memory")):
        with peerdma.gpu("emulated", memory=memory) as gpu:
            assert gpu.memory == f"emulated {name}"


def test_objects_are_no_data(every_gpu):
    with pytest.raises(ValueError, match="plain data"):
        every_gpu.surface(4, object)


@pytest.mark.parametrize("nbytes", SIZES)
def test_fill_is_the_pattern_and_verify_finds_the_first_wrong_word(every_gpu, nbytes, seed):
    random = np.random.default_rng(seed)
    with every_gpu.surface(nbytes) as surface:
        surface.fill(9)
        content = surface.get()
        assert (content == pattern.fill_bytes(9, 0, nbytes)).all()
        every_gpu.verify(surface, seed=9)
        wrong = sorted(set(random.integers(0, nbytes, 3).tolist()))
        content[wrong] ^= 0x40
        surface.set(content)
        with pytest.raises(peerdma.VerifyError) as caught:
            every_gpu.verify(surface, seed=9)
        error = caught.value
        assert error.offset == wrong[0] // 4 * 4
        assert error.wrong == len({index // 4 for index in wrong})
        found = pattern.as_words(content)[error.offset // 4]
        expected = pattern.as_words(pattern.fill_bytes(9, 0, nbytes))[error.offset // 4]
        assert (error.expected, error.found) == (expected, found)
        assert f"byte offset {error.offset:#x}" in str(error)
        assert f"expected {expected:#010x}, found {found:#010x}" in str(error)


def test_verify_names_the_element(every_gpu):
    with every_gpu.surface((10, 20), "u4") as surface:
        surface.fill(1)
        content = surface.get()
        content[3, 7] += 1
        surface.set(content)
        with pytest.raises(peerdma.VerifyError, match=r"number 67, byte offset 0x10c, .*\(3, 7\)"):
            every_gpu.verify(surface, seed=1)


def test_seeds_fit_32_bits(every_gpu):
    with every_gpu.surface(8) as surface:
        for seed in (-1, 1 << 32):
            with pytest.raises(ValueError, match="a seed is 0 to"):
                surface.fill(seed)
            with pytest.raises(ValueError, match="a seed is 0 to"):
                every_gpu.verify(surface, seed=seed)


@pytest.mark.parametrize("nbytes", SIZES)
def test_compare_and_checksum(every_gpu, nbytes):
    with every_gpu.surface(nbytes) as one, every_gpu.surface(nbytes) as other:
        one.fill(1)
        other.fill(1)
        testing.compare(one, other)
        wanted = pattern.checksum(one.get())
        assert testing.checksum(one) == testing.checksum(other) == wanted
        content = other.get()
        content[-1] ^= 1
        other.set(content)
        assert testing.checksum(one) != testing.checksum(other)
        total = -(-nbytes // 4)
        with pytest.raises(peerdma.VerifyError, match=f"1 of {total} words differ") as caught:
            testing.compare(one, other)
        assert caught.value.offset == (nbytes - 1) // 4 * 4
    one, other = every_gpu.surface(3), every_gpu.surface(4)
    with pytest.raises(ValueError, match="3 bytes with one of 4"):
        testing.compare(one, other)


@pytest.mark.parametrize("start", [0, 1, 4, 16, 5])
def test_registered_arrays_are_surfaces_at_any_address(every_gpu, start):
    """Kernels on memory that is aligned for vectors, for words, or not at all."""
    array = np.zeros(10_016, np.uint8)[start : start + 10_000]
    with every_gpu.register(array) as surface:
        assert surface.path is peerdma.DataPath.HOST_MEMORY
        surface.fill(3)
        assert (array == pattern.fill_bytes(3, 0, 10_000)).all()
        every_gpu.verify(surface, seed=3)
        assert testing.checksum(surface) == pattern.checksum(array)
        array[9_999] ^= 1
        with pytest.raises(peerdma.VerifyError) as caught:
            every_gpu.verify(surface, seed=3)
        assert caught.value.offset == 9_996


def test_registered_arrays_keep_shape_and_type(every_gpu):
    array = np.arange(12, dtype="f4").reshape(3, 4)
    with every_gpu.register(array) as surface:
        assert (surface.shape, surface.dtype) == ((3, 4), np.float32)
        surface.set(7)
    assert (array == 7).all()
    with every_gpu.register(np.empty((0, 3))) as surface:
        assert surface.nbytes == 0
        assert not surface.extents()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        ([1, 2], "cannot register a list, which is no array; give an array of numpy"),
        (np.arange(10)[::2], r"shape \(5,\) and strides .* one contiguous piece"),
        (np.array([object()]), "one contiguous piece of plain data"),
        (np.broadcast_to(np.uint8(1), 10), "one contiguous piece"),
        (np.frombuffer(b"read only", np.uint8), "read-only"),
    ],
    ids=["list", "strided", "objects", "broadcast", "read-only"],
)
def test_what_cannot_be_registered_is_refused_by_name(every_gpu, array, message):
    with pytest.raises(peerdma.PinError, match=message):
        every_gpu.register(array)


def test_kernels_want_their_own_gpus_surfaces(every_gpu):
    surface = peerdma.gpu("emulated").surface(4)
    with pytest.raises(ValueError, match="is not a surface of <"):
        every_gpu.verify(surface, seed=1)


def test_a_closed_surface_is_refused(every_gpu):
    surface = every_gpu.surface(100)
    surface.close()
    surface.close()
    for use in (surface.get, lambda: surface.fill(1), surface.extents, surface.acquire):
        with pytest.raises(peerdma.PinError, match="closed; make a new one"):
            use()
    assert "closed" in repr(surface)


def test_a_pinned_surface_stays_open(every_gpu):
    surface = every_gpu.surface(100)
    surface.acquire()
    with pytest.raises(peerdma.PinError, match="pinned 1 times"):
        surface.close()
    surface.release()
    surface.close()


def test_a_closed_gpu_makes_no_surfaces(every_gpu):
    with every_gpu.surface(10) as surface:
        every_gpu.close()
        every_gpu.close()
        assert "closed" in repr(every_gpu)
        surface.set(4)
        assert (surface.get() == 4).all()
        with pytest.raises(peerdma.PeerdmaError, match="closed; open another"):
            every_gpu.surface(10)


def test_synchronize_waits_for_nothing_when_there_is_nothing(every_gpu):
    every_gpu.synchronize()


@pytest.mark.parametrize(
    ("kind", "memory", "message"),
    [
        ("amd", "auto", "one of auto, emulated, cuda, cuda:N, not 'amd'"),
        ("cuda:x", "auto", "one of auto, emulated, cuda, cuda:N, not 'cuda:x'"),
        ("auto", "x", "memory is one of"),
    ],
)
def test_only_known_gpus_can_be_asked_for(kind, memory, message):
    with pytest.raises(ValueError, match=message):
        peerdma.gpu(kind, memory=memory)


def test_auto_is_cuda_where_there_is_one_and_says_what_it_is():
    with peerdma.gpu() as gpu:
        assert gpu.emulated == (not CUDA)
        if gpu.emulated:
            assert gpu.memory.startswith("emulated peer-to-peer memory; no CUDA: this machine")
        else:
            assert gpu.memory.startswith(("GPU memory: ", "host memory: "))
