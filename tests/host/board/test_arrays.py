# SPDX-License-Identifier: BSD-2-Clause
"""Arrays of any library as arguments of transfers: pinned, kept, and never taken for another."""

import array
import ctypes
import gc
import mmap
import os
import re

import numpy as np
import pytest

import peerdma
from peerdma.board import arrays
from tests.host.programs import ROOT

NBYTES = 5000


def random_bytes(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 256, NBYTES, np.uint8)


@pytest.fixture(params=["board", "node_board"], ids=["simulated", "kernel"])
def any_board(request):
    """A board on each backend."""
    return request.getfixturevalue(request.param)


# Of the host --------------------------------------------------------------------------------


def of_numpy(content):
    return content.copy()


def of_dlpack(content):
    class Tensor:
        """As PyTorch's of the CPU: it has DLPack, and no buffer."""

        def __init__(self):
            self.content = content.copy()

        def __dlpack_device__(self):
            return self.content.__dlpack_device__()

        def __dlpack__(self, *, stream, max_version):
            assert stream is None
            return self.content.__dlpack__(max_version=max_version)

    return Tensor()


def of_ctypes(content):
    return (ctypes.c_uint8 * NBYTES)(*content.tolist())


def of_mmap(content):
    pages = mmap.mmap(-1, NBYTES)
    pages[:] = content.tobytes()
    return pages


HOST = {
    "numpy": of_numpy,
    "dlpack": of_dlpack,
    "bytearray": bytearray,
    "array": lambda content: array.array("B", content.tobytes()),
    "memoryview": lambda content: memoryview(bytearray(content)),
    "ctypes": of_ctypes,
    "mmap": of_mmap,
}


def content_of(thing) -> np.ndarray:
    return np.asarray(thing.content if hasattr(thing, "content") else memoryview(thing)).copy()


@pytest.mark.parametrize("kind", HOST)
def test_arrays_of_the_host_are_arguments(any_board, kind):
    content = random_bytes()
    source, target, again = (HOST[kind](each) for each in (content, content * 0, content * 0))
    transfer = any_board.copy(source, target)
    assert transfer.bytes == NBYTES and transfer.path.to_board is not None
    any_board.write(source, 64)
    any_board.read(again, 64)
    for each in (target, again):
        assert (content_of(each) == content).all()
    job = any_board.submit(target, again)
    assert job.result(60).bytes == NBYTES


def test_bytes_are_a_source_only(any_board):
    target = bytearray(5)
    any_board.copy(b"bytes", target)
    assert target == b"bytes"
    for ask in (
        lambda: any_board.copy(target, b"12345"),
        lambda: any_board.read(b"12345"),
        lambda: any_board.prepare(target, memoryview(b"12345")),
    ):
        with pytest.raises(peerdma.PinError, match="memory is read-only; nothing was transferred"):
            ask()


def test_a_sequence_of_arrays_is_one_memory(any_board):
    content = random_bytes()
    target = np.zeros(NBYTES, np.uint8)
    with any_board.pin(content) as pin:
        sources = [pin[:100], content[100:200], bytes(content[200:])]
        any_board.copy(sources, [target[:7], target[7:]])
    assert (target == content).all()


def test_overlapping_arrays_are_refused(any_board):
    content = random_bytes()
    with pytest.raises(peerdma.TransferError, match="source and destination overlap"):
        any_board.copy(content[:200], content[100:300])


def test_arrays_that_are_not_contiguous_are_refused_with_advice_that_loses_nothing(any_board):
    wide = np.zeros((10, 10), np.uint8)
    ones = np.ones((10, 5), np.uint8)
    strided = wide[:, ::2]
    for ask in (lambda: any_board.copy(ones, strided), lambda: any_board.read(strided)):
        with pytest.raises(
            peerdma.PinError, match=r"one contiguous piece .*array\[\.\.\.\] = cont"
        ):
            ask()
    # As it says.
    contiguous = np.empty((10, 5), np.uint8)
    any_board.copy(ones, contiguous)
    wide[:, ::2] = contiguous
    assert wide.sum() == 50


def test_a_surface_is_an_argument_and_can_be_closed_afterwards(any_board, emulated_gpu):
    with emulated_gpu.surface(NBYTES) as source, emulated_gpu.surface(NBYTES) as target:
        source.fill(3)
        any_board.copy(source, target)
        emulated_gpu.verify(target, seed=3)
    with pytest.raises(peerdma.PinError, match="surface is closed"):
        any_board.copy(source, np.zeros(NBYTES, np.uint8))


