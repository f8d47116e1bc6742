# SPDX-License-Identifier: BSD-2-Clause
"""Transfers that fail: what is said about them, and that the next one is clean.

The simulated board does as its --fault option says: the Nth read of the core, counted from the
client's coming and descriptor fetches included, goes wrong. A write's first read is its data: the
descriptors of a short chain are pushed.
"""

import os
import signal
import time

import numpy as np
import pytest

import peerdma
from peerdma import testing
from peerdma.board.backend import Piece
from peerdma.memory.memory import HostArray
from peerdma.regs import PUSH_DESCRIPTORS, Capability, ErrorKind, Status
from peerdma.userspace import probe
from peerdma.userspace.backend import UserSpaceBackend
from tests.sim.board.client import IMPATIENT


def works(board: peerdma.Board, gpu: peerdma.Gpu):
    """A copy through the board arrives."""
    with gpu.surface(5000) as src, gpu.surface(5000) as dst:
        src.fill(3)
        with board.pin(src) as s, board.pin(dst) as d:
            board.copy(s, d)
        testing.compare(dst, src)


def run(board: peerdma.Board, work):
    """Runs what the backend has prepared, past the checks of `Board`."""
    transfers = board._backend.transfers
    transfers.start(work, "it", None)
    while not (ended := transfers.collect()):
        transfers.waiter.wait(transfers.deadline(None))
    _, outcome = ended.popleft()
    if isinstance(outcome, Exception):
        raise outcome


@pytest.mark.parametrize(
    ("fault", "status", "kind", "text"),
    [
        ("ur@1", Status.READ_UNSUPPORTED, ErrorKind.UNSUPPORTED_REQUEST, "unsupported request"),
        ("ca@1", Status.READ_ABORT, ErrorKind.COMPLETER_ABORT, "completer abort"),
        ("poison@1", Status.READ_POISONED, ErrorKind.POISONED, "poisoned"),
        ("drop@1", Status.READ_UNSUPPORTED, ErrorKind.COMPLETION_TIMEOUT, "completion timeout"),
    ],
)
def test_a_data_read_fails(gpu, fault, status, kind, text):
    arguments = ["--fault", fault, *IMPATIENT]
    with peerdma.open("sim", arguments=arguments) as board, gpu.surface(100) as surface:
        with board.pin(surface) as pin:
            address = int(pin.handle.scatter.addresses[0]) + 32
            with pytest.raises(peerdma.TransferError) as caught:
                board.write(pin[32:])
            error = caught.value
            assert error.status & status
            assert (error.kind, error.address) == (kind, address)
            assert f"first error {text} at address {address:#x}." in str(error)
            assert str(error).startswith("H2C transfer failed after 0 of 1 descriptors: READ_")
        works(board, gpu)


def test_a_descriptor_fetch_fails(gpu):
    """Of a chain that is too long to be pushed."""
    with peerdma.open("sim", arguments=["--fault", "ur@1"]) as board, gpu.surface(100) as surface:
        count = PUSH_DESCRIPTORS + 1
        with board.pin(surface) as pin:
            pieces = [pin[2 * n : 2 * n + 1] for n in range(count)]
            with pytest.raises(peerdma.TransferError, match="fetching a descriptor") as caught:
                board.copy(pieces, pin[50 : 50 + count])
            assert caught.value.status & Status.DESC_UNSUPPORTED
            error = f"H2C transfer failed after 0 of {count} descriptors"
            assert str(caught.value).startswith(error)
        works(board, gpu)


def test_a_pushed_descriptor_is_not_read(gpu):
    """Nothing is read for a transfer to memory, so no read can fail."""
    with (
        peerdma.open("sim", arguments=["--fault", "ur@1"]) as board,
        gpu.surface(100) as surface,
        board.pin(surface) as pin,
    ):
        board.read(pin)


@pytest.mark.parametrize("number", [1, 3])
def test_a_write_is_lost_in_the_pcie_block(gpu, number):
    """It is an error, not a success with bytes missing."""
    with peerdma.open("sim", arguments=["--fault", f"discard@{number}"]) as board:
        with gpu.surface(1000) as surface, board.pin(surface) as pin:
            with pytest.raises(peerdma.TransferError, match="write dropped") as caught:
                board.read(pin)
            assert caught.value.status & Status.READ_UNSUPPORTED
            assert caught.value.kind == ErrorKind.WRITE_DROPPED
            assert str(caught.value).startswith("C2H transfer failed after 0 of 1 descriptors")
        works(board, gpu)


