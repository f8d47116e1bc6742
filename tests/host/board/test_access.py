# SPDX-License-Identifier: BSD-2-Clause
"""Memory that a board cannot write, or not any more: nothing reports success when nothing moved.

Read-only memory, and pins used against their direction, are refused before anything moves. Writes
that find no memory all the same, because it was withdrawn, end the transfer with an error.
"""

import ctypes
import itertools
import mmap

import numpy as np
import pytest

import peerdma
from peerdma import Access, testing
from peerdma.regs import ErrorKind, Status
from peerdma.testing import pattern
from tests.boards import options

NBYTES = 5000
READ_ONLY = r"bytes at 0x[0-9a-f]+ as a destination: .* is read-only; nothing was transferred\. Use"
LOST = r"made \d+ writes of \d+ bytes in all to bus addresses that are not mapped writable"


@pytest.fixture(scope="module")
def plain():
    """A board without user stream and extension block."""
    with peerdma.open("sim", arguments=options("plain")) as board:
        yield board


@pytest.fixture(params=["board", "plain"])
def each_board(request):
    """A board of each kind."""
    return request.getfixturevalue(request.param)


def works(board):
    """A copy between arrays arrives."""
    source = np.random.default_rng(1).integers(0, 256, NBYTES, np.uint8)
    target = np.zeros(NBYTES, np.uint8)
    with board.pin(source) as s, board.pin(target) as d:
        board.copy(s, d)
    assert (target == source).all()


# Read-only memory ----------------------------------------------------------------------------


def frozen(_):
    array = np.zeros(NBYTES, np.uint8)
    array.flags.writeable = False
    return array


def of_bytes(_):
    return np.frombuffer(bytes(NBYTES), np.uint8)


def protected(_):
    return np.frombuffer(mmap.mmap(-1, NBYTES, prot=mmap.PROT_READ), np.uint8)


def of_file(folder):
    (folder / "file").write_bytes(bytes(NBYTES))
    return np.memmap(folder / "file", np.uint8, "r")


@pytest.fixture(params=[frozen, of_bytes, protected, of_file])
def constant(request, tmp_path):
    """Read-only memory of each kind, all zero."""
    array = request.param(tmp_path)
    yield array
    assert not array.any()


def test_read_only_memory_is_no_destination(each_board, constant, seed):
    random = np.random.default_rng(seed)
    source = random.integers(1, 256, NBYTES, np.uint8)
    target = np.zeros(NBYTES, np.uint8)
    with (
        each_board.pin(source) as s,
        each_board.pin(constant) as c,
        each_board.pin(target) as d,
    ):
        start, stop = np.sort(random.choice(NBYTES + 1, 2, replace=False)).tolist()
        middle = (start + stop) // 2
        told = []
        for ask in (
            lambda: each_board.copy(s, c),
            lambda: each_board.copy(s[start:stop], c[start:stop]),
            lambda: each_board.copy(s, c, progress=lambda *step: told.append(step)),
            lambda: each_board.copy(s[start:stop], [d[start:middle], c[middle:stop]]),
            lambda: each_board.read(c),
            lambda: each_board.read(c[start:stop], 64),
            lambda: each_board.read(constant),
        ):
            with pytest.raises(peerdma.PinError, match=READ_ONLY):
                ask()
        assert not told
        assert not target.any()
        each_board.copy(c, d)
    with pytest.raises(peerdma.PinError, match=f"cannot pin {NBYTES} {READ_ONLY}"):
        each_board.pin(constant, access=Access.WRITE)
    assert not each_board._pins


def test_read_only_memory_is_no_destination_of_user_blocks(converter, sensor, constant):
    source = np.ones(2 * NBYTES, np.uint8)
    with (
        converter.pin(source) as s,
        converter.pin(constant) as c,
        pytest.raises(peerdma.PinError, match=READ_ONLY),
    ):
        converter.process(s, c)
    ring = [np.zeros(NBYTES, np.uint8), constant]
    for overwrite in (False, True):
        with pytest.raises(peerdma.PinError, match=READ_ONLY):
            sensor.frames(ring, overwrite=overwrite)
        with sensor.pin(constant) as c, pytest.raises(peerdma.PinError, match=READ_ONLY):
            sensor.frames([ring[0], c[:]], overwrite=overwrite, frame_bytes=100)
    assert not sensor._pins


def test_read_only_memory_is_no_destination_of_the_kernel_driver(node_driver, node_board, constant):
    source = np.ones(NBYTES, np.uint8)
    with node_board.pin(source) as s, node_board.pin(constant) as c:
        for ask in (
            lambda: node_board.copy(s, c),
            lambda: node_board.read(c),
            lambda: node_board.read(constant),
        ):
            with pytest.raises(peerdma.PinError, match=READ_ONLY):
                ask()
    assert not node_driver.named("SUBMIT")