def test_the_documentation(any_board):
    """What docs/arrays.md shows, as it is there."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/arrays.md").read_text(), re.DOTALL)
    names = {"board": any_board, "numpy": np}
    exec(block, names)
    assert (names["target"] == names["source"]).all()


# What is kept --------------------------------------------------------------------------------


def pinned_pages(driver) -> list[int]:
    """Addresses of the pages that were pinned, in order."""
    return [said["address"] for _, said in driver.named("PIN_PAGES")]


def test_an_array_is_pinned_once(node_driver, node_board):
    source, target = random_bytes(), np.zeros(NBYTES, np.uint8)
    for start in (0, 10, 20):
        node_board.copy(source[start : start + 10], target[start : start + 10])
    assert pinned_pages(node_driver) == [source.ctypes.data, target.ctypes.data]
    assert not node_driver.named("UNPIN_CUDA")
    del source
    node_board.copy(target[:5], target[5:10])
    assert len(node_driver.named("UNPIN_CUDA")) == 1


def test_an_array_at_the_address_of_another_is_another(node_driver, node_board):
    """As after a free and an allocation, which may get the same address."""
    target = np.zeros(NBYTES, np.uint8)
    before = node_driver.pins
    source = random_bytes()
    node_board.copy(source, target)
    (handle,) = [h for h, (address, _) in before.items() if address == source.ctypes.data]
    address = source.ctypes.data
    del source
    for _ in range(1000):
        source = random_bytes(2)
        if source.ctypes.data == address:
            break
    node_board.copy(source, target)
    assert (target == source).all()
    assert handle not in node_driver.pins
    assert pinned_pages(node_driver).count(source.ctypes.data) == 1 + (
        source.ctypes.data == address
    )


def test_an_array_that_becomes_writable_is_pinned_anew(node_driver, node_board):
    source, target = random_bytes(), np.zeros(NBYTES, np.uint8)
    source.flags.writeable = False
    node_board.copy(source, target)
    source.flags.writeable = True
    node_board.copy(target[:10], source[5:15])
    assert (source[5:15] == target[:10]).all()
    accesses = [int(said["access"]) for _, said in node_driver.named("PIN_PAGES")]
    assert accesses == [1, 3, 3]


def test_an_array_that_is_pinned_is_not_moved(node_board):
    """numpy moves no array that something refers to."""
    source = random_bytes()
    node_board.write(source)
    with pytest.raises(ValueError, match="cannot resize an array that references or is"):
        source.resize(3 * NBYTES, refcheck=False)


def test_memory_that_others_allocated_is_pinned_for_each_transfer(node_driver, node_board):
    """It may be mapped over, and nothing says so."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    pages = mmap.mmap(-1, mmap.PAGESIZE)
    source, target = np.frombuffer(pages, np.uint8), np.zeros(mmap.PAGESIZE, np.uint8)
    address = source.ctypes.data
    for value in (1, 2):
        fixed = 0x10 | mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        rights = mmap.PROT_READ | mmap.PROT_WRITE
        assert libc.mmap(address, mmap.PAGESIZE, rights, fixed, -1, 0) == address
        source[:] = value
        node_board.copy(source, target)
        assert (target == value).all()
        assert address not in [at for at, _ in node_driver.pins.values()]
    assert pinned_pages(node_driver).count(address) == 2


def test_what_is_kept_has_a_limit(node_driver, node_board, monkeypatch):
    monkeypatch.setattr(arrays, "LIMIT", 4 * NBYTES)
    sources = [random_bytes(seed) for seed in range(10)]
    target = np.zeros(NBYTES, np.uint8)
    for source in sources:
        node_board.copy(source, target)
        assert (target == source).all()
        assert sum(length for _, length in node_driver.pins.values()) <= 4 * NBYTES
    # What is longer than the limit is not kept, nor is anything unpinned for it.
    kept = dict(node_driver.pins)
    long = np.ones(5 * NBYTES, np.uint8)
    node_board.write(long[:NBYTES])
    assert node_driver.pins == kept


def test_a_plan_keeps_its_arrays_pinned(node_driver, node_board, monkeypatch):
    monkeypatch.setattr(arrays, "LIMIT", 2 * NBYTES)
    target = np.zeros(NBYTES, np.uint8)
    plan = node_board.prepare(bytes(random_bytes()), target)
    for seed in range(4):
        node_board.write(random_bytes(seed))
    plan.run()
    assert (target == random_bytes()).all()
    held = len(node_driver.pins)
    del plan
    node_board.write(b"1")
    assert len(node_driver.pins) < held


def test_a_surface_can_be_closed_when_its_plan_is_gone(any_board, emulated_gpu):
    surface, target = emulated_gpu.surface(NBYTES), bytearray(NBYTES)
    plan = any_board.prepare(surface, target)
    with pytest.raises(peerdma.PinError, match="close the pins first"):
        surface.close()
    plan.run()
    del plan
    surface.close()


