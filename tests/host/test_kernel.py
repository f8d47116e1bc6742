# SPDX-License-Identifier: BSD-2-Clause
"""The kernel driver's board against a stand-in for the driver: requests, their order, errors."""

import errno
import mmap
import os

import numpy as np
import pytest

import peerdma
from peerdma import kernel, kernel_node, opening, pattern
from peerdma.cuda import CudaGpu
from peerdma.memory import Path
from peerdma.uapi import Feature, Ioctl, Op, Placement, Reason
from tests.host.fake_cuda import FakeCuda, Result, fake_driver
from tests.host.fake_kernel import CARD_RAM, FakeKernel


@pytest.fixture
def driver(tmp_path, monkeypatch, cuda_api):
    """The stand-in; it writes into the list of calls of the stand-in for CUDA, for their order."""
    driver = FakeKernel(tmp_path, cuda_api.calls)
    monkeypatch.setattr(kernel_node.fcntl, "ioctl", driver.ioctl)
    read = os.read

    def reads(fd, length):
        data = read(fd, length)
        driver.taken(data)
        return data

    monkeypatch.setattr(kernel_node.os, "read", reads)
    monkeypatch.setattr(opening, "_NODE", driver.path)
    monkeypatch.setattr(opening, "_is_node", lambda path: path == driver.path)
    # A dma-buf of the stand-in for CUDA is known by its descriptor.
    export = FakeCuda._cuMemGetHandleForAddressRange

    def exports(api, address, *rest):
        fd = export(api, address, *rest)
        driver.dmabufs[fd] = address
        return fd

    monkeypatch.setattr(FakeCuda, "_cuMemGetHandleForAddressRange", exports)
    yield driver
    assert not driver.pins
    driver.close()


@pytest.fixture
def node_board(driver):
    """The board behind it."""
    with peerdma.open("auto") as board:
        yield board


@pytest.fixture
def device_gpu(cuda_api):
    """A CUDA GPU on the stand-in, with surfaces in GPU memory."""
    with CudaGpu(0, "device", driver=fake_driver(cuda_api)) as gpu:
        yield gpu


NAMES = {"PIN_CUDA", "PIN_DMABUF", "PIN_PAGES", "UNPIN_CUDA", "QUERY", "SUBMIT"}
CUDA_NAMES = {
    "cuPointerSetAttribute",
    "cuMemGetHandleForAddressRange",
    "cuFlushGPUDirectRDMAWrites",
    "cuMemFree",
}


def order(calls) -> list[str]:
    """Names of the calls that matter, in order."""
    return [name for name, _ in calls if name in NAMES | CUDA_NAMES]


def test_what_the_driver_tells_is_the_boards_information(node_board):
    info = node_board.info()
    assert info.name == "board 0 at 0000:01:00.0"
    assert not info.simulated
    assert info.identity == (0x10EE, 0x7021, 0x10EE, 0x5045)
    assert (info.interrupts, info.channels, info.card_ram_size) == ("MSIX", (1, 1), CARD_RAM)
    assert info.extension.version == (1, 0)
    assert str(info.extension.link).startswith("PCIe Gen2 x1, max payload 128 B")


def test_plain_xdma_has_no_extension(driver):
    driver.info.board_version = 0
    with peerdma.open(driver.path) as board:
        assert board.info().extension is None
        transfer = board.write(np.zeros(10, np.uint8))
        assert transfer.limit is None
        assert transfer.seconds == transfer.wall_seconds


