# SPDX-License-Identifier: BSD-2-Clause
"""Frames in GPU memory, in the order of CUDA streams: on a stand-in, and with real libraries."""

import itertools
import re
import threading
import time

import numpy as np
import pytest

import peerdma
from peerdma import testing
from peerdma.cuda.gpu import CudaGpu
from peerdma.regs import FRAME_RECORD
from peerdma.testing import pattern
from tests.boards import options
from tests.host.board.streams import PATIENCE, Gate, Machine
from tests.host.conftest import CUDA
from tests.host.cuda import libraries
from tests.host.programs import ROOT

FRAME = 6000
SEED = 21
LIBRARIES = {"stand-in": libraries.StandIn, **(libraries.present() if CUDA else {})}


class Bench:
    """A board with a source, arrays of a library in GPU memory, and a stream that can be held."""

    def __init__(self, board, gpu, library):
        self.board, self.library = board, library
        self.machine = Machine(board, gpu)
        self.stream = library.stream()
        self.source = testing.PatternSource(board)
        #: a kernel's first launch waits for all streams
        one, other = self.arrays(2)
        library.add(one, other, self.stream)
        self.synchronize()

    def arrays(self, count):
        return [self.library.make(np.zeros(FRAME, np.uint8)) for _ in range(count)]

    def hold(self):
        """Holds the stream still, until `open` of what it returns."""
        return Gate(self.machine, self.library.handle(self.stream))

    def synchronize(self):
        self.machine.synchronize(self.library.handle(self.stream))


@pytest.fixture(params=LIBRARIES)
def bench(request):
    """Each library there is; the first is a stand-in."""
    if request.param == "stand-in":
        request.getfixturevalue("cuda_loaded")
    with (
        CudaGpu(0, "device") as gpu,
        gpu.device.current(),
        peerdma.open("sim", arguments=options("sensor")) as board,
    ):
        bench = Bench(board, gpu, LIBRARIES[request.param](gpu))
        yield bench
        bench.library.close()
        del bench


def expected(number):
    return pattern.fill_bytes(SEED + number, 0, FRAME)


def test_an_array_is_not_written_before_the_stream_has_used_it(bench):
    """The loop runs ahead of the stream, and waits only when no array is left to fill."""
    bench.source.start(FRAME, interval=300, seed=SEED)
    ring, results = bench.arrays(3), bench.arrays(8)
    with bench.board.frames(ring, stream=bench.stream) as frames:
        gate = bench.hold()
        for number, frame in enumerate(itertools.islice(frames, 3)):
            assert (frame.number, frame.array is ring[number]) == (number, True)
            bench.library.add(frame.array, results[number], bench.stream)
        # The stream holds all three. What the source makes meanwhile is dropped, and counted.
        opened = threading.Event()
        opener = threading.Timer(0.5, lambda: (opened.set(), gate.open()))
        opener.start()
        dropped = bench.source.dropped
        frame = next(frames)
        assert opened.is_set()
        assert bench.source.dropped > dropped
        for number in range(3, 8):
            assert frame.number == number
            bench.library.add(frame.array, results[number], bench.stream)
            frame = next(frames)
        assert frame.record is None or frame.record.dropped > 0
        bench.synchronize()
    for number, result in enumerate(results):
        assert (bench.library.read(result) == expected(number)).all(), number


def test_a_frame_that_is_released_goes_back_when_the_stream_comes_there(bench):
    """What the stream does later holds nothing up."""
    bench.source.start(FRAME, seed=SEED)
    (result,) = bench.arrays(1)
    with bench.board.frames(bench.arrays(1), stream=bench.stream) as frames:
        frame = next(frames)
        bench.library.add(frame.array, result, bench.stream)
        frame.release()
        frame.release()
        gate = bench.hold()
        assert next(frames).number == 1
        assert not frame.intact()
        gate.open()
        bench.synchronize()
    assert (bench.library.read(result) == expected(0)).all()


def test_a_stream_that_does_not_get_on_is_an_error_in_time(bench):
    bench.source.start(FRAME, seed=SEED)
    ring = bench.arrays(2)
    frames = bench.board.frames(ring, stream=bench.stream, timeout=0.5)
    gate = bench.hold()
    for frame in itertools.islice(frames, 2):
        assert frame.intact()
    with pytest.raises(peerdma.Timeout, match=r"all 2 frames of the ring have been in use for 0.5"):
        next(frames)
    assert frames.closed
    # What comes back later is no longer the board's.
    gate.open()
    bench.synchronize()
    bench.board.read(ring[0])


