# SPDX-License-Identifier: BSD-2-Clause
"""The engine without bubbles, on the board's own model of hard block, link and root complex.

It fetches no descriptors and has no logic of its own: an upper bound for any core at that clock,
round trip and payload size, with that room for completions.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import NamedTuple

from sim.board.session import Conditions

from ..compile.native import compile_ideal

__all__ = ["USUAL", "Result", "ideal"]

#: What a board usually finds around it.
USUAL = Conditions()


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
    conditions: Conditions = USUAL,
    *,
    accounts: bool = True,
) -> Result:
    """Moves `total` bytes in the direction `what`.

    Parameters
    ----------
    what : str
        "h2c", "c2h", "copy" (from host to host) or "dual" (both at once, unrelated);
        "lat_h2c", "lat_c2h" and "lat_copy" start with a doorbell and end with an interrupt.
    conditions : Conditions
        Its `tags` mean nothing here: this engine has 32.
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
    numbers = (ctypes.c_double * len(Result._fields))()
    _library().ideal_run(
        conditions.options().encode(),
        what.encode(),
        conditions.max_payload,
        conditions.max_read_request,
        ctypes.c_bool(accounts),
        ctypes.c_uint64(total),
        numbers,
    )
    return Result(*numbers)
