# SPDX-License-Identifier: BSD-2-Clause
"""The kernel driver's board against a stand-in for the driver: requests, their order, errors."""

import errno
import mmap
import os

import numpy as np
import pytest

import peerdma
from peerdma import testing
from peerdma.cli.main import main
from peerdma.cuda.gpu import CudaGpu
from peerdma.kernel import node as kernel_node
from peerdma.memory.memory import DataPath
from peerdma.regs import Capability, WaitsFor
from peerdma.testing import pattern
from peerdma.uapi import Feature, Ioctl, Op, Placement, Reason
from tests.host.conftest import open_files
from tests.host.cuda.fake_cuda import Result, fake_driver, is_present
from tests.host.kernel.fake_kernel import CARD_RAM

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
    assert info.extension.waits_for == ("nothing", "nothing")


def test_what_channels_wait_for(node_driver, capsys):
    node_driver.info.h2c_waits_for = WaitsFor.COMPLETION
    node_driver.info.c2h_waits_for = 15
    assert main(["info", "--board", node_driver.path]) == 0
    expected = f"H2C: {WaitsFor.COMPLETION.text}; C2H: something unknown (15)"
    assert expected in capsys.readouterr().out


def test_plain_xdma_has_no_extension(node_driver):
    node_driver.info.board_version = 0
    with peerdma.open(node_driver.path) as board:
        assert board.info().extension is None
        transfer = board.write(np.zeros(10, np.uint8))
        assert transfer.limit is None
        assert transfer.seconds == transfer.wall_seconds


def test_a_board_that_does_not_answer_fails_transfers_with_the_drivers_words(node_driver):
    """It has no link, and so no limit that a rate could be compared with."""
    info = node_driver.info
    info.link_speed = info.link_width = info.max_payload = info.max_read_request = 0
    with (
        peerdma.open(node_driver.path) as board,
        board.pin(np.zeros(10, np.uint8)) as source,
        board.pin(np.zeros(10, np.uint8)) as target,
    ):
        assert str(board.info().extension.link) == "no link: the board does not answer"
        for transfer in (board.write, board.read, lambda pin: board.copy(pin, target)):
            node_driver.failures[Ioctl.SUBMIT] = 0, errno.ENODEV
            with pytest.raises(peerdma.BoardLost, match="words on SUBMIT"):
                transfer(source)


def test_cuda_memory_is_pinned_as_dma_buf(node_driver, node_board, device_gpu, cuda_api):
    """SYNC_MEMOPS first; the descriptor is closed before anything moves; freed after unpinning."""
    cuda_api.attributes["GPU_DIRECT_RDMA_WRITES_ORDERING"] = 0
    src, dst = device_gpu.surface(5000), device_gpu.surface(5000)
    src.fill(1)
    files = open_files()
    cuda_api.calls.clear()
    with node_board.pin(src) as s, node_board.pin(dst) as d:
        assert (s.path, d.path) == (DataPath.PEER_TO_PEER, DataPath.PEER_TO_PEER)
        assert open_files() == files
        with pytest.raises(peerdma.PinError, match="pinned 1 times"):
            src.close()
        transfer = node_board.copy(s, d)
    src.close()
    pins = ["cuPointerSetAttribute"] * 2 + ["cuMemGetHandleForAddressRange", "PIN_DMABUF", "QUERY"]
    expected = [*pins, *pins, "SUBMIT", "cuFlushGPUDirectRDMAWrites", "UNPIN_CUDA", "UNPIN_CUDA"]
    assert order(cuda_api.calls) == [*expected, "cuMemFree"]
    pin = node_driver.named("PIN_DMABUF")[0][1]
    assert (pin["offset"], pin["length"], pin["access"], pin["flags"]) == (0, 5000, 3, 0)
    submit = node_driver.named("SUBMIT")[0][1]
    wanted = {"op": Op.COPY, "src_handle": 1, "dst_handle": 2, "length": 5000, "flags": 0}
    assert wanted.items() <= submit.items()
    assert (transfer.bytes, transfer.cycles, transfer.through) == (5000, 10, "user stream")
    assert transfer.seconds == 10 / 125e6
    device_gpu.verify(dst, seed=1)


