# SPDX-License-Identifier: BSD-2-Clause
"""Which block a primitive counts for, in a netlist as Yosys writes it."""

import pytest

from hw import area


def cell(kind, **bits):
    """A primitive; its ports are inputs, but for O and Q."""
    return {
        "type": kind,
        "connections": {port: [bit] for port, bit in bits.items()},
        "port_directions": {port: "output" if port in "OQ" else "input" for port in bits},
    }


NETLIST = {
    "cells": {
        "core": {"type": "$scopeinfo"},
        "core.left": {"type": "$scopeinfo"},
        "core.right": {"type": "$scopeinfo"},
        # One LUT for a register of each side, behind one for both, behind an inverter.
        "$1": cell("INV", I=2, O=3),
        "$2": cell("LUT2", I0=3, I1=4, O=5),
        "$3": cell("LUT1", I0=5, O=6),
        "$4": cell("FDRE", D=6, Q=7),
        "$5": cell("FDSE", D=5, Q=8),
        # A carry chain that drives a memory of the right side; constants are not nets.
        "$6": cell("CARRY4", S=9, CI="0", O=10),
        "$7": cell("LUT6", I0=7, O=9),
        "core.right.memory.0.0": cell("RAM32M", A=10, O=11),
        "core.ram": cell("RAMB18E1", A=8, O=12),
        # What leads to a port alone is nobody's.
        "$8": cell("LUT3", I0=8, O=13),
    },
    "netnames": {
        "core.left.here": {"bits": [7]},
        "here": {"bits": [7]},
        "core.right.there": {"bits": [8]},
        "core.port": {"bits": [13]},
        "$hidden": {"bits": [7, 8], "hide_name": 1},
    },
}


def test_logic_belongs_to_what_it_drives():
    table = area.attribute(NETLIST)
    assert table[""] == {"LUT": 4, "FF": 2, "LUTRAM": 4, "BRAM36": 0.5}
    assert table["core"] == {"LUT": 3, "FF": 2, "LUTRAM": 4, "BRAM36": 0.5}
    assert table["core.left"] == {"LUT": 1.5, "FF": 1}
    assert table["core.right"] == {"LUT": 1.5, "FF": 1, "LUTRAM": 4}


def test_the_table_ends_with_what_the_fpga_needs(monkeypatch, capsys):
    monkeypatch.setattr(area, "synthesize", lambda verilog: (NETLIST, 3))
    assert area.main(["--depth", "1"]) == 0
    head, whole, core, needed = capsys.readouterr().out.splitlines()
    assert head.split() == ["block", *area.COLUMNS]
    assert whole.split() == ["peerdma_core", "4", "4", "2", "0", "0"]
    assert core.split()[:2] == ["core", "3"]
    assert needed == "LUTs of the FPGA: 3 and 4 as memory, 7 in all"


def test_a_synthesizer_that_is_missing_is_told(monkeypatch):
    monkeypatch.setattr(area.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="Yosys failed"):
        area.synthesize("module peerdma_core; endmodule")