# Direction -----------------------------------------------------------------------------------


def test_pins_are_used_in_their_direction(each_board, every_gpu):
    with every_gpu.surface(NBYTES) as source, every_gpu.surface(NBYTES) as target:
        source.fill(1)
        with (
            each_board.pin(source, access=Access.READ) as s,
            each_board.pin(target, access=Access.WRITE) as d,
        ):
            assert (s.access, d.access) == (Access.READ, Access.WRITE)
            for ask, side, lacks in (
                (lambda: each_board.copy(d, s), "source", "READ"),
                (lambda: each_board.copy(s[:9], s[9:18]), "destination", "WRITE"),
                (lambda: each_board.write(d), "source", "READ"),
                (lambda: each_board.read(s[5:]), "destination", "WRITE"),
            ):
                with pytest.raises(
                    peerdma.PinError,
                    match=rf"as the {side} of a transfer: .* without Access\.{lacks}; nothing was",
                ):
                    ask()
            assert not target.get().any()
            each_board.copy(s, d)
        every_gpu.verify(target, seed=1)


def test_the_kernel_driver_knows_the_direction(node_driver, node_board, device_gpu):
    array = np.zeros(NBYTES, np.uint8)
    with device_gpu.surface(NBYTES) as surface:
        for memory, request in ((array, "PIN_PAGES"), (surface, "PIN_DMABUF")):
            for access in (Access.READ, Access.WRITE, Access.READ | Access.WRITE):
                with node_board.pin(memory, access=access) as pin:
                    assert pin.access == access
                    assert node_driver.named(request)[-1][1]["access"] == access
        with node_board.pin(surface, access=Access.READ) as s, pytest.raises(peerdma.PinError):
            node_board.copy(s[:8], s[8:16])
    assert not node_driver.named("SUBMIT")


# Memory that is withdrawn --------------------------------------------------------------------


def withdraw(board, pin):
    """Takes memory from the board behind the pin's back, as a driver with a bug would."""
    board._backend._platform.unmap(pin.handle.windows)
    pin.handle.windows.clear()


@pytest.fixture(params=["surface", "array"])
def memory(request):
    """Makes memory: of a file that the board maps, or reached by messages."""
    if request.param == "array":
        yield lambda nbytes: np.zeros(nbytes, np.uint8)
    else:
        with peerdma.gpu("emulated") as gpu:
            yield gpu.surface


def lost_bytes(error):
    """How many bytes were lost, as the error says."""
    return int(str(error).split(" writes of ")[1].split()[0])


def test_writes_to_memory_that_is_gone_are_an_error(each_board, memory, seed):
    random = np.random.default_rng(seed)
    with each_board.pin(memory(NBYTES)) as s:
        for transfer in (lambda s, d: each_board.copy(s, d), lambda _, d: each_board.read(d)):
            start, stop = np.sort(random.choice(NBYTES + 1, 2, replace=False)).tolist()
            with each_board.pin(memory(NBYTES)) as d:
                address = int(d.handle.scatter.part(start, stop).addresses[0])
                withdraw(each_board, d)
                for _ in range(2):
                    with pytest.raises(peerdma.TransferError, match=LOST) as caught:
                        transfer(s[start:stop], d[start:stop])
                    assert caught.value.address == address
                    assert f"the first at {address:#x}." in str(caught.value)
                    assert lost_bytes(caught.value) == stop - start
                works(each_board)


def test_reads_of_memory_that_is_gone_are_an_error(each_board, memory):
    with each_board.pin(memory(NBYTES)) as s, each_board.pin(memory(NBYTES)) as d:
        withdraw(each_board, s)
        for transfer in (lambda: each_board.copy(s, d), lambda: each_board.write(s)):
            with pytest.raises(peerdma.TransferError, match="READ_UNSUPPORTED") as caught:
                transfer()
            assert caught.value.status & Status.READ_UNSUPPORTED
            if each_board.info().extension:
                assert caught.value.kind == ErrorKind.UNSUPPORTED_REQUEST
        works(each_board)


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_pin_that_is_closed_in_the_middle_of_a_copy(each_board, memory, side):
    """From the report of progress, say: it is closed when the copy has ended, which is whole."""
    nbytes = (1 << 20) + 4096 if each_board.info().extension else 1 << 17
    source, target = memory(nbytes), memory(nbytes)
    if isinstance(source, np.ndarray):
        source[:] = 0x5A
    else:
        source.set(np.uint8(0x5A))
    s, d = each_board.pin(source), each_board.pin(target)
    closes = s if side == "source" else d
    each_board.copy(s, d, progress=lambda *_: closes.close())
    assert closes.closed
    found = target if isinstance(target, np.ndarray) else target.get()
    assert (found == 0x5A).all()
    works(each_board)
    s.close()
    d.close()


