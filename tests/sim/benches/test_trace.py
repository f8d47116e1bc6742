# SPDX-License-Identifier: BSD-2-Clause
"""The two models of what surrounds the core agree: one script, the same TLPs from the core.

sim/benches/trace.py ─┬─ cocotb ──── sim/benches/series7.py ─── core ──▶ TLPs ┐
                      └─ vfio-user ─ sim/board/native/block ───────── core ──▶ TLPs ┴ equal?
"""

from __future__ import annotations

import re
import time
from contextlib import ExitStack

import pytest

from peerdma.trace.capture import read as read_capture
from sim.benches import trace
from sim.benches.runner import folder_of
from sim.benches.tb import CAPTURE, TLP_LOG
from tests.sim.benches.test_benches import benches
from tests.sim.board.client import ANSWER, Board, Client, Memory

SEED = 1


def test_both_models_see_the_same_tlps(tmp_path):
    done = benches("bench_trace.replay", "--seed", str(SEED))
    assert done.returncode == 0, done.stdout
    folder = folder_of("bench_trace.replay", SEED)
    cocotb_log = (folder / TLP_LOG).read_text()
    assert len(read_capture(folder / CAPTURE).packets) == len(cocotb_log.splitlines())
    native_log = native(tmp_path)
    for kind in KINDS:
        assert of_kind(native_log, kind) == of_kind(cocotb_log, kind) != []


def native(tmp_path) -> str:
    """Play the script on a simulated board; its log of TLPs."""
    log = tmp_path / TLP_LOG
    initial = trace.initial_memory()
    with ExitStack() as stack:
        board = stack.enter_context(Board(tmp_path, "--log-tlps", str(log)))
        client = stack.enter_context(Client(board))
        client.enable()
        memory = {name: stack.enter_context(Memory(trace.PAGE_BYTES)) for name in trace.PAGES}
        for name, address in trace.PAGES.items():
            memory[name].bytes[:] = initial[name]
            client.map(address, memory[name])
        for access in trace.script():
            if access.value is None:
                read(client, access)
            else:
                client.write(access.bar, access.offset, access.value, access.size)
        assert memory["target"].bytes.tobytes() == trace.final_target(initial)
    return log.read_text()


def read(client: Client, access: trace.Access) -> None:
    deadline = time.monotonic() + ANSWER
    while client.read(access.bar, access.offset, access.size) & 1 and access.idle:
        assert time.monotonic() < deadline, f"still busy: {access}"


#: What the core sends, in streams that have an order of their own: how they mix depends on the
#: time that each model takes.
KINDS = {
    "descriptor reads": rf"MRd addr={trace.PAGES['descriptors'] >> 16:#x}",
    "data reads": rf"MRd addr={trace.PAGES['source'] >> 16:#x}",
    "writes": "MWr ",
    "completions": "CplD ",
}
#: Status that says no more than busy. How often it is seen depends on time, too.
BUSY = "data=01000000"


def of_kind(log: str, kind: str) -> list[str]:
    """TLPs of the core, without their time and tag."""
    lines = re.findall(rf"^\d+ up ({KINDS[kind]}.*)$", log, re.MULTILINE)
    return [re.sub(r" tag=\d+", "", line) for line in lines if BUSY not in line]


@pytest.mark.parametrize("kind", ["descriptor reads", "data reads", "writes"])
def test_a_difference_shows(kind):
    one, other = (f"7 up {KINDS[kind]}{digit} len=4 tag={digit}\n" for digit in "01")
    assert of_kind(one, kind) == of_kind(one.replace("tag=0", "tag=9").replace("7", "8"), kind)
    assert of_kind(one, kind) != of_kind(other, kind)
