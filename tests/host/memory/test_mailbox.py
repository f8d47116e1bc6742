# SPDX-License-Identifier: BSD-2-Clause
"""The mailbox: a GPU reports to the simulated board as data arrives, and the board stamps it."""

import ctypes
import gc
import time

import numpy as np
import pytest

import peerdma
from peerdma import testing
from peerdma.cuda.gpu import CudaGpu
from peerdma.memory.mailbox import MailboxPage
from tests.host.cuda.fake_cuda import Result, fake_driver

#: No transfer here takes longer, in seconds.
PATIENCE = 60.0


@pytest.fixture(scope="module")
def mailbox_board():
    """A simulated board that offers its mailbox as a page."""
    with peerdma.open("sim", arguments=["--mailbox-page"]) as board:
        yield board


@pytest.fixture(params=["emulated", "stand-in"])
def either_gpu(request):
    """An emulated GPU and the stand-in for CUDA: their kernels' addresses are this process's."""
    if request.param == "emulated":
        gpu = peerdma.gpu("emulated")
    else:
        gpu = CudaGpu(0, driver=fake_driver(request.getfixturevalue("cuda_api")))
    with gpu:
        yield gpu


def watched_copy(board, gpu, mailbox, seed: int, token: int, nbytes: int = 30_000):
    """Copies the pattern while the GPU watches; returns what the board stamped."""
    with gpu.surface(nbytes) as src, gpu.surface(nbytes) as dst:
        src.fill(seed)
        with (
            board.pin(src) as s,
            board.pin(dst) as d,
            testing.watch(dst, mailbox, seed=seed, token=token, timeout=PATIENCE) as watch,
        ):
            board.copy(s, d)
            watch.wait()
            watch.wait()
    return mailbox.read()


@pytest.mark.parametrize("nbytes", [30_000, 4097, 4, 1])
def test_the_board_stamps_first_last_and_done(mailbox_board, every_gpu, nbytes):
    with mailbox_board.mailbox() as mailbox:
        before = mailbox.read()
        progress = watched_copy(mailbox_board, every_gpu, mailbox, 5, token=0xBEEF, nbytes=nbytes)
        assert [stamp.value for stamp in progress] == [0xBEEF] * 3
        assert max(stamp.cycle for stamp in before) < progress.first.cycle
        assert progress.first.cycle < progress.last.cycle < progress.done.cycle


def test_the_same_token_again_is_stamped_again(mailbox_board, every_gpu):
    with mailbox_board.mailbox() as mailbox:
        earlier = watched_copy(mailbox_board, every_gpu, mailbox, 1, token=7)
        later = watched_copy(mailbox_board, every_gpu, mailbox, 2, token=7)
    assert earlier.done.cycle < later.first.cycle


def test_words_that_are_wrong_in_between_are_found(mailbox_board, every_gpu):
    with every_gpu.surface(30_000) as surface, mailbox_board.mailbox() as mailbox:
        surface.fill(3)
        content = surface.get()
        content[5000] ^= 1
        surface.set(content)
        watch = testing.watch(surface, mailbox, seed=3, token=9, timeout=PATIENCE)
        with watch, pytest.raises(peerdma.VerifyError) as caught:
            watch.wait()
        assert (caught.value.offset, caught.value.wrong) == (5000, 1)
        assert mailbox.read().done.value == 9


def test_what_does_not_arrive_is_an_error_in_time(mailbox_board, every_gpu):
    with every_gpu.surface(8) as surface, mailbox_board.mailbox() as mailbox:
        before = mailbox.read()
        watch = testing.watch(surface, mailbox, seed=3, timeout=0.05)
        with watch, pytest.raises(peerdma.Timeout, match=r"word 0 .* 0\.05 s passed"):
            watch.wait()
        assert mailbox.read() == before
        surface.fill(3)
        surface.copy_in(4, np.zeros(4, np.uint8))
        watch = testing.watch(surface, mailbox, seed=3, token=6, timeout=0.05)
        with watch, pytest.raises(peerdma.Timeout, match="word 1 of the pattern"):
            watch.wait()
        progress = mailbox.read()
        assert progress.first.value == 6
        assert progress[1:] == before[1:]


def test_a_watch_that_is_closed_ends_at_once(mailbox_board, every_gpu):
    with every_gpu.surface(8) as surface, mailbox_board.mailbox() as mailbox:
        began = time.monotonic()
        watch = testing.watch(surface, mailbox, seed=3, timeout=PATIENCE)
        with pytest.raises(peerdma.PinError, match="pinned 1 times"):
            surface.close()
        with pytest.raises(peerdma.PeerdmaError, match="a map or watch uses; close that first"):
            mailbox.close()
        with pytest.raises(
            peerdma.PeerdmaError, match="another map or watch uses the mailbox; close that one"
        ):
            testing.watch(surface, mailbox, seed=3)
        watch.close()
        watch.close()
        assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"token": 0}, "a token is 1 to 4294967295, not 0"),
        ({"token": 1 << 32}, "a token is"),
        ({"seed": -1}, "a seed is 0 to"),
    ],
)
def test_arguments_are_checked(mailbox_board, every_gpu, options, message):
    with every_gpu.surface(8) as surface, mailbox_board.mailbox() as mailbox:
        with pytest.raises(ValueError, match=message):
            testing.watch(surface, mailbox, **{"seed": 1, **options})
        with pytest.raises(ValueError, match="an empty surface"):
            testing.watch(every_gpu.surface(0), mailbox, seed=1)