def test_cuda_memory_is_pinned_as_dma_buf(driver, node_board, device_gpu, cuda_api):
    """SYNC_MEMOPS first; the descriptor is closed before anything moves; freed after unpinning."""
    cuda_api.attributes["GPU_DIRECT_RDMA_WRITES_ORDERING"] = 0
    src, dst = device_gpu.surface(5000), device_gpu.surface(5000)
    src.fill(1)
    files = len(os.listdir("/proc/self/fd"))
    cuda_api.calls.clear()
    with node_board.pin(src) as s, node_board.pin(dst) as d:
        assert (s.path, d.path) == (Path.PEER_TO_PEER, Path.PEER_TO_PEER)
        assert len(os.listdir("/proc/self/fd")) == files
        with pytest.raises(peerdma.PinError, match="pinned 1 times"):
            src.close()
        transfer = node_board.copy(s, d)
    src.close()
    pins = ["cuPointerSetAttribute"] * 2 + ["cuMemGetHandleForAddressRange", "PIN_DMABUF", "QUERY"]
    expected = [*pins, *pins, "SUBMIT", "cuFlushGPUDirectRDMAWrites", "UNPIN_CUDA", "UNPIN_CUDA"]
    assert order(cuda_api.calls) == [*expected, "cuMemFree"]
    pin = driver.named("PIN_DMABUF")[0][1]
    assert (pin["offset"], pin["length"], pin["access"], pin["flags"]) == (0, 5000, 3, 0)
    submit = driver.named("SUBMIT")[0][1]
    wanted = {"op": Op.COPY, "src_handle": 1, "dst_handle": 2, "length": 5000, "flags": 0}
    assert wanted.items() <= submit.items()
    assert (transfer.bytes, transfer.cycles) == (5000, 10)
    assert transfer.seconds == 10 / 125e6
    device_gpu.verify(dst, seed=1)


def test_cuda_memory_is_pinned_by_address_without_dma_bufs(driver, device_gpu, cuda_api):
    driver.info.features = Feature.CUDA
    with peerdma.open() as board, device_gpu.surface(100_000) as surface:
        cuda_api.calls.clear()
        with board.pin(surface) as pin:
            assert pin.path is Path.PEER_TO_PEER
        assert order(cuda_api.calls) == ["cuPointerSetAttribute", "PIN_CUDA", "QUERY", "UNPIN_CUDA"]
        said = driver.named("PIN_CUDA")[0][1]
        assert (said["va"], said["size"]) == (surface.device_address, 100_000)
        attribute = cuda_api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        assert cuda_api.named("cuPointerSetAttribute") == [
            (True, attribute, surface.device_address)
        ]


def test_a_gpu_that_exports_no_dma_buf_is_pinned_by_address(
    driver, node_board, device_gpu, cuda_api
):
    cuda_api.attributes["DMA_BUF_SUPPORTED"] = 0
    with device_gpu.surface(10) as surface, node_board.pin(surface):
        assert driver.named("PIN_CUDA") and not driver.named("PIN_DMABUF")


@pytest.mark.parametrize("features", [Feature.DMABUF | Feature.CUDA, Feature.DMABUF])
def test_a_dma_buf_that_the_board_cannot_reach(driver, device_gpu, features):
    """Pinned by address where a provider is loaded, else an error; nothing stays held."""
    driver.info.features = features
    driver.failures[Ioctl.PIN_DMABUF] = 0, errno.EOPNOTSUPP
    with peerdma.open() as board, device_gpu.surface(10) as surface:
        if Feature.CUDA in features:
            board.pin(surface).close()
            assert driver.named("PIN_CUDA")
        else:
            with pytest.raises(peerdma.UnsupportedError, match="driver's words on PIN_DMABUF"):
                board.pin(surface)


def test_host_memory_is_pinned_as_pages(driver, node_board, cuda_api):
    driver.placement = Placement.HOST
    array = np.arange(100, dtype=np.uint8)
    constant = np.arange(100, dtype=np.uint8)
    constant.flags.writeable = False
    with CudaGpu(0, "host", driver=fake_driver(cuda_api)) as gpu, gpu.surface(100) as surface:
        with (
            node_board.pin(array) as a,
            node_board.pin(constant) as c,
            node_board.pin(surface) as s,
        ):
            assert {pin.path for pin in (a, c, s)} == {Path.HOST_MEMORY}
            node_board.copy(c, s)
        assert (surface.get() == constant).all()
        said = [call for _, call in driver.named("PIN_PAGES")]
        assert [(pin["address"], pin["length"], pin["access"]) for pin in said] == [
            (array.ctypes.data, 100, 3),
            (constant.ctypes.data, 100, 1),
            (surface.address, 100, 3),
        ]


