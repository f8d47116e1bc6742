# SPDX-License-Identifier: BSD-2-Clause
"""What the PCIe block may do that is hard on a core, and a transfer that has to survive it."""

from __future__ import annotations

from typing import Any

from sim.board.session import BASE, Pauses
from sim.perf.rig import Rig

__all__ = ["UNKIND", "check_pauses", "there_and_back"]

#: Conditions, and the pauses that they make: at least so many.
UNKIND: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "kind": ({}, {}),
    "beats": ({"beat_idle": 0.2}, {"in_received": 100}),
    "refused beats": ({"transmit_stall": 0.2}, {"in_sent": 100}),
    "long": ({"receive_pause": (40, 3000)}, {"long_receive": 3000, "in_received": 3000}),
    "long refusal": ({"transmit_pause": (100, 3000)}, {"long_transmit": 3000, "in_sent": 3000}),
    "other tags": ({"reorder": 1}, {"interleaved": 10}),
}


def check_pauses(rig: Rig, expected: dict[str, int]) -> None:
    """Each happened at least so often, and nothing else did."""
    found = {name: getattr(rig.session.pauses, name) for name, _ in Pauses._fields_}
    assert {name for name, count in found.items() if count} == set(expected)
    assert all(found[name] >= least for name, least in expected.items())


def there_and_back(rig: Rig, nbytes: int) -> None:
    """By card RAM, in descriptors that end and begin in any byte; a copy checks itself."""
    for kind in ("h2c", "c2h"):
        rig.bytes_per_cycle(kind, nbytes, 999)
    source, target = (
        rig.session.memory[at - BASE : at - BASE + nbytes] for at in (rig.source, rig.target)
    )
    assert (source == target).all()
    rig.bytes_per_cycle("copy", nbytes, 999)
