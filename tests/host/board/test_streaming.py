# SPDX-License-Identifier: BSD-2-Clause
"""Frames that a source on the board streams into a ring of surfaces."""

import itertools
import threading
import time
import zlib

import numpy as np
import pytest

import peerdma
from peerdma import testing
from peerdma.testing import pattern
from tests.boards import options

FRAME = 6000


@pytest.fixture
def source(sensor):
    """The pattern source, off at the end."""
    source = testing.PatternSource(sensor)
    yield source
    source.stop()


def ring_of(gpu, count, nbytes=FRAME):
    """Surfaces for a stream."""
    return [gpu.surface(nbytes) for _ in range(count)]


def is_right(frame, seed):
    """Whether the surface still holds its frame; that must then be the right one."""
    found = frame.array.get()
    if not frame.intact():
        return False
    expected = pattern.fill_bytes(seed + frame.number, 0, found.size)
    assert (found == expected).all(), f"frame {frame.number}"
    return True


def test_frames_come_whole_and_in_order(sensor, source, gpu):
    """More frames than surfaces; the board waits for those that are in use."""
    source.start(FRAME, seed=11)
    ring = ring_of(gpu, 3)
    with sensor.frames(ring) as stream:
        for count, frame in enumerate(itertools.islice(stream, 10)):
            assert frame.array is ring[count % 3]
            assert frame.number == count
            gpu.verify(frame.array, seed=11 + count)
            assert frame.intact()
        assert (stream.dropped, source.dropped) == (0, 0)
    assert stream.closed


def test_each_stream_begins_with_a_new_frame(sensor, source, gpu):
    """Nothing of an earlier stream is left, whatever its frames were."""
    for nbytes, seed, overwrite in ((FRAME, 1, False), (8, 2, True), (20_000, 3, False)):
        source.start(nbytes, seed=seed)
        with sensor.frames(ring_of(gpu, 2, nbytes), overwrite=overwrite) as stream:
            for frame in itertools.islice(stream, 3):
                is_right(frame, seed)


def test_one_surface_is_enough(sensor, source, gpu):
    source.start(FRAME)
    with sensor.frames(ring_of(gpu, 1)) as stream:
        for frame in itertools.islice(stream, 4):
            gpu.verify(frame.array, seed=frame.number)


def test_a_frame_can_be_a_part_of_a_surface_or_array(sensor, source, gpu):
    """Frames of 100 bytes into whatever can be pinned; what is beside them stays."""
    source.start(100, seed=5)
    array = np.full(150, 7, np.uint8)
    surface = gpu.surface(300)
    surface.set(np.uint8(7))
    with sensor.pin(surface) as pin:
        items = [array, pin[100:250], pin]
        frames = [
            lambda: array[:100],
            lambda: surface.get()[100:200],
            lambda: surface.get()[:100],
        ]
        with sensor.frames(items, frame_bytes=100) as stream:
            pin.close()
            for number in range(6):
                assert next(stream).array is items[number % 3]
                expected = pattern.fill_bytes(5 + number, 0, 100)
                assert (frames[number % 3]() == expected).all()
    assert (array[100:] == 7).all()
    assert (surface.get()[200:] == 7).all()


def test_a_slow_loop_gets_the_newest_frame(sensor, source, gpu):
    """The board goes round; frames in between are counted, and one that was written over is."""
    source.start(FRAME, seed=100)
    with sensor.frames(ring_of(gpu, 4), overwrite=True) as stream:
        first = next(stream)
        dropped = stream.dropped
        assert dropped == first.number
        # The board has gone round before the next frame is asked for.
        while first.intact():
            pass
        frame = next(stream)
        assert frame.number >= first.number + 3
        assert stream.dropped == dropped + frame.number - first.number
        # How many are in time depends on this machine; that one is, at some time, does not.
        for frame in itertools.islice(stream, 1000):
            if is_right(frame, 100):
                break
        else:
            pytest.fail("no frame in 1,000 was in time")
        last = frame.number
    assert last - 1000 <= stream.dropped <= last
    assert not frame.intact()