def both_fail(board: peerdma.Board, late: float, size: int = 60_000):
    """A write and a read at once, of which both fail; how, and the bus addresses of the source.

    Whoever hears of interrupts comes `late` by so many seconds.
    """
    backend = board._backend
    assert isinstance(backend, UserSpaceBackend)
    source, target = (
        backend.pin(HostArray(np.zeros(size, np.uint8)), access)
        for access in (peerdma.Access.READ, peerdma.Access.WRITE)
    )
    transfers = backend.transfers
    transfers.start(backend.prepare_write(Piece(source, 0, size), 0), "H2C", None)
    transfers.start(backend.prepare_read(Piece(target, 0, size), 0), "C2H", None)
    time.sleep(late)
    ended = {}
    while len(ended) < 2:
        transfers.waiter.wait(transfers.deadline(None))
        found = transfers.collect()
        while found:
            tag, outcome = found.popleft()
            ended[tag] = outcome
    start = int(source.scatter.addresses[0])
    for pin in (source, target):
        backend.unpin(pin)
    return ended, range(start, start + size)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("late", [0, 0.3])
def test_each_direction_has_its_own_error(gpu, monkeypatch, late, older):
    """Both fail at once. An older core explains one of them at least, and none by the other's."""
    if older:
        hide = Capability.CAPTURE
        monkeypatch.setattr(probe, "Capability", lambda found: Capability(found) & ~hide)
    faults = ["--fault", "ur@30", "--fault", "discard@400"]
    with peerdma.open("sim", arguments=faults) as board:
        ended, source = both_fail(board, late)
        for error in ended.values():
            assert isinstance(error, peerdma.TransferError)
            assert error.status & Status.READ_UNSUPPORTED
        kinds = ended["H2C"].kind, ended["C2H"].kind
        whole = ErrorKind.UNSUPPORTED_REQUEST, ErrorKind.WRITE_DROPPED
        assert kinds == whole or (older and kinds in ((whole[0], None), (None, whole[1])))
        if kinds[0]:
            assert ended["H2C"].address in source
        if kinds[1]:
            assert ended["C2H"].address == 0
        works(board, gpu)
        # What is left of these errors explains no later one.
        with board.pin(gpu.surface(64)) as pin:
            for prepare in (board._backend.prepare_write, board._backend.prepare_read):
                with pytest.raises(peerdma.TransferError, match="decode") as caught:
                    run(board, prepare(Piece(pin.handle, 0, 64), 1 << 40))
                assert (caught.value.kind, caught.value.address) == (ErrorKind.DECODE, 1 << 40)


def test_a_broken_rule_of_pcie_is_told(gpu, capfd):
    """It is a bug of the gateware: every test that closes such a board fails, as this one would."""
    with (
        pytest.raises(AssertionError, match="the core broke a rule of PCIe"),
        peerdma.open("sim", arguments=["--fault", "illegal@1"]) as board,
        gpu.surface(100) as surface,
        board.pin(surface) as pin,
    ):
        board.read(pin)
    assert "the core sent an illegal TLP: reserved" in capfd.readouterr().err


def test_a_failure_in_the_middle_of_a_copy(gpu):
    """In the second half: the first has arrived by then."""
    with peerdma.open("sim", arguments=["--fault", "ur@200"]) as board:
        size = 2 * board.info().card_ram_size
        s, d = board.pin(gpu.surface(size)), board.pin(gpu.surface(size))
        with pytest.raises(peerdma.TransferError, match="unsupported request"):
            board.copy(s, d)
        works(board, gpu)


def test_memory_that_is_not_mapped_is_named_by_its_address(gpu):
    """Past the checks of `Board`, as a driver with a bug would be."""
    with peerdma.open("sim") as board:
        backend = board._backend
        assert isinstance(backend, UserSpaceBackend)
        memory = HostArray(np.zeros(5000, np.uint8))
        handle = backend.pin(memory, peerdma.Access.READ)
        address = handle.windows[0].address
        backend.unpin(handle)
        with pytest.raises(peerdma.TransferError, match=f"at address {address:#x}") as caught:
            run(board, backend.prepare_write(Piece(handle, 0, 5000), 0))
        assert caught.value.address == address
        works(board, gpu)


def test_a_card_address_that_is_nothing_is_a_decode_error(gpu):
    with peerdma.open("sim") as board, gpu.surface(64) as surface:
        beyond = board.info().card_ram_size + 0x1000
        with board.pin(surface) as pin:
            for prepare in (board._backend.prepare_write, board._backend.prepare_read):
                with pytest.raises(peerdma.TransferError, match="decode") as caught:
                    run(board, prepare(Piece(pin.handle, 0, 64), beyond))
                assert caught.value.kind == ErrorKind.DECODE
        works(board, gpu)