def test_cuda_memory_is_pinned_by_address_without_dma_bufs(node_driver, device_gpu, cuda_api):
    node_driver.info.features = Feature.CUDA
    with peerdma.open() as board, device_gpu.surface(100_000) as surface:
        cuda_api.calls.clear()
        with board.pin(surface) as pin:
            assert pin.path is DataPath.PEER_TO_PEER
        assert order(cuda_api.calls) == ["cuPointerSetAttribute", "PIN_CUDA", "QUERY", "UNPIN_CUDA"]
        said = node_driver.named("PIN_CUDA")[0][1]
        assert (said["va"], said["size"]) == (surface.device_address, 100_000)
        attribute = cuda_api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        assert cuda_api.named("cuPointerSetAttribute") == [
            (True, attribute, surface.device_address)
        ]


def test_a_gpu_that_exports_no_dma_buf_is_pinned_by_address(
    node_driver, node_board, device_gpu, cuda_api
):
    cuda_api.attributes["DMA_BUF_SUPPORTED"] = 0
    with device_gpu.surface(10) as surface, node_board.pin(surface):
        assert node_driver.named("PIN_CUDA") and not node_driver.named("PIN_DMABUF")


@pytest.mark.parametrize("features", [Feature.DMABUF | Feature.CUDA, Feature.DMABUF])
def test_a_dma_buf_that_the_board_cannot_reach(node_driver, device_gpu, features):
    """Pinned by address where a provider is loaded, else an error; nothing stays held."""
    node_driver.info.features = features
    node_driver.failures[Ioctl.PIN_DMABUF] = 0, errno.EOPNOTSUPP
    with peerdma.open() as board, device_gpu.surface(10) as surface:
        if Feature.CUDA in features:
            with board.pin(surface) as pin:
                assert pin.provider.startswith("nvp2p, as this failed: cannot pin 10 bytes of GPU ")
                assert "the driver's words on PIN_DMABUF" in pin.provider
            assert node_driver.named("PIN_CUDA")
        else:
            with pytest.raises(peerdma.UnsupportedError, match="driver's words on PIN_DMABUF"):
                board.pin(surface)


@pytest.mark.parametrize(
    ("placement", "peer", "path"),
    [
        (Placement.PEER, b"0000:01:00.0", DataPath.PEER_TO_PEER),
        # Of a device, though not of one whose driver gave it: what is ordered for that, still is.
        (Placement.OTHER, b"0000:01:00.0", DataPath.PEER_TO_PEER),
        (Placement.OTHER, b"", DataPath.HOST_MEMORY),
        (Placement.MIXED, b"0000:01:00.0", DataPath.HOST_MEMORY),
        # As kernels do that pin a GPU's memory in the host's only.
        (Placement.HOST, b"", DataPath.HOST_MEMORY),
    ],
)
def test_the_path_is_that_to_where_the_driver_found_it(
    node_driver, node_board, device_gpu, placement, peer, path
):
    node_driver.placement, node_driver.peer = placement, peer
    with device_gpu.surface(10) as surface, node_board.pin(surface) as pin:
        assert (pin.path, pin.provider) == (path, "dmabuf")


@pytest.mark.parametrize("reason", ["CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_INVALID_VALUE"])
@pytest.mark.parametrize("features", [Feature.DMABUF | Feature.CUDA, Feature.DMABUF])
def test_a_dma_buf_that_cuda_refuses(node_driver, device_gpu, cuda_api, features, reason):
    """As one that the board cannot reach: INVALID_VALUE is a range that is not all allocated."""
    node_driver.info.features = features
    cuda_api.failures["cuMemGetHandleForAddressRange"] = 0, Result[reason]
    with peerdma.open() as board, device_gpu.surface(10) as surface:
        if Feature.CUDA in features:
            board.pin(surface).close()
            assert node_driver.named("PIN_CUDA") and not node_driver.named("PIN_DMABUF")
        else:
            with pytest.raises(peerdma.CudaError, match=f"as a dma-buf: .* {reason} "):
                board.pin(surface)