def test_the_emulated_gpus_memory_is_the_hosts_for_a_real_board(driver, node_board, emulated_gpu):
    driver.placement = Placement.HOST
    with emulated_gpu.surface(1000) as src, emulated_gpu.surface(1000) as dst:
        src.fill(1)
        with node_board.pin(src) as s, node_board.pin(dst) as d:
            transfer = node_board.copy(s, d)
        assert transfer.path == (Path.HOST_MEMORY, Path.HOST_MEMORY)
        emulated_gpu.verify(dst, seed=1)
    assert len(driver.named("PIN_PAGES")) == 2


def test_write_and_read_are_jobs_of_their_own(driver, node_board):
    data, back = np.arange(200, dtype=np.uint8), np.zeros(200, np.uint8)
    with node_board.pin(data) as s, node_board.pin(back) as d:
        node_board.write(s[10:110], 500)
        node_board.read(d[20:120], 500)
    assert (back[20:120] == data[10:110]).all()
    sides = ("op", "src_handle", "src_offset", "dst_handle", "dst_offset", "length")
    assert [tuple(job[name] for name in sides) for _, job in driver.named("SUBMIT")] == [
        (Op.H2C, 1, 10, 0, 500, 100),
        (Op.C2H, 0, 500, 2, 20, 100),
    ]


def test_sides_that_are_divided_differently_make_a_job_each(driver, node_board, seed):
    random = np.random.default_rng(seed)
    source, target = random.integers(0, 256, (2, 10_000), np.uint8)
    cuts = [sorted(random.integers(0, 5000, 7).tolist()) for _ in range(2)]
    with node_board.pin(source) as s, node_board.pin(target) as d:
        sides = [
            [pin[a:b] for a, b in zip([0, *cut], [*cut, 5000], strict=True)]
            for pin, cut in zip((s, d), cuts, strict=True)
        ]
        steps = []
        transfer = node_board.copy(*sides, progress=lambda *step: steps.append(step))
    assert (target[:5000] == source[:5000]).all()
    jobs = driver.named("SUBMIT")
    # Of these the driver refused some with EAGAIN, and took them again.
    assert transfer.cycles == 10 * len(steps) <= 10 * len(jobs)
    assert len(steps) == len({*cuts[0], *cuts[1], 5000} - {0})
    assert steps[-1] == (5000, 5000)


def test_large_copies_are_several_jobs(driver, node_board, monkeypatch):
    monkeypatch.setattr(kernel, "_JOB_BYTES", 1000)
    source, target = np.arange(2500, dtype="u2").view("u1"), np.zeros(5000, np.uint8)
    with node_board.pin(source) as s, node_board.pin(target) as d:
        node_board.copy(s, d)
    assert (target == source).all()
    assert {job["length"] for _, job in driver.named("SUBMIT")} == {1000}


def test_nothing_to_move_asks_nothing_of_the_driver(driver, node_board):
    with node_board.pin(np.zeros(0)) as empty, node_board.pin(np.zeros(10, np.uint8)) as pin:
        node_board.copy(empty, pin[:0])
        node_board.write(pin[:0])
    assert not driver.named("SUBMIT")
    assert len(driver.named("PIN_PAGES")) == 1


@pytest.mark.parametrize(
    ("end", "kind", "message"),
    [
        ({"reason": Reason.ENGINE, "status": 0x4200, "address": 0x1234}, "TransferError", "0x4200"),
        ({"reason": Reason.TIMEOUT}, "Timeout", "did not finish a transfer in time"),
        ({"reason": Reason.REVOKED}, "PinError", "Keep surfaces open"),
        ({"reason": Reason.UNPINNED}, "PinError", "unpinned during"),
        ({"reason": Reason.RESET}, "TransferError", "was reset or suspended"),
        ({"reason": Reason.CANCELLED}, "TransferError", "it was cancelled"),
        ({"reason": Reason.LOST}, "BoardLost", "went away"),
    ],
)
def test_jobs_that_fail_end_the_copy_and_the_other_jobs(
    driver, node_board, monkeypatch, end, kind, message
):
    monkeypatch.setattr(kernel, "_JOB_BYTES", 100)
    driver.ends = [{}, {"result": -errno.EIO, "bytes": 30, **end}]
    source, target = np.ones(600, np.uint8), np.zeros(600, np.uint8)
    with node_board.pin(source) as s, node_board.pin(target) as d:
        with pytest.raises(getattr(peerdma, kind), match=message) as caught:
            node_board.copy(s, d)
        assert caught.value.errno == errno.EIO
        if kind == "TransferError" and end["reason"] is Reason.ENGINE:
            assert (caught.value.status, caught.value.address) == (0x4200, 0x1234)
        assert not driver._outstanding
        target[:] = 0
        node_board.copy(s, d)
        assert (target == 1).all()


