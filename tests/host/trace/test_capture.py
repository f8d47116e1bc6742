# SPDX-License-Identifier: BSD-2-Clause
"""Captures: what is written is read, and what is none is refused."""

import contextlib
import io
import random

import pytest

from peerdma.cli.main import main
from peerdma.errors import PeerdmaError
from peerdma.trace.capture import Event, Packet, Writer, read
from peerdma.trace.story import tell


def some(rng: random.Random) -> list[Packet | Event]:
    """Packets and events in the order of time."""
    found: list[Packet | Event] = []
    for number in range(40):
        time = number << 28 | rng.getrandbits(20)
        if rng.random() < 0.5:
            notes = tuple(rng.sample(["BAR0", "dropped: nobody is there", "µ"], rng.randrange(3)))
            found.append(Packet(time, rng.random() < 0.5, rng.randbytes(rng.randrange(200)), notes))
        else:
            found.append(Event(time, "fill", {"a": str(rng.getrandbits(8)), "b": "x"}))
    return found


def written(what: list[Packet | Event]) -> bytes:
    """A file with that."""
    file = io.BytesIO()
    writer = Writer(file)
    for each in what:
        writer.packet(each) if isinstance(each, Packet) else writer.event(each)
    return file.getvalue()


def test_what_is_written_is_read(tmp_path, seed):
    rng = random.Random(seed)
    what = some(rng)
    path = tmp_path / "a.pcapng"
    path.write_bytes(written(what))
    found = read(path)
    assert found.packets == [each for each in what if isinstance(each, Packet)]
    assert found.events == [each for each in what if isinstance(each, Event)]


def test_a_file_that_is_still_being_written_is_read_up_to_there(tmp_path, seed):
    rng = random.Random(seed)
    what = some(rng)
    whole = written(what)
    for length in sorted(rng.sample(range(120, len(whole)), 50)):
        path = tmp_path / "a.pcapng"
        path.write_bytes(whole[:length])
        found = read(path)
        count = len(found.packets) + len(found.events)
        assert count <= len(what)
        assert found.packets == [e for e in what[:count] if isinstance(e, Packet)]


@pytest.mark.parametrize("content", [b"", b"0 up MRd addr=0x10 len=4\n", bytes(64)])
def test_another_file_is_refused(tmp_path, capsys, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    assert main(["trace", str(path)]) == PeerdmaError.exit_code
    assert "is not a capture of a simulated board" in capsys.readouterr().err


def test_a_damaged_file_is_refused_or_read(tmp_path, seed):
    rng = random.Random(seed)
    whole = written(some(rng))
    path = tmp_path / "a.pcapng"
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.getrandbits(8)
        path.write_bytes(data)
        with contextlib.suppress(PeerdmaError):
            tell(read(path))


def test_a_file_that_is_not_there(tmp_path, capsys):
    assert main(["trace", str(tmp_path / "none")]) == PeerdmaError.exit_code
    assert "No such file" in capsys.readouterr().err


def test_an_output_of_another_kind_is_refused(tmp_path, capsys):
    path = tmp_path / "a.pcapng"
    path.write_bytes(written([]))
    assert main(["trace", str(path), "-o", str(tmp_path / "a.png")]) == 2
    assert "neither .html" in capsys.readouterr().err
    assert not (tmp_path / "a.png").exists()