def test_frames_bring_their_records(sensor, source):
    """Number, length, time and CRC as the board made them; the library compares the CRC."""
    source.start(FRAME, seed=11)
    ring = [np.empty(FRAME, np.uint8) for _ in range(3)]
    with sensor.frames(ring) as stream:
        last = 0
        for count, frame in enumerate(itertools.islice(stream, 8)):
            record, array = frame.record, frame.array
            crc = zlib.crc32(array)
            assert (record.number, record.nbytes, record.crc) == (count, FRAME, crc)
            assert record.dropped == 0
            # A word leaves the source in each cycle at most.
            assert record.cycles >= last + count * FRAME // 4
            last = last or record.cycles
            assert frame.intact()
            array[FRAME // 2] ^= 1
            assert not frame.intact()


@pytest.mark.parametrize("overwrite", [False, True])
def test_frames_have_times_of_the_simulation(sensor, source, overwrite):
    """Of this machine's clock: each began after the run did, and before it was received."""
    source.start(FRAME)
    ring = [np.empty(FRAME, np.uint8) for _ in range(3)]
    before = time.monotonic_ns()
    with sensor.frames(ring, overwrite=overwrite) as stream:
        frames = [(frame, time.monotonic_ns()) for frame in itertools.islice(stream, 8)]
    found = [(frame.time, now) for frame, now in frames if frame.record is not None]
    assert found or overwrite
    for when, now in found:
        assert when.simulated
        assert before <= when.ns - when.bound_ns + 1
        assert when.ns + when.bound_ns <= now + 1


def test_records_count_what_the_source_dropped(sensor, source):
    source.start(FRAME, interval=300)
    with sensor.frames([np.empty(FRAME, np.uint8)]) as stream:
        dropped = [frame.record.dropped for frame in itertools.islice(stream, 4)]
        assert dropped == sorted(dropped)
        assert 0 < dropped[-1] <= source.dropped


def test_the_newest_frame_has_its_record(sensor, source):
    """Unless it was written over: then there is none, or the frame is not intact."""
    source.start(FRAME, seed=100)
    with sensor.frames([np.empty(FRAME, np.uint8) for _ in range(8)], overwrite=True) as stream:

        def is_recorded(frame):
            record, crc = frame.record, zlib.crc32(frame.array)
            if record is None or not frame.intact():
                return False
            assert (record.number, record.nbytes, record.crc) == (frame.number, FRAME, crc)
            return True

        assert any(is_recorded(frame) for frame in itertools.islice(stream, 1000))


@pytest.mark.parametrize("nbytes", [FRAME - 4, FRAME + 4, 4, 5 * FRAME])
@pytest.mark.parametrize("overwrite", [False, True])
def test_frames_of_another_size_are_noticed(sensor, source, gpu, nbytes, overwrite):
    source.start(nbytes)
    stream = sensor.frames(ring_of(gpu, 2), overwrite=overwrite)
    with pytest.raises(peerdma.TransferError, match=r"frame \d+ is not 6000 bytes long"):
        next(stream)
    assert stream.closed


def test_a_sensor_that_does_not_wait_drops_frames(sensor, source, gpu):
    """It has its own clock: while the loop keeps the only surface, frames are lost at the source,
    and those that come are whole."""
    source.start(FRAME, interval=3000, seed=9)
    with sensor.frames(ring_of(gpu, 1)) as stream:
        for frame in itertools.islice(stream, 3):
            gpu.verify(frame.array, seed=9 + frame.number)
    source.start(FRAME, interval=300, seed=9)
    with sensor.frames(ring_of(gpu, 2)) as stream:
        for frame in itertools.islice(stream, 5):
            gpu.verify(frame.array, seed=9 + frame.number)
        # Frames of 1,500 words cannot come every 300 cycles.
        assert source.dropped > frame.number


def test_a_stream_waits_for_a_slow_source(sensor, source, gpu):
    """The simulated board does not rest while its source counts."""
    source.start(64, interval=100_000, seed=1)
    with sensor.frames(ring_of(gpu, 2, 64)) as stream:
        for frame in itertools.islice(stream, 3):
            gpu.verify(frame.array, seed=1 + frame.number)


def test_without_frames_a_stream_times_out_and_closes(sensor, gpu):
    stream = sensor.frames(ring_of(gpu, 2), timeout=0.2)
    waits = r"after 0 frames\. The board waits for: the user block to give data .* Is the source"
    with pytest.raises(peerdma.Timeout, match=rf"no frame came within 0\.2 s, {waits}"):
        next(stream)
    assert stream.closed
    with pytest.raises(peerdma.PeerdmaError, match="the stream is closed"):
        next(stream)
    # Nothing is left running.
    there = gpu.surface(100)
    with sensor.pin(there) as d:
        sensor.read(d)


def test_nothing_else_moves_while_a_stream_is_open(sensor, source, gpu):
    source.start(FRAME)
    here, there = gpu.surface(100), gpu.surface(100)
    here.fill(3)
    with sensor.pin(here) as s, sensor.pin(there) as d:
        with sensor.frames(ring_of(gpu, 2)) as stream:
            for action in (
                lambda: sensor.copy(s, d),
                lambda: sensor.write(s),
                lambda: sensor.frames(ring_of(gpu, 2)),
            ):
                with pytest.raises(peerdma.PeerdmaError, match="close the stream first"):
                    action()
            assert sensor.leds(5) == 5
            next(stream)
        stream.close()
        sensor.copy(s, d)
    assert (there.get() == here.get()).all()


def test_surfaces_stay_while_a_stream_fills_them(sensor, source, gpu):
    source.start(FRAME)
    ring = ring_of(gpu, 2)
    with sensor.frames(ring), pytest.raises(peerdma.PinError, match="pinned 1 times"):
        ring[0].close()
    for surface in ring:
        surface.close()


def test_a_failure_closes_the_stream(sensor, source, gpu):
    """A list that the board cannot make sense of, after good ones."""
    source.start(FRAME)
    ring = ring_of(gpu, 2)
    descriptors = sensor._backend._driver._ring.descriptors

    def spoil_and_go_on(stream):
        for _ in range(4):
            descriptors["control"] = 0
            next(stream)

    with sensor.frames(ring) as stream:
        next(stream)
        with pytest.raises(peerdma.TransferError, match=r"failed after \d frames: MAGIC_STOPPED"):
            spoil_and_go_on(stream)
        assert stream.closed
    with sensor.frames(ring) as stream:
        gpu.verify(next(stream).array, seed=0)


def test_a_stream_can_be_used_by_several_threads(sensor, source, gpu):
    """Each frame goes to one of them."""
    source.start(FRAME)
    numbers = []
    with sensor.frames(ring_of(gpu, 4)) as stream:

        def take():
            for _ in range(5):
                numbers.append(next(stream).number)

        threads = [threading.Thread(target=take) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(numbers) == list(range(10))


def test_a_source_that_is_still_holds_nobody_up(sensor, gpu):
    """The board answers meanwhile, and any thread can end the wait, and the loop."""
    frames, ended = [], threading.Event()
    stream = sensor.frames(ring_of(gpu, 2), timeout=100)

    def consume():
        frames.extend(stream)
        ended.set()

    threads = [threading.Thread(target=consume) for _ in range(2)]
    for thread in threads:
        thread.start()
    while not sensor._jobs._led:
        time.sleep(0.001)
    began = time.monotonic()
    assert sensor.leds(6) == 6
    assert sensor.user_register(8, 5) == 5
    stream.close()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert time.monotonic() - began < 20
    assert ended.is_set() and not frames
    with gpu.surface(8) as surface, sensor.pin(surface) as pin:
        sensor.read(pin)


def test_a_board_is_closed_while_its_source_is_still():
    board = peerdma.open("sim", arguments=options("sensor"))
    stream = board.frames([np.zeros(FRAME, np.uint8)], timeout=100)
    closer = threading.Timer(0.5, board.close)
    closer.start()
    began = time.monotonic()
    assert list(stream) == []
    assert time.monotonic() - began < 30
    closer.join()
    assert stream.closed and board.closed


def test_a_stream_waits_for_jobs_and_jobs_not_for_it(sensor, source, gpu):
    source.start(FRAME, seed=3)
    here, there = np.ones(100_000, np.uint8), np.zeros(100_000, np.uint8)
    with sensor.pin(here) as s, sensor.pin(there) as d:
        # The source takes no bytes, so this one has to be cancelled.
        job = sensor.submit(s, d)
        threading.Timer(0.3, job.cancel).start()
        with sensor.frames(ring_of(gpu, 2)) as stream:
            assert job.done()
            with pytest.raises(peerdma.PeerdmaError, match="close the stream first"):
                sensor.submit(s, d)
            gpu.verify(next(stream).array, seed=3)


def test_closing_the_board_closes_its_stream():
    with peerdma.gpu("emulated") as gpu:
        with peerdma.open("sim", arguments=options("sensor")) as board:
            testing.PatternSource(board).start(FRAME)
            stream = board.frames(ring_of(gpu, 3))
            next(stream)
        assert stream.closed


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda gpu: [], "a ring of 0 surfaces is too small"),
        (lambda gpu: [gpu.surface(8), gpu.surface(12)], r"one size above 0; these .* \[8, 12\]"),
        (lambda gpu: [gpu.surface(0)], "one size above 0"),
    ],
)
def test_rings_that_cannot_be(sensor, gpu, make, message):
    with pytest.raises(ValueError, match=message):
        sensor.frames(make(gpu))
    with pytest.raises(ValueError, match="a ring of 1 surfaces is too small"):
        sensor.frames([gpu.surface(8)], overwrite=True)
    with pytest.raises(ValueError, match="frames of 9 bytes do not fit a surface of 8 bytes"):
        sensor.frames([gpu.surface(8)], frame_bytes=9)
    surface = gpu.surface(5000)
    with sensor.pin(surface) as pin:
        bytes_of_it = [pin[i : i + 1] for i in range(5000)]
        with pytest.raises(peerdma.TransferError, match=r"in 10000 pieces .* ring holds 4096"):
            sensor.frames(bytes_of_it)
    assert not sensor._pins