def test_a_closed_mailbox_is_refused(mailbox_board, every_gpu):
    mailbox = mailbox_board.mailbox()
    mailbox.close()
    mailbox.close()
    with pytest.raises(peerdma.PeerdmaError, match="the mailbox is closed"):
        mailbox.read()
    with every_gpu.surface(8) as surface, pytest.raises(peerdma.PeerdmaError, match="is closed"):
        testing.watch(surface, mailbox, seed=1)


def test_a_board_that_offers_no_page(board):
    with pytest.raises(peerdma.UnsupportedError, match="only the kernel driver makes dma-bufs"):
        board.export_mailbox()
    with pytest.raises(peerdma.UnsupportedError, match="Start it with --mailbox-page"):
        board.mailbox()


@pytest.mark.parametrize(
    "function",
    [
        "cuPointerSetAttribute",
        "cuMemHostAlloc",
        "cuMemAlloc",
        "cuMemHostRegister",
        "cuMemHostGetDevicePointer",
        "cuStreamCreate",
        "cuMemsetD8Async",
        "cuLaunchKernel",
    ],
)
def test_nothing_is_left_when_a_watch_cannot_start(mailbox_board, cuda_api, function):
    with CudaGpu(0, "device", driver=fake_driver(cuda_api)) as gpu:
        surface, mailbox = gpu.surface(8), mailbox_board.mailbox()
        surface.fill(2)  # compiles the kernels, which stay
        taken = len(cuda_api.memory)
        cuda_api.failures[function] = 0, Result.CUDA_ERROR_OUT_OF_MEMORY
        with pytest.raises(peerdma.CudaError, match=f"{function} failed"):
            testing.watch(surface, mailbox, seed=1)
        assert len(cuda_api.memory) == taken and not cuda_api.registered
        mailbox.close()
        surface.close()


def test_memory_is_freed_when_no_watch_runs_any_more(mailbox_board, cuda_api):
    """CUDA would wait for the watch, which waits for what the caller does next."""
    with CudaGpu(0, "host", driver=fake_driver(cuda_api)) as gpu, gpu.surface(8) as surface:
        earlier, other = mailbox_board.mailbox(), mailbox_board.mailbox()
        watch, surplus = testing.watch(surface, earlier, seed=1), gpu.surface(100)
        watch.close()
        with testing.watch(surface, earlier, seed=1), testing.watch(surface, other, seed=1) as last:
            cuda_api.calls.clear()
            surplus.close()
            del watch
            gc.collect()
            last.close()
            freeing = ("cuMemFree", "cuMemFreeHost", "cuMemHostUnregister")
            # Only of the mailbox whose watch has ended.
            assert [name for name, _ in cuda_api.calls if name in freeing] == [freeing[-1]]
        assert cuda_api.named("cuMemFree") and cuda_api.named("cuMemFreeHost")
        earlier.close()
        other.close()


@pytest.mark.parametrize(("io", "flags"), [(False, 3), (True, 7)])
def test_the_page_of_a_device_is_registered_as_io_memory(mailbox_board, cuda_api, io, flags):
    with (
        CudaGpu(0, "device", driver=fake_driver(cuda_api)) as gpu,
        gpu.surface(8) as surface,
        mailbox_board.mailbox() as mailbox,
    ):
        if io:
            # As behind the kernel driver, where reading a register reads the page.
            memory = mailbox.page.memory

            def read32(offset: int) -> int:
                return ctypes.c_uint32.from_buffer(memory, offset).value

            mailbox.page = MailboxPage(memory, io, read32)
        testing.watch(surface, mailbox, seed=1).close()
        assert cuda_api.named("cuMemHostRegister") == [(mailbox.address, 4096, flags)]


def test_any_kernel_writes_words_of_its_own(mailbox_board, either_gpu):
    """What `kernel` does is all that a kernel has to: store to the addresses that it is given."""

    def kernel(**words: tuple[int, int]) -> None:
        for address, word in words.values():
            ctypes.c_uint32.from_address(address).value = word

    with mailbox_board.mailbox() as mailbox, either_gpu.map_mailbox(mailbox) as page:
        before = mailbox.read()
        kernel(first=(page.register("first"), 11), done=(page.register("done"), 13))
        after = mailbox.read()
        assert (after.first.value, after.done.value) == (11, 13)
        assert before.first.cycle < after.first.cycle < after.done.cycle
        assert after.last == before.last
        with pytest.raises(peerdma.PeerdmaError, match="another map or watch uses the mailbox"):
            either_gpu.map_mailbox(mailbox)
        with pytest.raises(peerdma.PeerdmaError, match="cannot close a mailbox that a map or"):
            mailbox.close()
        with pytest.raises(ValueError, match="the registers first, last, done, not 'second'"):
            page.register("second")
        page.close()
        page.close()
        with pytest.raises(peerdma.PeerdmaError, match="the map is closed"):
            page.register("first")


def test_the_program_writes_words_in_place_of_a_kernel(mailbox_board):
    with mailbox_board.mailbox() as mailbox:
        mailbox.write("last", 0xFFFF_FFFF)
        assert mailbox.read().last.value == 0xFFFF_FFFF
        for token in (0, 1 << 32):
            with pytest.raises(ValueError, match="a token is 1 to"):
                mailbox.write("last", token)
