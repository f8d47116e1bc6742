# SPDX-License-Identifier: BSD-2-Clause
"""Pins that are kept for reuse are given back when a limit refuses another one."""

import errno
import itertools

import numpy as np
import pytest

import peerdma
from peerdma.board import arrays
from peerdma.cuda.gpu import CudaGpu
from peerdma.uapi import Feature, Ioctl
from peerdma.vfio_pci.space import _refused
from tests.host.cuda.fake_cuda import Result
from tests.host.cuda.libraries import StandIn

NBYTES = 1 << 16
#: Pins of this size that the limit allows.
MOST = 4


class Limit:
    """Has a stand-in for the driver, or CUDA, refuse more than so many pinned bytes."""

    def __init__(self, driver, refuse):
        self.driver, self.pin, self.refuse = driver, type(driver)._pin, refuse
        self.refused = 0

    def __call__(self, address, length, *provider):
        if sum(length for _, length in self.driver.pins.values()) + length > MOST * NBYTES:
            self.refused += 1
            self.refuse()
        return self.pin(self.driver, address, length, *provider)


#: What the driver says of locked memory and of a user's quota, and what others may say.
ERRNOS = (errno.ENOMEM, errno.EDQUOT, errno.ENOSPC, errno.EAGAIN, errno.ENOBUFS)


@pytest.fixture(params=ERRNOS, ids=lambda number: errno.errorcode[number])
def limit(request, node_driver, monkeypatch):
    limit = Limit(node_driver, lambda: node_driver._fail(request.param, "no room"))
    monkeypatch.setattr(node_driver, "_pin", limit)
    return limit


def pairs(count):
    """Arrays that are alive together, as those of a program."""
    content = [np.full(NBYTES, number, np.uint8) for number in range(2 * count)]
    return list(zip(content[::2], content[1::2], strict=True))


def test_copies_go_on_beyond_the_limit(node_board, limit):
    for source, target in (arrays := pairs(10)):
        node_board.copy(source, target)
        assert (target == source).all()
    assert limit.refused
    # What was used last is still kept.
    before = limit.refused
    node_board.copy(*arrays[-1])
    assert limit.refused == before


def plans(board, source, target):
    board.prepare(source, target).run()


def explicit_pins(board, source, target):
    with board.pin(source) as one, board.pin(target) as other:
        board.copy(one, other)


def memory_of_others(board, source, target):
    board.copy(bytes(source), bytearray(target))


def parts(board, source, target):
    """More than the limit as a whole: what of it is used is pinned."""
    whole = np.zeros(2 * MOST * NBYTES, np.uint8)
    board.copy(source, whole[:NBYTES])


def queues(board, source, target):
    with board.queue([board.prepare(source, target)]):
        pass


@pytest.mark.parametrize("use", [plans, explicit_pins, memory_of_others, parts, queues])
def test_whatever_pins_finds_room(node_driver, limit, use):
    node_driver.launch_count = 1
    with peerdma.open(node_driver.path) as board:
        kept = pairs(MOST // 2)
        for pair in kept:
            board.copy(*pair)
        assert len(node_driver.pins) == MOST
        use(board, *pairs(1)[0])
        assert limit.refused
        for pin in [pin for pin in board._pins if pin.memory.nbytes > MOST * NBYTES]:
            pin.close()


def test_what_is_in_use_is_not_given_back(node_board, node_driver, limit):
    plans = [node_board.prepare(*pair) for pair in pairs(MOST // 2)]
    with pytest.raises(peerdma.PinError, match="no room"):
        node_board.write(np.zeros(NBYTES, np.uint8))
    assert len(node_driver.pins) == MOST
    for plan in plans:
        plan.run()


def test_another_error_gives_nothing_back(node_board, node_driver):
    (pair,) = pairs(1)
    node_board.copy(*pair)
    node_driver.failures[Ioctl.PIN_PAGES] = 0, errno.EFAULT
    with pytest.raises(peerdma.PinError):
        node_board.write(np.zeros(NBYTES, np.uint8))
    assert len(node_driver.pins) == 2


@pytest.mark.parametrize("way", ["dma-buf", "nv-p2p", "dma-buf-map", "cuda"])
def test_room_in_a_gpus_aperture(node_driver, cuda_loaded, way, monkeypatch):
    """BAR1 of 256 MiB, say: whoever finds it full, the driver or CUDA."""
    if way != "nv-p2p":
        node_driver.info.features &= ~Feature.CUDA
    if way == "nv-p2p":
        node_driver.info.features &= ~Feature.DMABUF
    count = itertools.count()
    if way == "cuda":
        export = type(cuda_loaded)._cuMemGetHandleForAddressRange

        def exports(api, *rest):
            if len(node_driver.pins) >= MOST:
                next(count)
                return Result.CUDA_ERROR_OUT_OF_MEMORY
            return export(api, *rest)

        monkeypatch.setattr(type(cuda_loaded), "_cuMemGetHandleForAddressRange", exports)
    else:

        def refuse():
            next(count)
            node_driver._fail(errno.ENOMEM, "the GPU's BAR1 has no room")

        monkeypatch.setattr(node_driver, "_pin", Limit(node_driver, refuse))
    with CudaGpu(0, "device") as gpu, peerdma.open(node_driver.path) as board:
        library = StandIn(gpu)
        tensors = [library.make(np.full(NBYTES, number, np.uint8)) for number in range(10)]
        for tensor in tensors:
            board.write(tensor)
        assert next(count)
        for pin in list(board._pins):
            pin.close()


def test_the_librarys_own_limit(node_board, node_driver, monkeypatch):
    monkeypatch.setattr(arrays, "LIMIT", MOST * NBYTES)
    for pair in (kept := pairs(10)):
        node_board.copy(*pair)
        assert len(node_driver.pins) <= MOST
    del kept


def test_the_limit_of_locked_memory_with_vfio(monkeypatch):
    with peerdma.open("sim") as board:
        platform = board._backend._platform
        mapped: dict[int, int] = {}
        refused = itertools.count()
        map_, unmap = platform.map, platform.unmap

        def maps(memory):
            if sum(mapped.values()) + memory.nbytes > MOST * NBYTES:
                next(refused)
                raise _refused(OSError(errno.ENOMEM, "no memory"), memory.nbytes)
            mapping = map_(memory)
            mapped[id(mapping.windows)] = memory.nbytes
            return mapping

        def unmaps(windows):
            del mapped[id(windows)]
            unmap(windows)

        monkeypatch.setattr(platform, "map", maps)
        monkeypatch.setattr(platform, "unmap", unmaps)
        for source, target in (kept := pairs(5)):
            board.copy(source, target)
            assert (target == source).all()
        assert next(refused)
        del kept