def test_a_driver_that_hangs_is_given_up_and_its_jobs_cancelled(driver):
    driver.silent = True
    with peerdma.open(driver.path, timeout=0.05) as board:
        array, other = np.zeros(10, np.uint8), np.zeros(10, np.uint8)
        s, d = board.pin(array), board.pin(other)
        with s, d, pytest.raises(peerdma.Timeout, match=r"1 jobs .* did not end in time"):
            board.copy(s, d)
        assert [call["job"] for _, call in driver.named("CANCEL")] == [100]
        assert not driver._outstanding


def test_ctrl_c_cancels_what_is_under_way(driver, node_board, monkeypatch):
    monkeypatch.setattr(kernel, "_JOB_BYTES", 10)

    def interrupts(done, total):
        raise KeyboardInterrupt

    with node_board.pin(np.zeros(100, np.uint8)) as s, node_board.pin(np.ones(100, np.uint8)) as d:
        with pytest.raises(KeyboardInterrupt):
            node_board.copy(s, d, progress=interrupts)
        assert not driver._outstanding


@pytest.mark.parametrize(
    ("number", "kind", "step"),
    [
        (errno.ENOMEM, "PinError", "ulimit -l"),
        (errno.EFAULT, "PinError", "still allocated"),
        (errno.EINVAL, "PinError", "dmesg"),
        (errno.EOPNOTSUPP, "UnsupportedError", "peerdma doctor"),
        (errno.ENODEV, "BoardLost", "open it again"),
        (errno.E2BIG, "VersionMismatch", "one release"),
    ],
)
@pytest.mark.parametrize("code", [Ioctl.PIN_PAGES, Ioctl.PIN_CUDA, Ioctl.PIN_DMABUF])
def test_pins_that_fail_hold_nothing(driver, device_gpu, cuda_api, code, number, kind, step):
    driver.info.features = Feature.DMABUF if code is Ioctl.PIN_DMABUF else Feature.CUDA
    driver.failures[code] = 0, number
    files = len(os.listdir("/proc/self/fd"))
    with peerdma.open() as board, device_gpu.surface(10) as surface:
        memory = np.zeros(10, np.uint8) if code is Ioctl.PIN_PAGES else surface
        with pytest.raises(getattr(peerdma, kind), match=f"words on {code.name}.* ") as caught:
            board.pin(memory)
        assert step in str(caught.value)
        assert caught.value.errno == number
        board.pin(memory).close()
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_pin_whose_place_is_not_told_is_taken_back(driver, node_board):
    driver.failures[Ioctl.QUERY] = 0, errno.EIO
    with pytest.raises(peerdma.TransferError, match="where pinned memory is"):
        node_board.pin(np.zeros(10, np.uint8))
    assert len(driver.named("UNPIN_CUDA")) == 1


def test_a_surface_that_cuda_refuses_is_not_pinned(driver, node_board, device_gpu, cuda_api):
    cuda_api.failures["cuPointerSetAttribute"] = 0, Result.CUDA_ERROR_NOT_SUPPORTED
    with device_gpu.surface(10) as surface:
        with pytest.raises(peerdma.CudaError, match="to be pinned"):
            node_board.pin(surface)
        assert not driver.named("PIN_DMABUF", "PIN_CUDA")


def test_closing_the_board_closes_the_node_and_forgets_pins(driver, cuda_api):
    files = len(os.listdir("/proc/self/fd"))
    board = peerdma.open(driver.path)
    pin = board.pin(np.zeros(10, np.uint8))
    board.close()
    board.close()
    assert pin.closed
    pin.close()
    assert len(os.listdir("/proc/self/fd")) == files
    assert not driver.named("UNPIN_CUDA")
    driver.pins.clear()  # as the driver does when its node is closed