def test_host_memory_is_pinned_as_pages(node_driver, node_board, cuda_api):
    node_driver.placement = Placement.HOST
    array = np.arange(100, dtype=np.uint8)
    constant = np.arange(100, dtype=np.uint8)
    constant.flags.writeable = False
    with CudaGpu(0, "host", driver=fake_driver(cuda_api)) as gpu, gpu.surface(100) as surface:
        with (
            node_board.pin(array) as a,
            node_board.pin(constant) as c,
            node_board.pin(surface) as s,
        ):
            assert {pin.path for pin in (a, c, s)} == {DataPath.HOST_MEMORY}
            node_board.copy(c, s)
        assert (surface.get() == constant).all()
        said = [call for _, call in node_driver.named("PIN_PAGES")]
        assert [(pin["address"], pin["length"], pin["access"]) for pin in said] == [
            (array.ctypes.data, 100, 3),
            (constant.ctypes.data, 100, 1),
            (surface.address, 100, 3),
        ]


def test_the_emulated_gpus_memory_is_the_hosts_for_a_real_board(
    node_driver, node_board, emulated_gpu
):
    node_driver.placement = Placement.HOST
    with emulated_gpu.surface(1000) as src, emulated_gpu.surface(1000) as dst:
        src.fill(1)
        with node_board.pin(src) as s, node_board.pin(dst) as d:
            transfer = node_board.copy(s, d)
        assert transfer.path == (DataPath.HOST_MEMORY, DataPath.HOST_MEMORY)
        emulated_gpu.verify(dst, seed=1)
    assert len(node_driver.named("PIN_PAGES")) == 2


@pytest.mark.parametrize(
    ("number", "kind", "step"),
    [
        (errno.ENOMEM, "PinError", "ulimit -l"),
        (errno.EFAULT, "PinError", "still allocated"),
        (errno.EINVAL, "PinError", "dmesg"),
        (errno.EOPNOTSUPP, "UnsupportedError", "peerdma doctor"),
        (errno.ENODEV, "BoardLost", "open it again"),
        (errno.E2BIG, "VersionMismatch", "the same release"),
    ],
)
@pytest.mark.parametrize("code", [Ioctl.PIN_PAGES, Ioctl.PIN_CUDA, Ioctl.PIN_DMABUF])
def test_pins_that_fail_hold_nothing(node_driver, device_gpu, cuda_api, code, number, kind, step):
    node_driver.info.features = Feature.DMABUF if code is Ioctl.PIN_DMABUF else Feature.CUDA
    node_driver.failures[code] = 0, number
    files = open_files()
    with peerdma.open() as board, device_gpu.surface(10) as surface:
        memory = np.zeros(10, np.uint8) if code is Ioctl.PIN_PAGES else surface
        with pytest.raises(getattr(peerdma, kind), match=f"words on {code.name}.* ") as caught:
            board.pin(memory)
        assert step in str(caught.value)
        assert caught.value.errno == number
        board.pin(memory).close()
    assert open_files() == files


def test_a_pin_whose_place_is_not_told_is_taken_back(node_driver, node_board):
    node_driver.failures[Ioctl.QUERY] = 0, errno.EIO
    with pytest.raises(peerdma.TransferError, match="cannot query pinned memory"):
        node_board.pin(np.zeros(10, np.uint8))
    assert len(node_driver.named("UNPIN_CUDA")) == 1


def test_a_surface_that_cuda_refuses_is_not_pinned(node_driver, node_board, device_gpu, cuda_api):
    for function in ("cuPointerSetAttribute", "cuCtxSetFlags"):
        cuda_api.failures[function] = 0, Result.CUDA_ERROR_NOT_SUPPORTED
    with device_gpu.surface(10) as surface:
        with pytest.raises(peerdma.PinError, match="cannot pin"):
            node_board.pin(surface)
        assert not node_driver.named("PIN_DMABUF", "PIN_CUDA")


def test_closing_the_board_closes_the_node_and_forgets_pins(node_driver, cuda_api):
    files = open_files()
    board = peerdma.open(node_driver.path)
    pin = board.pin(np.zeros(10, np.uint8))
    board.close()
    board.close()
    assert pin.closed
    pin.close()
    assert open_files() == files
    assert not node_driver.named("UNPIN_CUDA")
    node_driver.pins.clear()  # as the driver does when its node is closed


