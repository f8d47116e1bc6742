# SPDX-License-Identifier: BSD-2-Clause
"""What benches, and episodes of the campaign, look for at their end: each damage is planted."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest

from sim.benches import tb as benches
from sim.benches.series7 import Series7Device
from sim.benches.ultrascale import _Judged
from sim.campaign import session as episodes
from sim.campaign.coverage import Coverage
from sim.campaign.table import GROUPS


async def _at_once(*_: object) -> None:
    """A Timer that takes no time."""


def sound() -> SimpleNamespace:
    """A machine after a bench or an episode, as far as its end looks at it; all is well."""
    capability = SimpleNamespace(transactions_pending=False)
    device = SimpleNamespace(
        checker=SimpleNamespace(unanswered=[], outstanding_tags={}),
        function=SimpleNamespace(pcie_cap=capability),
        timeouts=0,
        unexpected=0,
        stall=0.0,
        pauses={},
    )
    device.expect_no_errors = partial(Series7Device.expect_no_errors, device)
    return SimpleNamespace(
        _buffers=[SimpleNamespace(expect_guards=lambda: None)],
        device=device,
        machine=SimpleNamespace(ours=True, core=SimpleNamespace(overcommit=False)),
        host=SimpleNamespace(stray_writes=[], intx=SimpleNamespace(level=False)),
        check_guards=lambda: None,
        calm=True,
        timeouts=0,
        unexpected=0,
        pairs=[],
        seen=Coverage(GROUPS),
        interrupts={},
        channels=[],
        channels_each_way=1,
    )


def guard_was_written():
    raise AssertionError("guard bytes of it have changed")


#: What each is told by, and how it comes about.
DAMAGE = {
    "guard": lambda rig: vars(rig).update(
        _buffers=[SimpleNamespace(expect_guards=guard_was_written)], check_guards=guard_was_written
    ),
    "write to nowhere": lambda rig: rig.host.stray_writes.append("a write"),
    "completion timeouts": lambda rig: vars(rig.device).update(timeouts=1),
    "unexpected completions": lambda rig: vars(rig.device).update(unexpected=1),
}
OF_A_BENCH = DAMAGE | {
    "without completion": lambda rig: rig.device.checker.unanswered.append("a read"),
    "unanswered reads": lambda rig: rig.device.checker.outstanding_tags.update({3: "a read"}),
    "transactions pending": lambda rig: vars(rig.device.function.pcie_cap).update(
        transactions_pending=True
    ),
    "completions has overflowed": lambda rig: (
        vars(rig.device).update(overflowed=True),
        vars(rig.device).update(expect_no_errors=partial(_Judged.expect_no_errors, rig.device)),
    ),
}
OF_AN_EPISODE = DAMAGE | {
    "interrupt is left over": lambda rig: vars(rig).update(pending=1),
    "INTA is left over": lambda rig: vars(rig.host.intx).update(level=True),
    # One that was owed, and did not come.
    "0 completion timeouts": lambda rig: vars(rig).update(timeouts=1),
    "0 unexpected completions": lambda rig: vars(rig).update(unexpected=1),
}


@pytest.mark.parametrize("what", [None, *OF_A_BENCH])
def test_a_bench_ends_with_what_it_has_done_wrong(monkeypatch, what):
    monkeypatch.setattr(benches, "Timer", _at_once)
    rig = sound()
    if what is None:
        asyncio.run(benches.TB.finish(rig))
        return
    OF_A_BENCH[what](rig)
    with pytest.raises(AssertionError, match=what):
        asyncio.run(benches.TB.finish(rig))


@pytest.mark.parametrize("what", [None, *OF_AN_EPISODE])
def test_an_episode_ends_with_what_it_has_done_wrong(monkeypatch, what):
    monkeypatch.setattr(episodes, "Timer", _at_once)
    rig = sound()
    rig.pending = 0

    async def read(block, name):
        return rig.pending

    rig.read = read
    session = episodes._Session(rig, SimpleNamespace(end_good=lambda episode: None))
    episode = SimpleNamespace(disturbance=None, engines=[])
    if what is None:
        asyncio.run(session._close(episode))
        return
    OF_AN_EPISODE[what](rig)
    with pytest.raises(AssertionError, match=what):
        asyncio.run(session._close(episode))
