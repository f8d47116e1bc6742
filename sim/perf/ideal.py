# SPDX-License-Identifier: BSD-2-Clause
"""The engine without bubbles, on the board's own model of hard block, link and root complex.

It fetches no descriptors and has no logic of its own: an upper bound for any core at that clock,
round trip and payload size, with that room for completions.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import NamedTuple

from ..compile.native import compile_ideal

__all__ = ["Result", "ideal"]


class Result(NamedTuple):
    """What a run took. Rates are bytes per cycle in its middle part, times are cycles."""

    #: to and from the host's memory; 0 if the run is too short to tell
    write_rate: float
    read_rate: float
    cycles: float
    #: when the doorbell reached the engine; this and the rest only for runs that start with one
    doorbell: float
    #: when the last byte was where it belongs
    data: float
    #: when the interrupt reached the host
    interrupt: float
    #: TLPs that were illegal or got lost
    errors: float


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(str(compile_ideal()))


def ideal(
    what: str,
    total: int,
    *,
    clock_khz: float = 125_000,
    link_mbps: float = 500,
    rtt_ns: float = 1000,
    max_payload: int = 128,
    max_read_request: int = 512,
    completion_bytes: int = 512,
    boundary: int = 64,
    tlp_gap: int = 0,
    beat_idle: float = 0.0,
    accounts: bool = True,
) -> Result:
    """Moves `total` bytes in the direction `what`.

    Parameters
    ----------
    what : str
        "h2c", "c2h", "copy" (from host to host) or "dual" (both at once, unrelated);
        "lat_h2c", "lat_c2h" and "lat_copy" start with a doorbell and end with an interrupt.
    clock_khz, link_mbps, rtt_ns
        The engine's clock; raw 10^6 bytes per second of the link; last byte of a read request
        received to its first completion sent.
    max_payload, max_read_request, completion_bytes, boundary : int
        In bytes.
    tlp_gap, beat_idle
        As for `sim.board.session.Conditions`.
    accounts : bool
        Asks only for what the PCIe block has room to receive, as the core does: charged is a
        completion for each read completion boundary.

    Raises
    ------
    ValueError
        If `what` is none of these.
    """
    directions = ("h2c", "c2h", "copy")
    if what not in (*directions, "dual", *(f"lat_{direction}" for direction in directions)):
        raise ValueError(f"the ideal engine does h2c, c2h, copy, dual or lat_..., not {what!r}")
    options = (
        f"clock_khz={clock_khz}\nlink_mbps={link_mbps}\nrtt_ns={rtt_ns}\n"
        f"completion_bytes={completion_bytes}\ncompletion_boundary={boundary}\n"
        f"tlp_gap={tlp_gap}\nbeat_idle={beat_idle}\n"
    )
    numbers = (ctypes.c_double * len(Result._fields))()
    _library().ideal_run(
        options.encode(),
        what.encode(),
        max_payload,
        max_read_request,
        ctypes.c_bool(accounts),
        ctypes.c_uint64(total),
        numbers,
    )
    return Result(*numbers)
