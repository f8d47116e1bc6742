# SPDX-License-Identifier: BSD-2-Clause
"""What the PCIe block may do that is hard on a core, in the native model: each happens, and a copy
arrives all the same. And what a broken rule of PCIe does to who measures."""

from __future__ import annotations

import pytest

from sim.board.session import Conditions, Pauses
from sim.perf.rig import Rig

SIZE = 20_000
NAMES = [name for name, _ in Pauses._fields_]


@pytest.mark.parametrize(
    ("unkind", "expected"),
    [
        ({}, {}),
        ({"beat_idle": 0.2}, {"in_received": 100}),
        ({"transmit_stall": 0.2}, {"in_sent": 100}),
        ({"receive_pause": (40, 3000)}, {"long_receive": 3000, "in_received": 3000}),
        ({"transmit_pause": (100, 3000)}, {"long_transmit": 3000, "in_sent": 3000}),
        ({"reorder": 1}, {"interleaved": 10}),
    ],
    ids=["kind", "beats", "refused beats", "long", "long refusal", "other tags"],
)
def test_pauses_happen(unkind, expected):
    """At least so often; and nothing else happens."""
    with Rig(Conditions(**unkind), SIZE) as rig:
        # Raises unless every byte has arrived, by legal TLPs.
        rig.bytes_per_cycle("copy", SIZE)
        found = {name: getattr(rig.session.pauses, name) for name in NAMES}
    assert {name for name in NAMES if found[name]} == set(expected)
    assert all(found[name] >= least for name, least in expected.items())


@pytest.mark.parametrize("illegal", [(), (1,), (3, 4)])
def test_a_broken_rule_is_no_figure(illegal):
    """It is an error of what measures, and of the session at its end."""
    error = None
    rig = Rig(Conditions(illegal=illegal), SIZE)
    try:
        rig.bytes_per_cycle("c2h", SIZE)
    except RuntimeError as caught:
        error = str(caught)
    assert (error or "").startswith("the core broke a rule" if illegal else "")
    assert bool(error) == bool(illegal)
    assert rig.session.errors == len(illegal)
    if illegal:
        with pytest.raises(RuntimeError, match=f"broke {len(illegal)} rule"):
            rig.__exit__(None, None, None)
    else:
        rig.__exit__(None, None, None)