def test_leds_are_set_by_value(node_driver, node_board):
    assert node_board.leds(5) == 5
    assert node_driver.named("LED") == [("LED", 5)]
    with pytest.raises(peerdma.UnsupportedError, match="can only set them"):
        node_board.leds()


def test_a_channel_and_card_ram_of_ones_own(node_driver):
    node_driver.info.h2c_channels, node_driver.info.c2h_channels = 4, 2
    with peerdma.open(node_driver.path, channel=1, card_ram=8192) as board:
        ((_, said),) = node_driver.named("SET_CONTEXT")
        assert (said["channel"], said["ram_length"], said["flags"]) == (1, 8192, 0)
        address, nbytes = board.info().own_card_ram
        assert (address, nbytes) == (CARD_RAM - 8192, 8192)
        board.write(np.full(10, 7, np.uint8), address)
        assert not node_driver.card[:address].any()
        assert node_driver.card[address : address + 10].tolist() == [7] * 10
        node_driver.registers[1, 0] = 5
        assert board.user_register(0) == 5


def test_a_board_is_shared_unless_asked_otherwise(node_board, node_driver):
    assert node_board.info().own_card_ram == (0, 0)
    assert not node_driver.named("SET_CONTEXT")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"channel": 1}, "channels 0 to 0 in both directions, and no channel 1"),
        ({"channel": -1}, "no channel -1"),
        ({"channel": 2**32}, "no channel 4294967296"),
        ({"card_ram": -4096}, "65536 bytes of card RAM, of which no program can have -4096"),
        ({"card_ram": 2**64}, "no program can have 18446744073709551616"),
    ],
)
def test_what_no_program_can_have_for_itself(node_driver, wanted, words):
    before = open_files()
    with pytest.raises(ValueError, match=words):
        peerdma.open(node_driver.path, **wanted)
    assert open_files() == before
    assert not node_driver.named("SET_CONTEXT")


def test_card_ram_that_is_not_to_be_had(node_driver):
    before = open_files()
    node_driver.failures[Ioctl.SET_CONTEXT] = 0, errno.ENOSPC
    with pytest.raises(
        peerdma.TransferError,
        match=r"cannot get channel 0 and 4096 bytes .*: the driver's words on SET_CONTEXT\. Ask",
    ):
        peerdma.open(node_driver.path, card_ram=4096)
    assert open_files() == before


def test_card_ram_of_another_program(node_board, node_driver):
    array = np.zeros(10, np.uint8)
    node_driver.failures[Ioctl.SUBMIT] = 0, errno.EACCES
    with pytest.raises(peerdma.TransferError, match=r"SUBMIT\. Use lower card addresses"):
        node_board.write(array, 4096)
    node_driver.ends = [{"result": -errno.EACCES, "reason": Reason.PARTITION}]
    with pytest.raises(peerdma.TransferError, match="has become another program's own"):
        node_board.write(array, 4096)


def test_registers_of_the_user_block(node_driver):
    node_driver.info.user_block = int.from_bytes(b"PATN", "little")
    node_driver.info.user_ratio = 1 << 8
    with peerdma.open(node_driver.path) as board:
        extension = board.info().extension
        assert (extension.user_block, extension.user_ratio) == ("PATN", (0, 1))
        source = testing.PatternSource(board)
        source.start(4096, interval=7, seed=3)
        assert node_driver.registers == {(0, 4): 7, (0, 8): 3, (0, 0): 1024}
        node_driver.registers[0, 0x10] = 5
        assert source.dropped == 5
        with pytest.raises(peerdma.UnsupportedError, match="a source and takes no bytes"):
            board.process(np.zeros(4, np.uint8), np.zeros(4, np.uint8))
        node_driver.failures[Ioctl.USER_REGISTER] = 0, errno.EBUSY
        with pytest.raises(peerdma.TransferError, match=r"read a register .*USER_REGISTER"):
            board.user_register(0)
    node_driver.info.capabilities &= ~Capability.STREAM
    with (
        peerdma.open(node_driver.path) as board,
        pytest.raises(peerdma.UnsupportedError, match="has no user block"),
    ):
        board.user_register(0)


