# SPDX-License-Identifier: BSD-2-Clause
"""Transfers on the simulated board: every byte, every alignment, and what is refused beforehand.

    surface ──H2C──▶ card RAM ──C2H──▶ surface

Destinations lie in a field of guard bytes, which must stay as they were.
"""

import threading

import numpy as np
import pytest

import peerdma
from peerdma import testing
from peerdma.board.link import Link
from tests.host.conftest import simulated_path

GUARD = 0xA5
SIZES = [0, 1, 2, 3, 4, 5, 63, 64, 65, 127, 128, 129, 511, 512, 513, 4095, 4096, 4097, 9999]


@pytest.fixture
def source(gpu):
    """A surface of 20,000 bytes of pattern."""
    with gpu.surface(20_000) as surface:
        surface.fill(1)
        yield surface


@pytest.fixture
def target(gpu):
    """A surface of 20,000 guard bytes."""
    with gpu.surface(20_000) as surface:
        surface.set(GUARD)
        yield surface


def expect_only(target, start: int, data: np.ndarray):
    """The surface holds `data` at byte `start`, and guard bytes around it; puts these back."""
    found = target.get()
    expected = np.full(len(found), GUARD, np.uint8)
    expected[start : start + len(data)] = data
    differing = np.flatnonzero(found != expected)
    assert not len(differing), f"byte {differing[0]} of {len(found)}, data from {start}"
    target.set(GUARD)


def ways(board, gpu) -> peerdma.Paths:
    """The paths of a copy between surfaces of `gpu`."""
    # A real GPU's memory is reached through its BAR, or by copies of this process, which says why.
    with gpu.surface(1) as surface, board.pin(surface) as pin:
        if gpu.emulated or surface.path is peerdma.DataPath.HOST_MEMORY:
            assert pin.path is surface.path
        else:
            assert pin.path is simulated_path(pin)
        return peerdma.Paths(pin.path, pin.path)


def test_the_example(board, gpu):
    src, dst = gpu.surface((64, 64), "u4"), gpu.surface((64, 64), "u4")
    src.fill(seed=1)
    dst.fill(seed=2)
    with board.pin(src) as s, board.pin(dst) as d:
        transfer = board.copy(s, d)
    gpu.verify(dst, seed=1)
    assert transfer.bytes == 64 * 64 * 4
    assert transfer.simulated
    assert transfer.path == ways(board, gpu)
    clock = board.info().extension.clock_khz * 1000
    assert transfer.cycles / clock < transfer.seconds < transfer.cycles / clock + 100e-6
    assert 0 < transfer.rate < transfer.limit
    way = transfer.path.to_board
    assert str(transfer.path) == f"{way} to the board, {way} from the board"
    assert "16384 bytes in " in str(transfer)
    assert "simulated board" in str(transfer)


@pytest.mark.parametrize("nbytes", SIZES)
def test_sizes_and_alignments(board, source, target, nbytes, seed):
    """Source and destination each at any byte, congruent or not."""
    random = np.random.default_rng([seed, nbytes])
    places = [(0, 0), (1, 0), (0, 3), tuple(random.integers(0, 10_000, 2).tolist())]
    with board.pin(source) as s, board.pin(target) as d:
        for start, to in places:
            transfer = board.copy(s[start : start + nbytes], d[to : to + nbytes])
            assert transfer.bytes == nbytes
            expect_only(target, to, source.get()[start : start + nbytes])


@pytest.mark.parametrize("address", [0, 1, 7, 4093, 65_000])
def test_write_and_read_use_the_card_address(board, gpu, source, target, address):
    nbytes = 500
    with board.pin(source) as s, board.pin(target) as d:
        written = board.write(s[3 : 3 + nbytes], address)
        read = board.read(d[10 : 10 + nbytes], address)
    expect_only(target, 10, source.get()[3 : 3 + nbytes])
    assert (written.bytes, read.bytes) == (nbytes, nbytes)
    way, _ = ways(board, gpu)
    assert written.path == (way, None)
    assert read.path == (None, way)
    assert written.limit != read.limit


def test_card_ram_is_memory(board, seed):
    """All of it, written in random pieces, reads back as a whole."""
    random = np.random.default_rng(seed)
    size = board.info().card_ram_size
    model = np.zeros(size, np.uint8)
    board.write(model)
    for _ in range(12):
        start, stop = sorted(random.integers(0, size + 1, 2).tolist())
        stop = min(stop, start + 3000)
        model[start:stop] = random.integers(0, 256, stop - start)
        board.write(model[start:stop], start)
    found = np.full(size, GUARD, np.uint8)
    board.read(found)
    assert (found == model).all()


