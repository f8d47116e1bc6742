# SPDX-License-Identifier: BSD-2-Clause
"""What a simulated board records of a copy is told as what happened."""

import itertools
import json
import re

import numpy as np
import pytest

import peerdma
from peerdma import regs, testing
from peerdma.cli.main import main
from peerdma.trace.capture import read
from peerdma.trace.story import tell
from peerdma.trace.tlp import Kind
from tests.boards import options
from tests.host.programs import run

WORDS = 3000
#: More pieces of a GPU's memory than descriptors can be pushed.
PIECES = regs.PUSH_DESCRIPTORS + 1
#: Bytes of the largest read.
READ = 512


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """The file of a copy from the emulated GPU to host memory, and of one that fails."""
    path = tmp_path_factory.mktemp("trace") / "copy.pcapng"
    host = np.zeros(WORDS, "u4")
    with (
        peerdma.gpu("emulated") as gpu,
        peerdma.open("sim", arguments=["--trace", str(path)]) as board,
        gpu.surface((WORDS,), "u4") as source,
        board.pin(source) as pinned,
        board.pin(host) as target,
    ):
        source.fill(5)
        board.copy(pinned, target)
        board.leds(5)
    return path


@pytest.fixture(scope="module")
def story(capture):
    return tell(read(capture))


def test_every_byte_of_the_copy_is_there(story):
    reads = [row for row in story.rows if row.label.startswith("read ") and row.up]
    writes = [row for row in story.rows if row.label.startswith("write ") and row.up]
    assert {row.party for row in reads} == {"GPU"} and {row.party for row in writes} == {"host"}
    assert sum(row.tlp.length for row in reads) == 4 * WORDS
    assert sum(row.tlp.length for row in writes) == 4 * WORDS


def test_reads_have_their_completions(story):
    for number, row in enumerate(story.rows):
        if row.tlp.kind == Kind.READ:
            answer = story.rows[row.mate]
            assert answer.mate == number and answer.up != row.up
            assert answer.tlp.tag == row.tlp.tag and answer.time > row.time


def test_registers_have_their_names(story):
    labels = [row.label for row in story.rows]
    assert "user.led = 0x5" in labels
    assert "extension.magic is 0x414d4450" in labels
    assert any(re.fullmatch(r"h2c0\.control = 0x[0-9a-f]+", label) for label in labels)


def test_descriptors_are_spans_that_hold_their_data(story):
    for track, word in (("H2C 0", "read"), ("C2H 0", "write")):
        (span,) = (span for span in story.spans if span.track == track)
        assert span.text.startswith(f"{4 * WORDS} bytes, ")
        times = [row.time for row in story.rows if row.up and row.label.startswith(f"{word} ")]
        assert span.start == min(times) and span.end >= max(times)
        assert re.match(r"[hc]2[hc]0\.pushed\[0\] = 0xad4b", story.rows[span.row].label)


def test_descriptors_that_are_fetched(tmp_path):
    path = tmp_path / "long.pcapng"
    with (
        peerdma.gpu("emulated") as gpu,
        peerdma.open("sim", arguments=["--trace", str(path)]) as board,
        gpu.surface((PIECES * 16384,), "u4") as source,
        gpu.surface((PIECES * 16384,), "u4") as target,
        board.pin(source) as pinned,
        board.pin(target) as other,
    ):
        board.copy(pinned, other)
    story = tell(read(path))
    for track in ("H2C 0", "C2H 0"):
        spans = [span for span in story.spans if span.track == track]
        assert len(spans) == PIECES and all(s.text.startswith("65536 bytes, ") for s in spans)
        fetched = {story.rows[span.row].label for span in spans}
        assert all(label.startswith("fetch descriptors at ring") for label in fetched)


