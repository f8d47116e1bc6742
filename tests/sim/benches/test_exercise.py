# SPDX-License-Identifier: BSD-2-Clause
"""The two models of the UltraScale blocks agree: one trace, the same at the seam and on the link.

sim/board/native/ultrascale ── adapter ──▶ exerciser ┐
             └─▶ trace                               ├ equal?
sim/benches/ultrascale ─────── adapter ──▶ exerciser ┘
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hw.pcie.adapters import ADAPTERS
from sim.benches.exercise import Run, differences, record, replayed
from sim.compile.exerciser import requests
from sim.compile.tools import CACHE
from sim.copies import Edit, environment, private_copy
from tests.sim.benches.test_benches import environment as without_pytest

#: A block of each family. The other ones differ in widths: `python -m sim.benches.exercise`.
BLOCKS = ("ultrascale_plus-256", "ultrascale-128")


@pytest.mark.parametrize("block", BLOCKS)
def test_both_models_give_the_same(block, monkeypatch):
    # What it leaves in the environment for the simulator is not for other tests.
    monkeypatch.setattr(os, "environ", without_pytest())
    width = ADAPTERS[block].block.width
    recorded = record(block)
    runs = [Run(folder, width) for folder in (recorded, replayed(block, recorded))]
    assert not list(differences(*runs))
    for each in runs:
        assert (each.straddles > 10) == (width == 256)
        assert len(each.packets["requests"]) == len(requests())
    check_variety(runs[0])


def check_variety(run: Run):
    """The trace has what there is to compare."""
    completions = run.packets["requester_completion"]
    fields = [fields for fields, _ in completions]
    assert {each["header.status"] for each in fields} == {0, 1, 4}
    assert sum(each["header.poisoned"] for each in fields) == 2
    assert {each["header.lower_address"] % 4 for each in fields} == {0, 1, 2, 3}
    sizes = {len(payload) for _, payload in completions}
    assert {0, 4, 8, 64, 128} < sizes and len(sizes) > 12
    targets = [fields for fields, _ in run.packets["target"]]
    assert {each["header.kind"] for each in targets} == {0, 1}
    assert {each["header.dwords"] for each in targets} == {1, 2, 3}
    assert {each["header.bar"] for each in targets} == {0, 1}
    assert len({(each["header.first_be"], each["header.last_be"]) for each in targets}) > 10


#: Differences in either model: the file, a text in it, what it becomes, and what differs then.
PLANTED = {
    "native: a lower address without its last bits": (
        "sim/board/native/ultrascale.cpp",
        "h.byte_count) & 0xFFF;",
        "h.byte_count) & 0xFFC;",
        "requester_completion",
    ),
    "cocotb's: a write without a byte": (
        "sim/benches/ultrascale.py",
        'self._report("down", tlp)\n',
        'self._report("down", tlp)\n'
        "            tlp.first_be &= 7 if tlp.fmt_type is TlpType.MEM_WRITE else 15\n",
        "target",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_difference_in_either_model_is_found(name, tmp_path):
    *edit, differs = PLANTED[name]
    # What is compiled is shared; the runs are this copy's.
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / CACHE.name).symlink_to(CACHE)
    checkout = private_copy(tmp_path)
    Edit(name, *edit).apply(checkout)
    done = subprocess.run(
        [sys.executable, "-m", "sim.benches.exercise", BLOCKS[0]],
        cwd=checkout,
        env=without_pytest() | environment(checkout),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"\n{differs}: packet " in done.stdout
