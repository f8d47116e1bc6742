# SPDX-License-Identifier: BSD-2-Clause
"""The emulated GPU: where its memory lies, its kernels, and how long things live."""

import ctypes
import errno
import gc
import os

import numpy as np
import pytest

import peerdma
from peerdma.emulated.aperture import Aperture, _libc
from peerdma.emulated.gpu import INTEGRATED
from peerdma.memory.scatter import ScatterList
from tests.host.conftest import open_files

GIB = 1 << 30


def place(surface) -> ScatterList:
    """Where the surface's pages are on the bus."""
    extents = surface.extents()
    return ScatterList([e.bus_address for e in extents], [len(e.memory) for e in extents])


def aperture_mappings() -> int:
    with open("/proc/self/maps") as maps:
        return sum("peerdma-aperture" in line for line in maps)


def test_a_discrete_gpu_scatters_64_kib_pages_high_above_4_gib():
    with (
        peerdma.gpu("emulated", memory="device") as gpu,
        gpu.surface((1024, 1024), "u4") as surface,
    ):
        pages = place(surface)
        assert surface.path is peerdma.DataPath.PEER_TO_PEER
        assert gpu.name == "emulated discrete GPU"
    assert len(pages) > 50
    assert not (pages.addresses % np.uint64(65536)).any()
    assert pages.addresses.min() >= 0x38_0000_0000
    assert (np.diff(pages.addresses.astype(np.int64)) < 0).any()


def test_an_integrated_gpu_scatters_short_runs_on_both_sides_of_4_gib():
    with peerdma.gpu("emulated", memory="host") as gpu, gpu.surface((1024, 1024), "u4") as surface:
        pages = place(surface)
        assert surface.path is peerdma.DataPath.HOST_MEMORY
    assert not (pages.addresses % np.uint64(4096)).any()
    middle = gpu._aperture.base + 2 * GIB
    # The first GPU's; those of further ones follow above.
    assert INTEGRATED.base + 2 * GIB == 4 * GIB
    assert pages.addresses.min() < middle < pages.addresses.max()
    assert len(set(pages.lengths.tolist())) > 8


def test_gpus_do_not_share_bus_addresses():
    with peerdma.gpu("emulated") as one, peerdma.gpu("emulated") as other:
        with one.surface(65536) as a, other.surface(65536) as b:
            assert abs(int(place(a).addresses[0]) - int(place(b).addresses[0])) >= 65536
        assert repr(one) != repr(other)


def test_the_order_of_pages_is_repeatable():
    def first_pages():
        with peerdma.gpu("emulated") as gpu, gpu.surface(1 << 20) as surface:
            return place(surface).addresses.tolist()

    assert first_pages() == first_pages()


def test_memory_is_contiguous_to_the_program_and_scattered_in_the_file(emulated_gpu):
    with emulated_gpu.surface(300_001) as surface:
        surface.array[:] = np.arange(300_001) % 251
        at = 0
        for extent in surface.extents():
            raw = os.pread(extent.fd, len(extent.memory), extent.fd_offset)
            assert raw == bytes(extent.memory)
            expected = (np.arange(at, at + len(raw)) % 251)[: max(0, 300_001 - at)]
            assert raw[: len(expected)] == expected.astype(np.uint8).tobytes()
            at += len(raw)
        assert at >= 300_001


def test_freed_memory_comes_back_zeroed(emulated_gpu):
    with emulated_gpu.surface(1 << 20) as surface:
        surface.fill(1)
        first = place(surface)
    with emulated_gpu.surface(1 << 20) as surface:
        assert place(surface).addresses.tolist() == first.addresses.tolist()
        assert not surface.array.any()


def test_memory_runs_out_with_numbers(emulated_gpu):
    with pytest.raises(peerdma.PeerdmaError, match=rf"{5 * GIB} bytes .* {4 * GIB} of {4 * GIB}"):
        emulated_gpu.surface(5 * GIB)


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
    files, mappings = open_files(), aperture_mappings()
    gpu = peerdma.gpu("emulated")
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
    with pytest.raises(peerdma.PeerdmaError, match="emulated GPU is closed"):
        gpu.surface(4)
    assert "closed" in repr(gpu)
    assert "closed" in repr(surface)
    del view
    gc.collect()
    assert (open_files(), aperture_mappings()) == (files, mappings)


def test_too_many_mappings_is_an_error_that_leaves_nothing_behind(monkeypatch):
    """As if the kernel allowed 1000: reaching its own limit, often a million, takes minutes."""
    mmap, left = _libc.mmap, iter(range(1000))

    def limited(*arguments):
        if next(left, None) is None:
            ctypes.set_errno(errno.ENOMEM)
            return ctypes.c_void_p(-1).value
        return mmap(*arguments)

    gc.collect()
    before = aperture_mappings()
    aperture = Aperture(0, 1 << 24, 4096, 1, seed=0)
    with monkeypatch.context() as patch:
        patch.setattr(_libc, "mmap", limited)
        with pytest.raises(peerdma.PeerdmaError, match="max_map_count") as caught:
            aperture.allocate(1010 * 4096)
    assert caught.value.errno == errno.ENOMEM
    assert aperture_mappings() == before
    where, mapping = aperture.allocate(4096)
    assert where.nbytes == len(np.asarray(mapping))
    aperture.close()
