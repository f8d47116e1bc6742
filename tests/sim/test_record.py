# SPDX-License-Identifier: BSD-2-Clause
"""A record repeats, and a comparison names the runs that changed and the cycles in which."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sim import record
from sim.compile.tools import ROOT
from sim.copies import Edit, environment, private_copy

#: Bound of a command, in seconds; a model may have to be built first.
LIMIT = 900
#: A short bench, with a seed that no other test takes.
BENCH, SEED = "bench_dma.one_descriptor", 20_001
A, B, C, D = (f"{256 * n}:{n:016x}" for n in range(1, 5))


def write(checkout: Path, file: Path) -> str:
    """Record `BENCH` in a checkout; the environment has another SEED, which it must not heed."""
    command = ("sim.record", "write", str(file), BENCH, "--seed", str(SEED))
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=checkout,
        env={**environment(checkout), "SEED": str(SEED + 1)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return file.read_text()


def test_a_run_repeats_and_another_timing_is_found(tmp_path: Path, capsys):
    old, new = tmp_path / "old", tmp_path / "new"
    text = write(ROOT, old)
    assert text.startswith(f"{BENCH} {SEED} 256:")
    assert write(ROOT, new) == text
    assert record.main(["compare", str(old), str(new)]) == 0
    assert capsys.readouterr().out == "1 runs, 0 of them differ\n"

    checkout = private_copy(tmp_path / "checkout")
    Edit(
        "a packet is offered a cycle later",
        "hw/write/writer.py",
        "beats.o.valid | (beats.i.valid & beat.ends.first)",
        "beats.o.valid",
    ).apply(checkout)
    write(checkout, new)
    assert record.main(["compare", str(old), str(new)]) == 1
    said = capsys.readouterr().out
    found = re.match(rf"{BENCH} {SEED}: differs between cycles (\d+) and (\d+);", said)
    assert found, said
    begin, end = map(int, found.groups())
    # Not in the enumeration, which has no reads of ours, and not at the end only.
    assert 0 < begin < end == begin + 256


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ([A, B], [A, B], None),
        ([A, B], [B, B], "0 and 512; it took 512 cycles and takes 512"),
        ([A, B, D], [A, C, D], "256 and 768; it took 1024 cycles and takes 1024"),
        ([A, B], [A, B, C], "512 and 768; it took 512 cycles and takes 768"),
        ([A, B, C], [A], "256 and 512; it took 768 cycles and takes 256"),
    ],
)
def test_where_runs_differ(old, new, found):
    lines = list(record.compare({"bench 1": old}, {"bench 1": new}))
    assert lines == ([f"bench 1: differs between cycles {found}"] if found else [])


def test_missing_runs_differ():
    assert list(record.compare({"a 1": [A], "b 1": [A]}, {"b 1": [A], "c 1": [A]})) == [
        "a 1: only in the old record",
        "c 1: only in the new record",
    ]


@pytest.mark.parametrize("line", ["", "bench 1", f"bench {A}", f"bench 1 {A[:-1]}"])
def test_what_is_no_record_is_named(line, tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text(f"bench 1 {A}\n{line}\n")
    assert record.main(["compare", str(file), str(file)]) == 2
    assert capsys.readouterr().err == f"{file}:2 is not a line of a record: {line!r}\n"


def test_an_empty_record_proves_nothing(tmp_path, capsys):
    file = tmp_path / "file"
    file.touch()
    assert record.main(["compare", str(file), str(file)]) == 2
    assert capsys.readouterr().err == f"{file} has no runs\n"


def test_a_failed_run_is_an_error(tmp_path, capsys, monkeypatch):
    run = record.Run("a_bench", 1, ("sim.benches", "--nonsense"), tmp_path)
    monkeypatch.setattr(record, "plan", lambda seed, seeds: [run])
    file = tmp_path / "file"
    assert record.main(["write", str(file)]) == 1
    assert file.read_text() == ""
    said = capsys.readouterr().out
    assert "1/1 a_bench 1: FAILED" in said
    assert "unrecognized arguments: --nonsense" in said
    assert said.endswith(f"{file}: 0 runs, 1 failed\n")


def test_an_unknown_run_starts_nothing(tmp_path, capsys):
    assert record.main(["write", str(tmp_path / "file"), "nonsense"]) == 2
    assert "no run 'nonsense'" in capsys.readouterr().err
    assert record.main(["write", str(tmp_path / "none" / "file"), BENCH]) == 2
    assert f"No such file or directory: '{tmp_path / 'none' / 'file'}'" in capsys.readouterr().err