def test_the_mailbox_is_the_boards_own_page(
    node_driver, node_board, device_gpu, cuda_api, monkeypatch
):
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
        testing.watch(surface, mailbox, seed=1).close()
        # CU_MEMHOSTREGISTER_IOMEMORY with PORTABLE and DEVICEMAP.
        assert (mailbox.address, 4096, 7) in cuda_api.named("cuMemHostRegister")


def test_the_page_is_touched_before_cuda_looks_for_it(node_board, device_gpu, monkeypatch):
    """The driver enters it into the page table when it is accessed."""
    page = mmap.mmap(-1, 4096)
    monkeypatch.setattr(kernel_node.KernelNode, "map", lambda *_: page)
    with node_board.mailbox() as mailbox:
        assert not is_present(mailbox.address)
        with device_gpu.map_mailbox(mailbox) as kernels:
            assert kernels.register("last") == mailbox.register("last")


def test_a_page_that_cuda_cannot_map_leads_to_another_way(
    node_board, device_gpu, cuda_api, monkeypatch
):
    page = mmap.mmap(-1, 4096)
    monkeypatch.setattr(kernel_node.KernelNode, "map", lambda *_: page)
    with node_board.mailbox() as mailbox:
        cuda_api.failures["cuMemHostRegister"] = 0, Result.CUDA_ERROR_NOT_SUPPORTED
        with pytest.raises(peerdma.CudaError, match=r"on this kernel\. Let the kernel "):
            device_gpu.map_mailbox(mailbox)
        # What it says to do instead.
        mailbox.write("first", 7)
        assert mailbox.read().first.value == 7


def test_a_page_that_cannot_be_mapped_is_an_error_of_ours(node_board):
    """The stand-in's node is a pipe, which has no pages."""
    with pytest.raises(peerdma.BoardLost, match="cannot map the board's registers: No such device"):
        node_board.mailbox()


def test_a_board_without_a_mailbox(node_driver):
    node_driver.info.features = Feature.CUDA
    with peerdma.open() as board, pytest.raises(peerdma.UnsupportedError, match="has no mailbox"):
        board.mailbox()


def test_the_mailbox_page_for_other_devices(node_driver):
    with peerdma.open() as board:
        fd = board.export_mailbox()
        assert "exported 0" in os.readlink(f"/proc/self/fd/{fd}")
        os.close(fd)
        node_driver.info.features &= ~Feature.MAILBOX
        words = "cannot export the mailbox page: this board has no mailbox page.*docs/driver.md"
        with pytest.raises(peerdma.UnsupportedError, match=words):
            board.export_mailbox()
    with pytest.raises(peerdma.PeerdmaError, match="closed"):
        board.export_mailbox()


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
        ({"failure": errno.ENOTTY}, "NVIDIA's picoevb driver uses the same node"),
        ({"uapi_version": 0x20001}, "driver's interface has version 2.1, this library's 1.0"),
        ({"board_version": 0x30002}, "register map 3.2, this library knows 1."),
    ],
)
def test_other_drivers_and_boards_are_refused_by_version(node_driver, change, message):
    files = open_files()
    if "failure" in change:
        node_driver.failures[Ioctl.GET_INFO] = 0, change["failure"]
    else:
        for name, value in change.items():
            setattr(node_driver.info, name, value)
    with pytest.raises(peerdma.VersionMismatch, match=message):
        peerdma.open(node_driver.path)
    assert open_files() == files


def test_the_whole_example_on_a_node(node_driver, node_board, device_gpu):
    """As the README has it, with a board behind the driver and a CUDA GPU."""
    src, dst = device_gpu.surface((64, 64), "u4"), device_gpu.surface((64, 64), "u4")
    src.fill(seed=1)
    with node_board.pin(src) as s, node_board.pin(dst) as d:
        transfer = node_board.copy(s, d)
    device_gpu.verify(dst, seed=1)
    assert str(transfer).endswith("peer-to-peer to the board, peer-to-peer from the board")
    assert dst.get().tobytes() == pattern.fill_bytes(1, 0, 16384).tobytes()
