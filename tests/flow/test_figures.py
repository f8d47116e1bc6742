# SPDX-License-Identifier: BSD-2-Clause
"""Area and clock beside goal and limit, and the longest path in a report of nextpnr."""

import pytest

from flow import figures


def test_a_figure_is_judged_by_goal_and_limit():
    values = {
        "small": ("area", 4000),
        "large": ("area", 6000),
        "slow": ("clock", 78),
        "fast": ("clock", 125.1),
    }
    (head, *lines), within = figures.judge(values)
    assert head.split() == ["figure", "value", "goal", "limit"]
    assert [line.split("  ")[-1] for line in lines] == [
        "good",
        "goal missed",
        "goal missed",
        "good",
    ]
    assert lines[2].split()[:4] == ["slow,", "MHz", "78.0", "125"]
    assert within


@pytest.mark.parametrize(("key", "value"), [("area", 6001), ("clock", 77.9)])
def test_beyond_a_limit(key, value):
    lines, within = figures.judge({"one": (key, value)})
    assert not within and "BEYOND THE LIMIT" in lines[1]


def step(kind, delay, net):
    return {"type": kind, "delay": delay, "net": net}


CRITICAL = {
    "critical_paths": [
        {"from": "<async>", "to": "posedge clk", "path": [step("logic", 99, "pin")]},
        {
            "from": "posedge clk",
            "to": "posedge clk",
            "path": [
                step("clk-to-q", 0.5, "register"),
                step("routing", 1.25, "$abc$1"),
                step("routing", 1, "first"),
                step("logic", 0.125, "lut"),
                step("routing", 1, "last"),
            ],
        },
    ]
}


SAID = "3.88 ns, 3.25 of them wires, 3 nets: first -> last"


def test_the_longest_path_is_between_registers():
    assert figures.longest(CRITICAL) == SAID
    assert figures.longest({"critical_paths": CRITICAL["critical_paths"][:1]}) == "not reported"
