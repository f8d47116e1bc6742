# SPDX-License-Identifier: BSD-2-Clause
"""`make perf-host`: both sequences do the same, and what it says of them is true of them."""

import gc
import json
import re
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import peerdma
from peerdma.vfio_user.channel import Channel
from peerdma.waiting import Waiter
from tests.host.programs import HOST, ROOT
from tools import measure_calls

LIBRARY = HOST / "peerdma"


@pytest.mark.parametrize("name", measure_calls.CASES)
def test_a_case_runs_with_the_library_and_without(name):
    with measure_calls.CASES[name]() as case:
        found = measure_calls.measure(case, 3)
    assert list(found) == list(case) and measure_calls.BARE in found
    assert all(len(times) == 3 and min(times) > 0 for times in found.values())


def test_the_bare_sequence_is_what_the_library_does():
    with measure_calls.CASES["user space"]() as case:
        registers = case["Plan.run"].__self__._jobs._transfers._function
        sequences = [measure_calls._recorded(registers, call) for call in case.values()]
    assert all(sequence == sequences[0] for sequence in sequences)
    assert [name for name, _ in sequences[0]].count("write32") > 10


def test_surfaces_of_a_cuda_gpu_are_measured(cuda_loaded):
    for name in ("user space", "kernel driver"):
        with measure_calls.CASES[name]() as case:
            found = measure_calls.measure(case, 2)
        assert {"Board.copy, CUDA surfaces", "Plan.run, CUDA surfaces"} < set(found)


def test_the_table_and_the_file_say_the_same(tmp_path, capsys):
    file = tmp_path / "out" / "calls.json"
    assert measure_calls.main(["--rounds", "100", "-o", str(file)]) == 0
    found = json.loads(file.read_text())
    said = capsys.readouterr().out
    assert list(found) == list(measure_calls.CASES)
    for case, rows in found.items():
        assert rows[measure_calls.BARE]["ratio"] == 1
        for call, row in rows.items():
            assert row["25 %"] <= row["ratio"] <= row["75 %"]
            assert 0 < row["p50"] <= row["p99"] <= row["max"]
            assert row["p99.9"] is None, "of 100 rounds"
            values = ["-" if value is None else f"{value:.2f}" for value in row.values()]
            cells = "".join(f"{value:>10}" for value in values)
            assert f"{case}: {call}".ljust(46) + cells in said


@pytest.mark.parametrize(
    ("name", "way", "most"),
    [
        ("user space", "Plan.run", 49),
        ("user space", "Board.copy", 108),
        ("user space", "Board.copy, arrays", 139),
        ("user space, write", "Board.write", 93),
        ("user space, read", "Board.read", 96),
        ("kernel driver", "Plan.run", 31),
        ("kernel driver", "Board.copy", 74),
        ("kernel driver", "Board.copy, arrays", 104),
        ("kernel driver, write", "Board.write", 68),
        ("kernel driver, read", "Board.read", 68),
    ],
)
def test_the_library_calls_few_functions_besides_the_bare_sequence(name, way, most):
    """Times depend on the machine; these counts only on Python's version, by a handful."""
    with measure_calls.CASES[name]() as case:
        found = calls(case[way]) - calls(case[measure_calls.BARE])
    assert 0 < found <= most


def test_a_copy_over_vfio_user_makes_few_calls():
    """Of numpy arrays that the board reads and writes by messages.

    How many messages come at once depends on the machine and what else it does, so each wait for
    some is counted by itself: 6 to 22 were seen, and with 22 there are less than 500 calls. So is
    each look at the socket that found no answer to a read yet, but what the board sent before it.
    """
    for each in copies_over_vfio_user(10):
        waits, reads = each[Waiter.wait.__code__], each[Channel.request.__code__]
        apart = each[Channel.serve.__code__] - waits - reads
        assert waits >= 1 and apart >= 0
        assert 100 < sum(each.values()) <= 322 + 8 * waits + 2 * apart


def test_the_way_of_a_copy_is_in_few_files():
    """What a reader opens who follows one; docs/architecture.md names them all."""
    (each,) = copies_over_vfio_user(1)
    files = {Path(code.co_filename) for code in each}
    files = {str(file.relative_to(LIBRARY)) for file in files if file.is_relative_to(LIBRARY)}
    assert 10 < len(files) <= 14, sorted(files)
    named = re.findall(r"`([\w/]+\.py)\b", (ROOT / "docs/architecture.md").read_text())
    assert files <= set(named)


def copies_over_vfio_user(count):
    """What `called` finds in copies of 4 KiB, from array to array."""
    source, target = np.arange(4096, dtype=np.uint8), np.zeros(4096, np.uint8)
    with peerdma.open("sim") as board:
        found = [called(lambda: board.copy(source, target)) for _ in range(count)]
    assert np.array_equal(source, target)
    return found


def calls(function):
    """Functions of Python that are called by one, when it has been called before."""
    return sum(called(function).values())


def called(function):
    """As `calls`, each function's code with how often it is called."""
    count = Counter()

    def note(frame, event, argument):
        if event == "call":
            count[frame.f_code] += 1

    function()
    before = sys.getprofile()
    gc.disable()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count
