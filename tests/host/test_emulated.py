# SPDX-License-Identifier: BSD-2-Clause
"""The emulated GPU: where its memory lies, its kernels, and how long things live."""

import gc
import os

import numpy as np
import pytest

import peerdma
from peerdma import pattern
from peerdma.aperture import Aperture
from peerdma.scatter import ScatterList

GIB = 1 << 30


def place(surface) -> ScatterList:
    """Where the surface's pages are on the bus."""
    extents = surface.extents()
    return ScatterList([e.bus_address for e in extents], [len(e.memory) for e in extents])


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def aperture_mappings() -> int:
    with open("/proc/self/maps") as maps:
        return sum("peerdma-aperture" in line for line in maps)


def test_a_discrete_gpu_scatters_64_kib_pages_high_above_4_gib():
    with peerdma.gpu(memory="device") as gpu, gpu.surface((1024, 1024), "u4") as surface:
        pages = place(surface)
        assert surface.path is peerdma.Path.PEER_TO_PEER
        assert gpu.name == "emulated discrete GPU"
    assert len(pages) > 50
    assert not (pages.addresses % np.uint64(65536)).any()
    assert pages.addresses.min() >= 0x38_0000_0000
    assert (np.diff(pages.addresses.astype(np.int64)) < 0).any()


def test_an_integrated_gpu_scatters_short_runs_on_both_sides_of_4_gib():
    with peerdma.gpu(memory="host") as gpu, gpu.surface((1024, 1024), "u4") as surface:
        pages = place(surface)
        assert surface.path is peerdma.Path.HOST_MEMORY
    assert not (pages.addresses % np.uint64(4096)).any()
    assert pages.addresses.min() < 1 << 32 < pages.addresses.max()
    assert len(set(pages.lengths.tolist())) > 8


def test_gpus_do_not_share_bus_addresses():
    with peerdma.gpu() as one, peerdma.gpu() as other:
        with one.surface(65536) as a, other.surface(65536) as b:
            assert abs(int(place(a).addresses[0]) - int(place(b).addresses[0])) >= 65536
        assert repr(one) != repr(other)


def test_the_order_of_pages_is_repeatable():
    def first_pages():
        with peerdma.gpu() as gpu, gpu.surface(1 << 20) as surface:
            return place(surface).addresses.tolist()

    assert first_pages() == first_pages()


def test_memory_is_contiguous_to_the_program_and_scattered_in_the_file(gpu):
    with gpu.surface(300_001) as surface:
        surface.array[:] = np.arange(300_001) % 251
        at = 0
        for extent in surface.extents():
            raw = os.pread(extent.fd, len(extent.memory), extent.fd_offset)
            assert raw == bytes(extent.memory)
            expected = (np.arange(at, at + len(raw)) % 251)[: max(0, 300_001 - at)]
            assert raw[: len(expected)] == expected.astype(np.uint8).tobytes()
            at += len(raw)
        assert at >= 300_001


@pytest.mark.parametrize(
    ("shape", "dtype", "nbytes"),
    [(7, "u1", 7), ((3, 5), "f4", 60), ((), "f8", 8), ((4, 0), "u4", 0), (0, "u1", 0)],
)
def test_surfaces_are_arrays(gpu, shape, dtype, nbytes):
    with gpu.surface(shape, dtype) as surface:
        assert surface.nbytes == nbytes
        assert surface.array.shape == surface.shape
        assert surface.array.dtype == np.dtype(dtype)
        surface.array[...] = 3
        assert (np.asarray(surface) == 3).all()
        assert np.asarray(surface, dtype="f8").dtype == np.float64
        assert len(place(surface)) == (1 if nbytes else 0)
        surface.fill(5)
        gpu.verify(surface, seed=5)


@pytest.mark.parametrize("shape", [-1, (4, -4)])
def test_dimensions_are_not_negative(gpu, shape):
    with pytest.raises(ValueError, match="dimensions are 0 or more"):
        gpu.surface(shape)


def test_objects_are_no_data(gpu):
    with pytest.raises(ValueError, match="plain data"):
        gpu.surface(4, object)