def test_card_ram_up_to_its_end_is_apart_from_copies(gpu):
    """The byte after the last one is where the engine's own memory begins."""
    with peerdma.open("sim", timeout=30) as board, gpu.surface(100) as src, gpu.surface(100) as dst:
        src.fill(7)
        with board.pin(src) as s, board.pin(dst) as d:
            board.copy(s[:13], d[:13])
            board.write(s[:8], board.info().card_ram_size - 8)
            board.copy(s, d)
            board.read(d[:8], board.info().card_ram_size - 8)
        testing.compare(dst, src)


def test_more_than_card_ram_goes_too_and_tells_its_progress(board, gpu):
    nbytes = 2 * board.info().card_ram_size + 13
    steps = []
    with gpu.surface(nbytes + 8) as src, gpu.surface(nbytes) as dst:
        src.fill(7)
        with board.pin(src) as s, board.pin(dst) as d:
            board.copy(s[5 : 5 + nbytes], d, progress=lambda *step: steps.append(step))
        assert (dst.get() == src.get()[5 : 5 + nbytes]).all()
    assert steps == sorted(steps)
    assert steps[-1] == (nbytes, nbytes)


def test_scatter_lists_with_unequal_pieces(board, source, target, seed):
    """Random pieces, empty and one-byte ones among them, divided differently on each side."""
    random = np.random.default_rng(seed)
    with board.pin(source) as s, board.pin(target) as d:
        for _ in range(5):
            total = int(random.integers(1, 3000))

            def pieces(total=total):
                cuts = np.sort(random.integers(0, total + 1, random.integers(0, 30)))
                return np.diff(np.concatenate(([0], cuts, [total]))).tolist()

            from_pieces, expected = [], []
            for length in pieces():
                start = int(random.integers(0, 20_000 - length))
                from_pieces.append(s[start : start + length])
                expected.append(source.get()[start : start + length])
            to_pieces, ranges, at = [], [], 0
            for length in pieces():
                at += int(random.integers(0, 20))
                to_pieces.append(d[at : at + length])
                ranges.append((at, at + length))
                at += length
            board.copy(from_pieces, to_pieces)
            whole = target.get()
            found = np.concatenate([whole[a:b] for a, b in ranges])
            assert (found == np.concatenate(expected)).all()
            for a, b in ranges:
                whole[a:b] = GUARD
            target.set(whole)
            expect_only(target, 0, np.empty(0, np.uint8))


def test_more_pieces_than_the_descriptor_ring_holds(board, source, target):
    with board.pin(source) as s, board.pin(target) as d:
        board.copy([s[i : i + 1] for i in range(0, 10_000, 2)], d[7 : 7 + 5000])
    expect_only(target, 7, source.get()[:10_000:2])


def test_host_arrays_of_any_kind(board):
    """Memory without a file behind it: the board asks for it by messages."""
    numbers = np.arange(3000, dtype="f8").reshape(30, 100)
    numbers.flags.writeable = False
    result = np.zeros_like(numbers)
    with board.pin(numbers) as s, board.pin(result) as d:
        transfer = board.copy(s, d)
        assert "HostArray 24000 bytes" in repr(s)
    assert (result == numbers).all()
    assert transfer.path == (peerdma.DataPath.HOST_MEMORY, peerdma.DataPath.HOST_MEMORY)


def test_the_longer_way_is_the_one_reported(board):
    array = np.zeros(10, np.uint8)
    surface = peerdma.gpu("emulated", memory="device").surface(20)
    with board.pin(surface) as s, board.pin(array) as h:
        transfer = board.copy([h[:4], s[:2]], s[10:16])
    assert transfer.path == (peerdma.DataPath.HOST_MEMORY, peerdma.DataPath.PEER_TO_PEER)


def test_nothing_to_move_is_fine(board, source, target):
    with board.pin(source) as s, board.pin(target) as d, board.pin(np.zeros(0)) as empty:
        for transfer in (
            board.copy([], []),
            board.copy(s[5:5], d[9:2]),
            board.copy(empty, empty),
            board.write(s[:0], board.info().card_ram_size),
        ):
            assert (transfer.bytes, transfer.cycles, transfer.rate) == (0, 0, 0)
            assert transfer.path == (None, None) or transfer.path.from_board is None
    expect_only(target, 0, np.empty(0, np.uint8))


def test_one_surface_can_be_both_sides(board, target):
    target.copy_in(0, np.arange(100, dtype=np.uint8))
    with board.pin(target) as one, board.pin(target) as again:
        board.copy(one[:50], again[50:100])
        one.close()
        # The other pin still stands.
        board.copy(again[50:60], again[60:70])
    assert target.get()[50:70].tolist() == [*range(10), *range(10)]