def test_a_user_block_writes_to_memory_that_is_gone(converter, memory):
    source = np.ones(NBYTES, "f4")
    with converter.pin(source) as s, converter.pin(memory(2 * NBYTES)) as d:
        withdraw(converter, d)
        with pytest.raises(peerdma.TransferError, match=LOST) as caught:
            converter.process(s, d)
        assert lost_bytes(caught.value) == 2 * NBYTES
    target = np.zeros(2 * NBYTES, np.uint8)
    with converter.pin(source) as s, converter.pin(target) as d:
        converter.process(s, d)
    assert (target.view("u2") == 0x3F80).all()


@pytest.fixture
def source(sensor):
    """The pattern source, off at the end."""
    source = testing.PatternSource(sensor)
    yield source
    source.stop()


@pytest.mark.parametrize("overwrite", [False, True])
def test_frames_are_not_handed_out_if_they_did_not_arrive(sensor, source, memory, overwrite):
    source.start(NBYTES, seed=7)
    ring = [sensor.pin(memory(NBYTES)) for _ in range(3)]
    with sensor.frames(ring, overwrite=overwrite) as stream:
        next(stream)
        withdraw(sensor, ring[1])
        with pytest.raises(peerdma.TransferError, match=LOST):
            list(itertools.islice(stream, 20))
        assert stream.closed
    for pin in ring:
        pin.close()
    with sensor.frames([memory(NBYTES) for _ in range(2)]) as stream:
        for frame in itertools.islice(stream, 4):
            expected = pattern.fill_bytes(7 + frame.number, 0, NBYTES)
            assert (np.asarray(frame.array) == expected).all()


def test_the_only_frame_of_a_ring_is_not_handed_out_if_it_did_not_arrive(sensor, source, memory):
    """The board has no credits to go on after it."""
    with sensor.pin(memory(NBYTES)) as pin, sensor.frames([pin]) as stream:
        withdraw(sensor, pin)
        source.start(NBYTES)
        with pytest.raises(peerdma.TransferError, match=LOST) as caught:
            next(stream)
        # The run is stopped as soon as a look finds a loss: more of the frame may not have come.
        assert 0 < lost_bytes(caught.value) <= NBYTES


def test_asking_for_an_intact_frame_closes_a_stream_that_failed(sensor, source, memory):
    source.start(NBYTES)
    ring = [sensor.pin(memory(NBYTES)) for _ in range(2)]
    with sensor.frames(ring, overwrite=True) as stream:
        frame = next(stream)
        for pin in ring:
            withdraw(sensor, pin)
        with pytest.raises(peerdma.TransferError, match=LOST):
            [frame.intact() for _ in range(10_000)]
        assert stream.closed
    for pin in ring:
        pin.close()
    sensor.read(np.zeros(NBYTES, np.uint8))


# Memory that the program itself took away -----------------------------------------------------


def test_memory_that_the_program_protects_while_it_is_pinned(each_board):
    """numpy still takes it for writable: the process would be killed if it wrote there."""
    libc = ctypes.CDLL(None, use_errno=True)
    pages = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    target = np.frombuffer(pages, np.uint8)
    second = ctypes.c_void_p(target.ctypes.data + mmap.PAGESIZE)
    with each_board.pin(np.ones(target.size, np.uint8)) as s, each_board.pin(target) as d:
        window = d.handle.windows[0].address
        assert not libc.mprotect(second, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ)
        with pytest.raises(peerdma.TransferError, match=LOST) as caught:
            each_board.copy(s, d)
        assert caught.value.address == window + mmap.PAGESIZE
        assert lost_bytes(caught.value) == mmap.PAGESIZE
        rights = mmap.PROT_READ | mmap.PROT_WRITE
        assert not libc.mprotect(second, ctypes.c_size_t(mmap.PAGESIZE), rights)
        each_board.copy(s, d)
    assert target.all()


def test_a_file_that_is_cut_while_it_is_pinned(each_board, tmp_path):
    (tmp_path / "file").write_bytes(bytes(3 * mmap.PAGESIZE))
    array = np.memmap(tmp_path / "file", np.uint8, "r+")
    other = np.ones(array.size, np.uint8)
    with each_board.pin(array) as a, each_board.pin(other) as o:
        with (tmp_path / "file").open("r+b") as file:
            file.truncate(mmap.PAGESIZE)
        with pytest.raises(peerdma.TransferError, match=LOST) as caught:
            each_board.copy(o, a)
        assert lost_bytes(caught.value) == 2 * mmap.PAGESIZE
        with pytest.raises(peerdma.TransferError, match="READ_UNSUPPORTED"):
            each_board.copy(a, o)
        each_board.copy(o[: mmap.PAGESIZE], a[: mmap.PAGESIZE])
        assert (array[: mmap.PAGESIZE] == 1).all()
