# SPDX-License-Identifier: BSD-2-Clause
"""`make perf-host`: both sequences do the same, and what it says of them is true of them."""

import json

import pytest

from tools import measure_calls


@pytest.mark.parametrize("name", measure_calls.LANES)
def test_a_lane_runs_with_the_library_and_without(name):
    with measure_calls.LANES[name]() as lane:
        copies, bares = measure_calls.measure(lane, 3)
    assert len(copies) == len(bares) == 3
    assert min(copies) > 0 and min(bares) > 0


def test_the_bare_sequence_is_what_the_library_does():
    with measure_calls.LANES["user space"]() as (copy, bare):
        registers = copy.__closure__[0].cell_contents._backend._function
        sequences = []
        for call in (copy, bare):
            sequences.append(measure_calls._recorded(registers, call))
    assert sequences[0] == sequences[1]
    assert [name for name, _ in sequences[0]].count("write32") > 10


def test_the_table_and_the_file_say_the_same(tmp_path, capsys):
    file = tmp_path / "out" / "calls.json"
    assert measure_calls.main(["--rounds", "100", "-o", str(file)]) == 0
    found = json.loads(file.read_text())
    said = capsys.readouterr().out
    for lane, rows in found.items():
        more = rows["Board.copy"]["median"] - rows["bare sequence"]["median"]
        assert rows["more"]["median"] == pytest.approx(more)
        assert f"{lane}: more".ljust(28) + f"{more:9.2f}" in said
