# SPDX-License-Identifier: BSD-2-Clause
"""What viewers are told to show of a bench's waveforms is there."""

import re

from sim.benches import layout
from sim.benches.runner import folder_of, run
from tests.sim.waveforms import Waveforms

SEED = 20001


def test_everything_that_is_shown_is_in_the_waveforms():
    test = "bench_dma.one_descriptor"
    assert run(test, SEED, waves=True)
    folder = folder_of(test, SEED)
    found = Waveforms(folder / "dump.fst")
    gtkwave, surfer = ((folder / name).read_text() for name in layout.FILES)
    shown = re.findall(r"^(peerdma_core[^\s[]*)(?:\[(\d+):0\])?$", gtkwave, flags=re.MULTILINE)
    assert {name: int(top or 0) + 1 for name, top in shown}.items() <= found.widths.items()
    assert re.findall(r"^variable_add (\S+)$", surfer, flags=re.MULTILINE) == [
        name for name, _ in shown
    ]
    titles = re.findall(r"^divider_add (.+)$", surfer, flags=re.MULTILINE)
    assert titles[:2] == ["PCIe block", "states"]
    assert {"h2c0", "c2h0", "engine", "writer", "host"} <= set(titles)
    # Also of blocks with a reset of their own.
    named = ("host.irq", "h2c0.control.run")
    states = {f"peerdma_core.core.{block}.fsm_state_name" for block in named}
    assert {"peerdma_core.trnrsof", *states} <= dict(shown).keys()