def children() -> list[int]:
    """Process ids of our children."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as stat:
                parent = int(stat.read().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == os.getpid():
            found.append(int(name))
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_board_that_is_killed_in_a_copy_is_lost(gpu, number):
    before = set(children())
    with peerdma.open("sim") as board:
        (child,) = set(children()) - before
        # Long enough for several reports of progress.
        size = 3 << 20
        with board.pin(gpu.surface(size)) as s, board.pin(gpu.surface(size)) as d:
            killed = []

            def kill(*_):
                os.kill(child, number)
                killed.append(time.monotonic())

            with pytest.raises(peerdma.BoardLost) as caught:
                board.copy(s, d, progress=kill)
            assert time.monotonic() - killed[0] < 30
            if number == signal.SIGKILL:
                assert "its process was ended by SIGKILL" in str(caught.value)
            with pytest.raises(peerdma.BoardLost, match="is gone"):
                board.copy(s, d)
        with pytest.raises(peerdma.BoardLost):
            board.leds()
    assert set(children()) == before


def test_a_board_that_hangs_is_a_timeout():
    before = set(children())
    with peerdma.open("sim", timeout=1) as board:
        (child,) = set(children()) - before
        os.kill(child, signal.SIGSTOP)
        with pytest.raises(peerdma.Timeout, match=r"did not answer REGION_READ within 1 s"):
            board.leds()
    assert set(children()) == before


def test_an_interrupted_copy_leaves_the_board_usable(gpu):
    def interrupt(*_):
        raise KeyboardInterrupt

    with peerdma.open("sim") as board:
        s, d = board.pin(gpu.surface(1 << 17)), board.pin(gpu.surface(1 << 17))
        with pytest.raises(KeyboardInterrupt):
            board.copy(s, d, progress=interrupt)
        works(board, gpu)


#: The first four reads of 512 bytes: what they keep of the room for completions leaves too little.
LOST = [word for n in range(1, 5) for word in ("--fault", f"drop@{n}")]
SIZE = 4 * 512


def lose_reads(board: peerdma.Board, pin: peerdma.Pin):
    """Fails for reads that are not answered; others have no room for completions from then on."""
    with pytest.raises(peerdma.TransferError, match="completion timeout"):
        board.write(pin[:SIZE])
    assert board._backend._driver.engine.has_lost_reads()


@pytest.mark.parametrize("way", ["write", "copy", "list"])
def test_transfers_wait_while_lost_reads_keep_the_room_for_completions(gpu, way):
    """The one whose reads were lost fails; those after it take longer, and are right then."""
    with (
        peerdma.open("sim", arguments=[*LOST, *IMPATIENT]) as board,
        gpu.surface(4096) as source,
        gpu.surface(4096) as destination,
        board.pin(source) as s,
        board.pin(destination) as d,
    ):
        source.fill(1)
        lose_reads(board, s)
        if way == "write":
            for _ in range(3):
                board.write(s[:64])
            board.read(d[:64])
            board.copy(s[64:], d[64:])
            testing.compare(destination, source)
        elif way == "copy":
            board.copy(s, d)
            testing.compare(destination, source)
        else:
            # The descriptors of both sides are fetched.
            board.copy([s[n : n + 64] for n in range(0, 1024, 64)], d[:1024])
            board.copy(s[1024:], [d[n : n + 512] for n in range(1024, 4096, 512)])
            testing.compare(destination, source)
        engine = board._backend._driver.engine
        assert not engine.has_lost_reads()
        assert engine.resets == 0
        works(board, gpu)


@pytest.mark.parametrize("gpu", ["discrete"], indirect=True)
def test_what_cannot_be_started_again_starts_when_there_are_no_lost_reads(gpu):
    """What has gone into a user block would be there twice.

    With the usual completion timeout: the wait for lost reads is long enough.
    """
    with (
        peerdma.open("sim", arguments=LOST) as board,
        gpu.surface(SIZE) as source,
        gpu.surface(SIZE) as destination,
        board.pin(source) as s,
        board.pin(destination) as d,
    ):
        source.fill(1)
        lose_reads(board, s)
        backend = board._backend
        run(board, backend.prepare_process([Piece(s.handle, 0, SIZE)], [Piece(d.handle, 0, SIZE)]))
        assert not backend._driver.engine.has_lost_reads()
        testing.compare(destination, source)


def test_an_error_says_for_how_long_there_is_no_room_for_completions(gpu):
    """Of a transfer that has waited for as long as it may."""
    with (
        peerdma.open("sim", arguments=[*LOST, *IMPATIENT]) as board,
        gpu.surface(SIZE) as surface,
        board.pin(surface) as pin,
    ):
        lose_reads(board, pin)
        engine = board._backend._driver.engine
        engine.quarantine = 0.0
        with pytest.raises(peerdma.TransferError) as caught:
            board.write(pin[:64])
        assert caught.value.kind == ErrorKind.NO_COMPLETION_SPACE
        assert "keep the room for completions, for 0 s at most. Try again" in str(caught.value)