def test_settings_of_the_source(sensor, source):
    for nbytes in (0, 6, -4, 1 << 40):
        with pytest.raises(ValueError, match="words of 4 bytes, not"):
            source.start(nbytes)
    with pytest.raises(ValueError, match="interval is 0 to"):
        source.start(4, interval=-1)
    for offset in (-4, 2, 0x100):
        with pytest.raises(ValueError, match="multiples of 4 below 0x100"):
            sensor.user_register(offset)
    assert sensor.user_register(8, 77) == 77


def test_boards_without_what_was_asked_for(board, without, converter, sensor, gpu):
    surface = gpu.surface(8)
    with pytest.raises(peerdma.UnsupportedError, match="this board has no user block"):
        without.frames([surface])
    for each, name in ((board, "PASS"), (converter, "BF16")):
        with pytest.raises(peerdma.UnsupportedError, match=f"user block {name} is not a source"):
            each.frames([surface])
        with pytest.raises(peerdma.UnsupportedError, match=f"its user block is {name}"):
            testing.PatternSource(each)
    with pytest.raises(peerdma.UnsupportedError, match="is unknown"):
        testing.PatternSource(without)
    with (
        sensor.pin(surface) as s,
        pytest.raises(peerdma.UnsupportedError, match=r"PATN is a source.*board\.frames"),
    ):
        sensor.process(s[:4], s[4:])