@pytest.mark.parametrize("nbytes", [1, 3, 4, 4097, 262_144, 300_003])
def test_fill_is_the_pattern_and_verify_finds_the_first_wrong_word(gpu, nbytes, seed):
    random = np.random.default_rng(seed)
    with gpu.surface(nbytes) as surface:
        surface.fill(9)
        assert (surface.array == pattern.fill_bytes(9, 0, nbytes)).all()
        gpu.verify(surface, seed=9)
        wrong = sorted(set(random.integers(0, nbytes, 3).tolist()))
        surface.array[wrong] ^= 0x40
        with pytest.raises(peerdma.VerifyError) as caught:
            gpu.verify(surface, seed=9)
        error = caught.value
        assert error.offset == wrong[0] // 4 * 4
        assert error.wrong == len({index // 4 for index in wrong})
        found = pattern.as_words(surface.array.copy())[error.offset // 4]
        expected = pattern.as_words(pattern.fill_bytes(9, 0, nbytes))[error.offset // 4]
        assert (error.expected, error.found) == (expected, found)
        assert f"byte offset {error.offset:#x}" in str(error)
        assert f"expected {expected:#010x}, found {found:#010x}" in str(error)


def test_verify_names_the_element(gpu):
    with gpu.surface((10, 20), "u4") as surface:
        surface.fill(1)
        surface.array[3, 7] += 1
        with pytest.raises(peerdma.VerifyError, match=r"number 67, byte offset 0x10c, .*\(3, 7\)"):
            gpu.verify(surface, seed=1)


def test_compare_and_checksum(gpu):
    with gpu.surface(100_001) as one, gpu.surface(100_001) as other:
        one.fill(1)
        other.fill(1)
        gpu.compare(one, other)
        assert gpu.checksum(one) == gpu.checksum(other) == pattern.checksum(one.array)
        other.array[-1] ^= 1
        assert gpu.checksum(one) != gpu.checksum(other)
        with pytest.raises(peerdma.VerifyError, match="1 of 25001 words differ"):
            gpu.compare(one, other)
    one, other = gpu.surface(3), gpu.surface(4)
    with pytest.raises(ValueError, match="3 bytes with one of 4"):
        gpu.compare(one, other)


def test_kernels_want_their_own_gpus_surfaces(gpu):
    surface = peerdma.gpu().surface(4)
    with pytest.raises(ValueError, match="is not a surface of <EmulatedGpu"):
        gpu.verify(surface, seed=1)


def test_freed_memory_comes_back_zeroed(gpu):
    with gpu.surface(1 << 20) as surface:
        surface.fill(1)
        first = place(surface)
    with gpu.surface(1 << 20) as surface:
        assert place(surface).addresses.tolist() == first.addresses.tolist()
        assert not surface.array.any()


def test_memory_runs_out_with_numbers(gpu):
    with pytest.raises(peerdma.PeerdmaError, match=rf"{5 * GIB} bytes .* {4 * GIB} of {4 * GIB}"):
        gpu.surface(5 * GIB)


def test_allocations_never_overlap(seed):
    """Random allocations and frees in a small aperture."""
    random = np.random.default_rng(seed)
    aperture = Aperture(1 << 40, 64 * 4096, 4096, 4, seed=1)
    live: list[tuple[set[int], np.ndarray]] = []
    for step in range(200):
        try:
            where, mapping = aperture.allocate(int(random.integers(1, 12)) * 4096)
        except peerdma.PeerdmaError:
            live.pop(int(random.integers(len(live))))
            continue
        pieces = zip(where.addresses.tolist(), where.lengths.tolist(), strict=True)
        pages = {page for start, length in pieces for page in range(start, start + length, 4096)}
        assert not any(pages & others for others, _ in live)
        data = np.asarray(mapping)
        assert not data.any()
        data[:] = step % 255 + 1
        live.append((pages, data))
        assert all(len(set(d[::512].tolist())) == 1 for _, d in live)
    aperture.close()


def test_arrays_outlive_surfaces_and_nothing_leaks():
    gc.collect()
    files, mappings = open_files(), aperture_mappings()
    gpu = peerdma.gpu()
    surface = gpu.surface(1 << 20, "u1")
    view = surface.array[5:100]
    surface.fill(1)
    expected = view.copy()
    surface.close()
    surface.close()
    gpu.close()
    gpu.close()
    assert (view == expected).all()
    assert aperture_mappings() > mappings
    with pytest.raises(peerdma.PinError, match="closed; make a new one"):
        _ = surface.array
    with pytest.raises(peerdma.PeerdmaError, match="emulated GPU that is closed"):
        gpu.surface(4)
    assert "closed" in repr(gpu)
    assert "closed" in repr(surface)
    del view
    gc.collect()
    assert (open_files(), aperture_mappings()) == (files, mappings)


def test_too_many_mappings_is_an_error_that_leaves_nothing_behind():
    """More pages than the kernel allows mappings."""
    with open("/proc/sys/vm/max_map_count") as limit:
        pages = int(limit.read()) + 10
    gc.collect()
    before = aperture_mappings()
    aperture = Aperture(0, 2 * pages * 4096, 4096, 1, seed=0)
    with pytest.raises(peerdma.PeerdmaError, match="max_map_count") as caught:
        aperture.allocate(pages * 4096)
    assert caught.value.errno
    assert aperture_mappings() == before
    where, mapping = aperture.allocate(4096)
    assert where.nbytes == len(np.asarray(mapping))
    aperture.close()


@pytest.mark.parametrize(
    ("kind", "memory", "message"),
    [("amd", "auto", "one of auto, emulated, cuda, not 'amd'"), ("auto", "x", "memory is one of")],
)
def test_only_known_gpus_can_be_asked_for(kind, memory, message):
    with pytest.raises(ValueError, match=message):
        peerdma.gpu(kind, memory=memory)


def test_cuda_is_not_in_this_version():
    with pytest.raises(peerdma.UnsupportedError, match="only the emulated GPU"):
        peerdma.gpu("cuda")
