# SPDX-License-Identifier: BSD-2-Clause
"""Virtual memory management on a real GPU: arrays over several pieces of memory, and remapped."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

import peerdma
from peerdma.cuda.arrays import CudaArrays
from peerdma.cuda.gpu import CudaGpu
from peerdma.memory.external import describe
from tests.host.programs import HOST

#: Around the border between two pieces.
NBYTES = 4096


class Range:
    """Addresses in which pieces of memory are mapped, each of the size that CUDA maps at least."""

    def __init__(self, device, pieces=2):
        self.device, self.api = device, device.driver.api
        api = self.api
        self.properties = api.CUmemAllocationProp()
        self.properties.type = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        self.properties.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        self.properties.location.id = device.index
        self.properties.allocFlags.gpuDirectRDMACapable = 1
        smallest = api.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self.piece = self.call("cuMemGetAllocationGranularity", self.properties, smallest)
        self.nbytes = pieces * self.piece
        self.start = int(self.call("cuMemAddressReserve", 2 * self.nbytes, 0, 0, 0))
        self.handles = {}
        for number in range(pieces):
            self.map(number)

    def call(self, function, *arguments):
        with self.device.current():
            return self.device.driver.call(function, *arguments, action="test")

    def map(self, number):
        """Maps another piece, in place of what is there."""
        at = self.start + number * self.piece
        self.unmap(number)
        self.handles[number] = handle = self.call("cuMemCreate", self.piece, self.properties, 0)
        self.call("cuMemMap", at, self.piece, 0, handle, 0)
        access = self.api.CUmemAccessDesc()
        access.location = self.properties.location
        access.flags = self.api.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self.call("cuMemSetAccess", at, self.piece, [access], 1)
        with self.device.current():
            self.device.set_bytes(at, self.piece, 0)
            self.device.synchronize()

    def unmap(self, number):
        if number in self.handles:
            self.call("cuMemUnmap", self.start + number * self.piece, self.piece)
            self.call("cuMemRelease", self.handles.pop(number))

    def array(self, start, nbytes):
        return Array(self.start + start, nbytes)

    def content(self, start, nbytes):
        data = np.empty(nbytes, np.uint8)
        self.device.read(self.start + start, data.ctypes.data, nbytes)
        return data

    def close(self):
        for number in list(self.handles):
            self.unmap(number)
        self.call("cuMemAddressFree", self.start, 2 * self.nbytes)


class Array:
    """By ``__cuda_array_interface__``."""

    def __init__(self, address, nbytes):
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


@pytest.fixture
def gpu():
    with CudaGpu(0) as gpu:
        yield gpu


@pytest.fixture
def mapped(gpu):
    found = Range(gpu.device)
    yield found
    found.close()


@pytest.fixture
def board():
    with peerdma.open("sim") as board:
        yield board


def test_an_array_over_two_pieces(board, gpu, mapped):
    source = np.random.default_rng(1).integers(1, 256, NBYTES, np.uint8)
    start = mapped.piece - NBYTES // 2
    array = mapped.array(start, NBYTES)
    board.copy(source, array)
    assert (mapped.content(start, NBYTES) == source).all()
    with board.pin(mapped.array(0, mapped.nbytes)) as pin:
        back = np.zeros(NBYTES, np.uint8)
        board.copy(pin[start : start + NBYTES], back)
    assert (back == source).all()
    with gpu.register(array) as surface:
        assert (surface.get() == source).all()
        board.copy(surface, back)


def test_one_dma_buf_is_of_all_pieces(mapped):
    if not mapped.device.attribute("DMA_BUF_SUPPORTED"):
        pytest.skip("this GPU exports no dma-bufs")
    arrays = CudaArrays()
    array = describe(mapped.array(100, mapped.nbytes - 200), ordered=False)
    memory = arrays.memory(array, None)
    assert len(memory.parts) == 2
    with memory.dmabuf() as exported:
        assert (exported.offset, exported.nbytes) == (100, mapped.nbytes - 200)
    arrays.close()


def test_a_range_that_is_mapped_in_part_is_refused(board, gpu, mapped):
    for ask in (board.pin, gpu.register, board.read):
        with pytest.raises(peerdma.PinError, match="nothing is mapped at"):
            ask(mapped.array(0, mapped.nbytes + NBYTES))


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("again", [False, True], ids=["unmapped", "remapped"])
def test_a_piece_that_is_replaced(board, mapped, number, again):
    start = mapped.piece - NBYTES // 2
    plan = board.prepare(np.ones(NBYTES, np.uint8), mapped.array(start, NBYTES))
    with board.pin(mapped.array(0, mapped.nbytes)) as pin:
        plan.run()
        mapped.unmap(number)
        if again:
            mapped.map(number)
        for call in (plan.run, lambda: board.copy(np.ones(9, np.uint8), pin[start : start + 9])):
            with pytest.raises(peerdma.PinError, match="has moved since"):
                call()
        if again:
            half = start if number == 0 else mapped.piece
            assert not mapped.content(half, NBYTES // 2).any()
            board.copy(np.full(NBYTES, 3, np.uint8), mapped.array(start, NBYTES))
            assert (mapped.content(start, NBYTES) == 3).all()


def test_time_to_find_out_that_nothing_has_moved(board, gpu):
    """What docs/arrays.md says; printed by pytest -s."""
    with gpu.surface(NBYTES) as surface:
        arrays = {"interface": Array(surface.device_address, NBYTES)}
        arrays["numpy"] = np.zeros(NBYTES, np.uint8)
        torch = pytest.importorskip("torch")
        arrays["torch, host"] = torch.zeros(NBYTES, dtype=torch.uint8)
        arrays["torch, GPU"] = torch.zeros(NBYTES, dtype=torch.uint8, device="cuda")
        for name, array in arrays.items():
            plan = board.prepare(array, np.zeros(NBYTES, np.uint8))
            origin = next(lease.origin for lease in plan.leases)
            took = []
            for _ in range(20):
                began = time.perf_counter()
                for _ in range(1000):
                    origin.require_unmoved()
                took.append((time.perf_counter() - began) / 1000)
            print(f"{name}: {min(took) * 1e6:.2f} us")
            assert min(took) < 10e-6


_SEGMENTS = """
import numpy as np, peerdma, torch
one = torch.zeros(48 << 20, dtype=torch.uint8, device="cuda")
with peerdma.open("sim") as board:
    source = np.arange(8192).astype(np.uint8)
    for start in (0, (20 << 20) - 4096, (40 << 20) - 1, (48 << 20) - 8192):
        part = one[start : start + 8192]
        board.copy(source, part)
        assert (part.cpu().numpy() == source).all(), start
        back = np.zeros(8192, np.uint8)
        board.copy(part, back)
        assert (back == source).all(), start
    plan = board.prepare(source, one[:8192])
    with board.pin(one) as pin:
        board.copy(source, pin[(20 << 20) - 10 : (20 << 20) + 8182])
        plan.run()
        one.untyped_storage().resize_(0)
        torch.cuda.empty_cache()
        other = torch.zeros(48 << 20, dtype=torch.uint8, device="cuda")
        for call in (plan.run, lambda: board.copy(source, pin[:8192])):
            try:
                call()
            except peerdma.PinError as error:
                print("refused:", "has moved" in str(error))
        assert not other.any().item()
"""


def test_expandable_segments_of_pytorch():
    pytest.importorskip("torch")
    extra = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    paths = os.pathsep.join([str(HOST), os.environ.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, "-c", _SEGMENTS],
        env={**os.environ, **extra, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split("\n")[:2] == ["refused: True"] * 2