def test_leds_are_set_by_value(driver, node_board):
    assert node_board.leds(5) == 5
    assert driver.named("LED") == [("LED", 5)]
    with pytest.raises(peerdma.UnsupportedError, match="can only set them"):
        node_board.leds()


def test_the_mailbox_is_the_boards_own_page(driver, node_board, device_gpu, cuda_api, monkeypatch):
    page = mmap.mmap(-1, 4096)
    page[0:4] = (7).to_bytes(4, "little")
    page[0x20:0x28] = (0x5_0000_0003).to_bytes(8, "little")
    mapped = []

    def maps(node, offset, length):
        mapped.append((offset, length))
        return page

    monkeypatch.setattr(kernel_node.KernelNode, "map", maps)
    with node_board.mailbox() as mailbox, device_gpu.surface(8) as surface:
        assert mapped == [(1 << 40, 4096)]
        assert mailbox.read().first == (7, 0x5_0000_0003)
        device_gpu.watch(surface, mailbox, seed=1).close()
        # CU_MEMHOSTREGISTER_IOMEMORY with PORTABLE and DEVICEMAP.
        assert (mailbox.address, 4096, 7) in cuda_api.named("cuMemHostRegister")


def test_a_board_without_a_mailbox(driver):
    driver.info.features = Feature.CUDA
    with peerdma.open() as board, pytest.raises(peerdma.UnsupportedError, match="has none"):
        board.mailbox()


def test_nodes_that_cannot_be_opened(tmp_path, monkeypatch):
    with pytest.raises(peerdma.BoardNotFound, match=r"/dev/picoevb77: No such file .*lsmod"):
        peerdma.open("/dev/picoevb77")

    def refuses(path, flags):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(kernel_node.os, "open", refuses)
    with pytest.raises(peerdma.BoardNotFound, match=r"Permission denied.* udev rule") as caught:
        peerdma.open("/dev/picoevb")
    assert caught.value.errno == errno.EACCES
    with pytest.raises(ValueError, match="arguments are for a board that is started"):
        peerdma.open("/dev/picoevb", arguments=["--msix"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"failure": errno.ENOTTY}, "NVIDIA's picoevb driver has the same node"),
        ({"uapi_version": 0x20001}, "driver speaks version 2.1, this library 1.0"),
        ({"board_version": 0x30002}, "register map 3.2, this library knows 1."),
    ],
)
def test_other_drivers_and_boards_are_refused_by_version(driver, change, message):
    files = len(os.listdir("/proc/self/fd"))
    if "failure" in change:
        driver.failures[Ioctl.GET_INFO] = 0, change["failure"]
    else:
        for name, value in change.items():
            setattr(driver.info, name, value)
    with pytest.raises(peerdma.VersionMismatch, match=message):
        peerdma.open(driver.path)
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_board_that_is_unplugged_is_told_from_one_that_is_slow(driver, node_board, monkeypatch):
    class Gone:
        def register(self, fd, events):
            pass

        def poll(self, milliseconds):
            return [(0, kernel_node.select.POLLHUP)]

    driver.silent = True
    with (
        node_board.pin(np.zeros(10, np.uint8)) as source,
        node_board.pin(np.ones(10, np.uint8)) as target,
        monkeypatch.context() as patch,
    ):
        patch.setattr(kernel_node.select, "poll", Gone)
        with pytest.raises(peerdma.BoardLost, match="is gone"):
            node_board.copy(source, target)


def test_the_whole_example_on_a_node(driver, node_board, device_gpu):
    """As the README has it, with a board behind the driver and a CUDA GPU."""
    src, dst = device_gpu.surface((64, 64), "u4"), device_gpu.surface((64, 64), "u4")
    src.fill(seed=1)
    with node_board.pin(src) as s, node_board.pin(dst) as d:
        transfer = node_board.copy(s, d)
    device_gpu.verify(dst, seed=1)
    assert str(transfer).startswith("16384 bytes in 0.1 µs, peer-to-peer to the board, peer-to-")
    assert dst.get().tobytes() == pattern.fill_bytes(1, 0, 16384).tobytes()