def test_a_job_keeps_its_arrays_until_it_has_ended(node_driver, node_board):
    node_driver.silent = True
    target = bytearray(NBYTES)
    job = node_board.submit(random_bytes(), target)
    gc.collect()
    assert len(node_driver.pins) == 2
    node_driver.end_all()
    job.result(60)
    assert bytes(target) == random_bytes().tobytes()
    assert target.append(1) is None  # nothing holds it any more


def test_the_board_keeps_nothing_when_it_is_closed(node_driver):
    source, target = random_bytes(), np.zeros(NBYTES, np.uint8)
    with peerdma.open(node_driver.path) as board:
        board.copy(source, target)
        assert len(node_driver.pins) == 2
    assert not node_driver.pins


def test_an_array_that_cannot_be_pinned_as_a_whole_is_pinned_in_part(node_driver, node_board):
    source, target = np.ones(9 * NBYTES, np.uint8), bytearray(NBYTES)
    node_driver.failures[peerdma.uapi.Ioctl.PIN_PAGES] = 0, 12  # the limit of locked memory
    node_board.copy(source[:NBYTES], target)
    assert target == bytes([1]) * NBYTES
    assert [said["length"] for _, said in node_driver.named("PIN_PAGES")] == [
        9 * NBYTES,
        NBYTES,
        NBYTES,
    ]


def test_plans_of_a_closed_board_hold_no_surface():
    with (
        peerdma.gpu("emulated") as gpu,
        gpu.surface(NBYTES) as source,
        gpu.surface(NBYTES) as target,
        peerdma.open("sim") as board,
    ):
        plan = board.prepare(source, target)
        with pytest.raises(peerdma.PinError, match="pinned"):
            source.close()
    with pytest.raises(peerdma.PeerdmaError, match="closed"):
        plan.run()


# dma-bufs -----------------------------------------------------------------------------------


@pytest.fixture
def shared():
    """A file in memory, as a dma-buf is one, and its content."""
    fd = os.memfd_create("dma-buf")
    os.ftruncate(fd, 3 * mmap.PAGESIZE)
    with mmap.mmap(fd, 0) as content:
        yield fd, content
    os.close(fd)


def test_a_dma_buf_of_any_driver_is_an_argument(board, shared):
    fd, content = shared
    source = random_bytes()
    with peerdma.DmaBuf(fd, NBYTES, 100) as buffer:
        board.copy(source, buffer)
        assert content[100 : 100 + NBYTES] == source.tobytes()
        target = bytearray(NBYTES)
        board.copy(buffer, target)
        assert target == source.tobytes()
        again = peerdma.DmaBuf(fd, NBYTES, 101)
        with pytest.raises(peerdma.TransferError, match="overlap"):
            board.copy(buffer, again)
        with board.pin(buffer), pytest.raises(peerdma.PinError, match="pinned 1 times"):
            buffer.close()
    with pytest.raises(peerdma.PinError, match="the dma-buf is closed"):
        board.pin(buffer)


def test_the_kernel_driver_is_given_the_descriptor(node_driver, node_board, shared):
    fd, _ = shared
    with peerdma.DmaBuf(fd, NBYTES, 100) as buffer:
        node_driver.dmabufs[buffer.fd] = np.zeros(3 * mmap.PAGESIZE, np.uint8).ctypes.data
        node_board.pin(buffer).close()
        ((_, said),) = node_driver.named("PIN_DMABUF")
        assert (said["fd"], said["offset"], said["length"]) == (buffer.fd, 100, NBYTES)


def test_what_is_no_dma_buf(shared):
    fd, _ = shared
    with pytest.raises(peerdma.PinError, match="5000 bytes from byte 10000 of a dma-buf of 12288"):
        peerdma.DmaBuf(fd, NBYTES, 10_000)
    with pytest.raises(TypeError, match="a dma-buf's descriptor is a whole number"):
        peerdma.DmaBuf("fd")
    read, write = os.pipe()
    with pytest.raises(peerdma.PinError, match=f"cannot use descriptor {read} as a dma-buf"):
        peerdma.DmaBuf(read)
    os.close(read)
    os.close(write)
    assert peerdma.DmaBuf(fd, offset=288).nbytes == 12_000


def test_a_pin_that_is_closed_while_an_array_is_asked_where_it_is(node_board):
    target = np.zeros(NBYTES, np.uint8)
    source = node_board.pin(np.ones(NBYTES, np.uint8))

    class Closes:
        def __dlpack_device__(self):
            source.close()
            return target.__dlpack_device__()

        def __dlpack__(self, **options):
            return target.__dlpack__(**options)

    with pytest.raises(peerdma.PinError, match="closed"):
        node_board.copy(source, Closes())
