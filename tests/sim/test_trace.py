# SPDX-License-Identifier: BSD-2-Clause
"""The two models of what surrounds the core agree: one script, the same TLPs from the core.

    sim/benches/trace.py ─┬─ cocotb ──── sim/benches/series7.py ─── core ──▶ TLPs ┐
                          └─ vfio-user ─ sim/native/hardblock ───── core ──▶ TLPs ┴ equal?
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import time
from contextlib import closing, suppress

import pytest

from peerdma.simboard import SimulatedBoard
from peerdma.vfio_user import VfioUserClient
from peerdma.vfio_wire import CONFIG_REGION
from sim.benches import trace
from sim.benches.runner import run_folder
from sim.benches.tb import TLP_LOG

#: Real-time bound of anything here, in seconds.
PATIENCE = 60.0
MEMORY_AND_BUS_MASTER = 0b110


def play(client: VfioUserClient) -> None:
    """Play the script on a simulated board."""
    for access in trace.script():
        if access.value is not None:
            client.region_write(access.bar, access.offset, access.size, access.value)
            continue
        deadline = time.monotonic() + PATIENCE
        while client.region_read(access.bar, access.offset, access.size) & 1 and access.idle:
            assert time.monotonic() < deadline, "the channel stays busy"


def native_tlps(path) -> list[str]:
    """TLPs of the native model, whose data movement is checked as well."""
    initial = trace.initial_memory()
    with closing(SimulatedBoard(["--log-tlps", str(path)])) as board:
        client = VfioUserClient(board.path, timeout=PATIENCE)
        maps = {}
        try:
            board.connected()
            client.region_write(CONFIG_REGION, 4, 2, MEMORY_AND_BUS_MASTER)
            for name, address in trace.PAGES.items():
                maps[name] = mmap.mmap(-1, trace.PAGE_BYTES)
                maps[name][:] = bytes(initial[name])
                client.dma_map(address, trace.PAGE_BYTES, memoryview(maps[name]))
            play(client)
            assert maps["target"][:] == trace.final_target(initial)
        finally:
            client.close()
    return path.read_text().splitlines()


