# SPDX-License-Identifier: BSD-2-Clause
"""What the PCIe block may do that is hard on a core, in the native model: each happens, and a copy
arrives all the same. And what a broken rule of PCIe does to who measures."""

from __future__ import annotations

import pytest

from sim.board.session import Conditions
from sim.perf.rig import Rig
from tests.sim.perf.unkind import UNKIND, check_pauses

SIZE = 20_000


@pytest.mark.parametrize(("unkind", "expected"), UNKIND.values(), ids=UNKIND)
def test_pauses_happen(unkind, expected):
    with Rig(Conditions(**unkind), SIZE) as rig:
        # Raises unless every byte has arrived, by legal TLPs.
        rig.bytes_per_cycle("copy", SIZE)
        check_pauses(rig, expected)


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