@pytest.mark.parametrize(
    ("sources", "destinations", "at"),
    [
        ([(0, 100)], [(0, 100)], 0),
        ([(0, 100)], [(99, 199)], 99),
        ([(99, 199)], [(0, 100)], 99),
        ([(0, 10), (50, 60)], [(20, 39), (59, 60)], 59),
        ([(10, 20)], [(0, 5), (11, 16)], 11),
    ],
)
def test_overlap_is_refused_before_anything_moves(board, target, sources, destinations, at):
    with board.pin(target) as one, board.pin(target) as again:
        from_spans = [one[start:stop] for start, stop in sources]
        to_spans = [again[start:stop] for start, stop in destinations]
        with pytest.raises(peerdma.TransferError, match="overlap at") as caught:
            board.copy(from_spans, to_spans)
    assert caught.value.address == target.address + at
    assert f"{target.address + at:#x}" in str(caught.value)
    expect_only(target, 0, np.empty(0, np.uint8))


def test_sides_of_different_length(board, source, target):
    with board.pin(source) as s, board.pin(target) as d:
        short = d[1:]
        with pytest.raises(peerdma.TransferError, match="copy 20000 bytes into 19999"):
            board.copy(s, short)


@pytest.mark.parametrize("address", [-1, 65_537 - 500, peerdma.USER_STREAM + 1])
def test_beyond_card_ram(board, source, address):
    with board.pin(source) as s:
        with pytest.raises(peerdma.TransferError, match=r"500 bytes at card address .* 65536 b"):
            board.write(s[:500], address)
        with pytest.raises(peerdma.TransferError, match="Transfer less at a time"):
            board.read(s[:500], address)


def test_a_pin_that_is_closed_is_not_transferred(board, source, target):
    address = f"{source.address:#x}"
    with board.pin(target) as d:
        pin = board.pin(source)
        span = pin[10:20]
        pin.close()
        pin.close()
        assert pin.closed
        assert "closed" in repr(pin)
        with pytest.raises(peerdma.PinError, match=f"20000 bytes at {address}: .* is closed"):
            board.copy(pin, d)
        with pytest.raises(peerdma.PinError, match=r"10 bytes at .* is closed"):
            board.copy(span, d[:10])


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (np.zeros((10, 10))[:, ::2], "not one contiguous piece"),
        (np.array([object()]), "not one contiguous piece"),
        (7, "cannot pin a int, which is no array; give an array of numpy, PyTorch"),
    ],
)
def test_what_cannot_be_pinned(board, memory, message):
    with pytest.raises(peerdma.PinError, match=message):
        board.pin(memory)


def test_surfaces_stay_while_they_are_pinned(board, gpu):
    surface = gpu.surface(100)
    pins = board.pin(surface), board.pin(surface)
    with pytest.raises(peerdma.PinError, match="pinned 2 times; close the pins first"):
        surface.close()
    for pin in pins:
        pin.close()
    surface.close()
    with pytest.raises(peerdma.PinError, match="surface is closed"):
        board.pin(surface)


def test_pins_are_indexed_with_ranges_of_bytes(board, source):
    with board.pin(source) as pin:
        span = pin[100:-1]
        assert (span.start, span.stop, span.nbytes) == (100, 19_999, 19_899)
        assert span.address == source.address + 100
        for wrong in (5, slice(0, 10, 2)):
            with pytest.raises(TypeError, match=r"pin\[start:stop\]"):
                pin[wrong]


def test_leds(board):
    for value in (0, 5, 7):
        assert board.leds(value) == value
        assert board.leds() == value
    for value in (-1, 8):
        with pytest.raises(ValueError, match=f"bits of a number 0 to 7, not {value}"):
            board.leds(value)


def test_what_is_known_about_the_board(board):
    info = board.info()
    assert info.simulated
    assert info.identity == (0x10EE, 0x7021, 0x10EE, 0x5045)
    assert (info.channels, info.card_ram_size, info.interrupts) == ((1, 1), 65536, "MSI")
    assert info.extension.version[0] == 1
    assert info.extension.link == Link(2, 1, 128, 512, 64)
    assert info.extension.clock_khz > 0
    assert info.extension.time_scale >= 1
    assert repr(board).startswith("<Board simulated board, ")


def test_threads_take_turns(board, gpu):
    """As many copies at once as threads; each finds its own data."""

    def work(seed: int):
        try:
            with gpu.surface(3000) as src, gpu.surface(3000) as dst:
                src.fill(seed)
                with board.pin(src) as s, board.pin(dst) as d:
                    for _ in range(3):
                        board.copy(s, d)
                        gpu.verify(dst, seed=seed)
                        dst.fill(0)
        except BaseException as error:
            errors.append(error)

    errors: list[BaseException] = []
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not errors