@pytest.mark.parametrize("core", ["sensor", "wide sensor"])
def test_records_of_frames_are_told(tmp_path, core):
    """Those of frames of their own length, too; and of more frames than one read fetches."""
    path, size = tmp_path / "frames.pcapng", regs.FRAME_RECORD.itemsize
    count = READ // regs.DESCRIPTOR.itemsize // 2 + 1
    with peerdma.open("sim", arguments=[*options(core), "--trace", str(path)]) as board:
        source, records = testing.PatternSource(board), []
        for nbytes in (1000, size):
            source.start(nbytes)
            with board.frames([np.empty(nbytes, np.uint8) for _ in range(count)]) as frames:
                records += [frame.record for frame in itertools.islice(frames, count)]
    story = tell(read(path))
    labels = [row.label for row in story.rows if row.up and row.tlp.kind == Kind.WRITE]
    assert any(row.label == "extension.frame_records = 0xf" for row in story.rows)
    told = [label.partition(", to client")[0] for label in labels if label.startswith("record")]
    assert [text for text in told if text in map(_told, records)] == list(map(_told, records))
    # The board filled the surfaces again, before it was stopped.
    assert all(re.match(rf"record of frame \d+: (1000|{size}) bytes", text) for text in told)


def test_what_a_run_was_stopped_in_is_no_more_of_the_next_one(tmp_path):
    """Which moves other bytes to the same memory."""
    path, memory = tmp_path / "stopped.pcapng", np.zeros(1000, np.uint8)
    arguments = [*options("sensor"), "--trace", str(path)]
    with peerdma.open("sim", arguments=arguments, timeout=1) as board:
        with pytest.raises(peerdma.Timeout):
            board.read(memory, peerdma.USER_STREAM)
        board.read(memory)
    spans = [span.text for span in tell(read(path)).spans if span.track == "C2H 0"]
    assert [text.endswith(", 1000 bytes not moved") for text in spans] == [True, False]


def _told(record):
    return (
        f"record of frame {record.number}: {record.nbytes} bytes, begun at cycle {record.cycles}, "
        f"CRC-32 {record.crc:#010x}, {record.dropped} frames dropped"
    )


def test_waits_and_buffers(story):
    waits = [span for span in story.spans if span.track == "H2C 0 waits"]
    assert any(span.text == "waits for the completion of a read" for span in waits)
    assert all(a.end <= b.start for a, b in itertools.pairwise(waits))
    buffers = {counter.name: counter for counter in story.counters}
    held = buffers["completion headers held"]
    assert held.limit == 36 and 0 < max(held.values) <= 36 and held.values[-1] == 0


def test_an_interrupt_is_one(story):
    assert any(row.label.startswith("interrupt, message") for row in story.rows)


def test_memory_of_a_client_that_has_left_is_gone(capture):
    last = [event for event in read(capture).events if event.kind in ("map", "unmap")][-1]
    assert (last.kind, last.values) == ("unmap", {"address": "0x0", "size": "0x0"})


def test_the_text_has_a_line_for_each(capture, story, capsys):
    assert main(["trace", str(capture)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(story.rows)
    assert any("card > GPU   MRd   read 512 bytes of aperture + 0x200" in line for line in lines)


def test_perfetto_takes_it(capture, story, tmp_path):
    path = tmp_path / "copy.json"
    assert main(["trace", str(capture), "-o", str(path)]) == 0
    events = json.loads(path.read_text())["traceEvents"]
    kinds = [event["ph"] for event in events]
    assert kinds.count("X") == len(story.spans) and kinds.count("i") == len(story.rows)
    threads = {e["tid"]: e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    assert {"H2C 0", "card to GPU", "host to card"} <= set(threads.values())
    assert all(event["tid"] in threads for event in events if event["ph"] in "Xi")
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")


def test_the_demo_writes_a_page(tmp_path):
    page = tmp_path / "a page.html"
    done = run("--size", "16x16", "--gpu", "emulated", "--trace", page)
    assert done.returncode == 0, done.stderr
    # Of a large copy, it takes long.
    assert f"writing {page} ..." in done.stderr
    assert str(page) in done.stdout and page.read_text().startswith("<!doctype html>")


def test_the_demo_says_what_a_trace_needs(tmp_path):
    done = run("--trace", tmp_path / "a.png")
    assert done.returncode == 2 and "--trace writes FILE.html or FILE.json" in done.stderr
    done = run("--trace", tmp_path / "a.html", "--board", "/dev/picoevb")
    assert done.returncode == 2 and "--trace needs the simulated board" in done.stderr
