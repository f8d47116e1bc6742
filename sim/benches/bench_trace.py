# SPDX-License-Identifier: BSD-2-Clause
"""The script of `trace`, played on this model of the hard block."""

from __future__ import annotations

from cocotb.triggers import Timer

from . import trace
from .tb import TB, bench


@bench(us=300)
async def replay(tb: TB):
    """The script's data arrives; its TLPs are compared with the native model's by a test."""
    memory = trace.initial_memory()
    expected = trace.final_target(memory)
    for name, address in trace.PAGES.items():
        tb.host.map_memory(address, memory[name])
    for access in trace.script():
        if access.value is not None:
            data = access.value.to_bytes(access.size, "little")
            await tb.bar_write(access.bar, access.offset, data)
            continue
        while (await tb.bar_read(access.bar, access.offset, access.size))[0] & 1 and access.idle:
            await Timer(1, "us")
    assert memory["target"] == expected
