# SPDX-License-Identifier: BSD-2-Clause
"""Which block a primitive counts for, in a netlist as Yosys writes it."""

from flow import area


def cell(kind, **bits):
    """A primitive; its ports are inputs, but for O and Q."""
    return {
        "type": kind,
        "connections": {port: [bit] for port, bit in bits.items()},
        "port_directions": {port: "output" if port in "OQ" else "input" for port in bits},
    }


BLOCKS = ("core", "core.left", "core.right")
NETLIST = {
    "cells": {
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
    counts = area.attribute(NETLIST, BLOCKS)
    assert counts[""] == {"LUT": 4, "FF": 2, "LUTRAM": 4, "BRAM36": 0.5}
    assert counts["core"] == {"LUT": 3, "FF": 2, "LUTRAM": 4, "BRAM36": 0.5}
    assert counts["core.left"] == {"LUT": 1.5, "FF": 1}
    assert counts["core.right"] == {"LUT": 1.5, "FF": 1, "LUTRAM": 4}


def test_the_table_has_a_row_per_block_down_to_a_depth():
    head, whole, core = area.table(area.attribute(NETLIST, BLOCKS), 1)
    assert head.split() == ["block", *area.COLUMNS]
    assert whole.split() == ["all", "4", "4", "2", "0", "0"]
    assert core.split()[:2] == ["core", "3"]