def test_any_thread_ends_a_loop_that_waits_for_the_stream(bench):
    bench.source.start(FRAME, seed=SEED)
    frames = bench.board.frames(bench.arrays(1), stream=bench.stream, timeout=PATIENCE)
    gate = bench.hold()
    closer = threading.Timer(0.3, frames.close)
    closer.start()
    began = time.monotonic()
    assert [frame.number for frame in frames] == [0]
    assert time.monotonic() - began < PATIENCE / 2
    closer.join()
    gate.open()
    bench.synchronize()


def test_a_board_is_closed_while_a_stream_has_its_frames(bench):
    bench.source.start(FRAME, seed=SEED)
    frames = bench.board.frames(bench.arrays(2), stream=bench.stream)
    gate = bench.hold()
    for frame in itertools.islice(frames, 2):
        frame.release()
    bench.board.close()
    assert frames.closed
    serving = bench.board._ordered._thread
    assert serving.is_alive()
    gate.open()
    bench.synchronize()
    serving.join(PATIENCE)
    assert not serving.is_alive()


def test_a_frame_cannot_be_released_in_a_capture(bench):
    bench.source.start(FRAME, seed=SEED)
    stream = bench.library.handle(bench.stream)
    with bench.board.frames(bench.arrays(2), stream=bench.stream) as frames:
        frame = next(frames)

        def release():
            with pytest.raises(peerdma.PeerdmaError, match="a graph gives no frame back"):
                frame.release()

        graph, _ = bench.machine.capture(stream, release)
        bench.machine.call("cuGraphExecDestroy", graph)
        frame.release()
        assert [next(frames).number for _ in range(3)] == [1, 2, 3]


def test_without_a_stream_the_librarys_current_one_is_waited_for(bench):
    """It still writes the only array of the ring when the next frame is asked for."""
    bench.source.start(FRAME, seed=SEED)
    with bench.board.frames(bench.arrays(1)) as frames:
        frame = next(frames)
        for number in range(1, 4):
            with bench.library.late(frame.array, np.full(FRAME, 7, np.uint8)):
                frame = next(frames)
            assert frame.number == number
            assert (bench.library.read(frame.array) == expected(number)).all()


def test_a_gpu_reads_the_records(bench):
    bench.source.start(FRAME, seed=SEED)
    with bench.board.frames(bench.arrays(2), stream=bench.stream) as frames:
        for frame in itertools.islice(frames, 5):
            there = bench.library.view(frames.records, "interface")
            found = bench.library.read(there).reshape(-1).view(FRAME_RECORD)[frame.number % 2]
            record = frame.record
            assert (found["cycles"], found["crc"]) == (record.cycles, record.crc)
            assert found["bytes"] == record.nbytes == FRAME


def test_what_cannot_be_a_loop_in_a_stream(bench):
    ring = bench.arrays(2)
    with pytest.raises(TypeError, match="a stream is one of PyTorch"):
        bench.board.frames(ring, stream="s")
    with pytest.raises(ValueError, match="waits for no stream"):
        bench.board.frames(ring, stream=bench.stream, overwrite=True)
    assert not bench.board._pins


def test_records_beside_arrays_of_the_host_are_the_hosts(sensor):
    with sensor.frames([np.zeros(FRAME, np.uint8)]) as frames:
        assert frames.records.array.dtype == FRAME_RECORD
        assert not hasattr(frames.records, "__cuda_array_interface__")


class Enough(Exception):
    """Ends a loop of the documentation."""


def test_the_loops_of_the_documentation(bench):
    """What docs/frames.md shows, as it is there, until the fourth frame."""
    text = (ROOT / "docs/frames.md").read_text()
    loops = [
        code for code in re.findall(r"```python\n(.*?)```", text, flags=re.S) if "for " in code
    ]
    assert len(loops) == 2
    ring = bench.arrays(3)
    for loop in loops:
        bench.source.start(FRAME, seed=SEED)
        seen = []

        def use(array, seen=seen):
            seen.append(array)
            if len(seen) == 4:
                raise Enough

        names = {"work_on": use, "infer": use, "board": bench.board, "stream": bench.stream}
        with pytest.raises(Enough):
            exec(loop, names | dict(zip("abc", ring, strict=True)))
        assert all(each is ring[n % 3] for n, each in enumerate(seen))
    bench.synchronize()
