# SPDX-License-Identifier: BSD-2-Clause
"""The model of the PCIe block that a core is for."""

from __future__ import annotations

import random

from hw.endpoint import DEFAULT_ADAPTER

from .model import SEAMS
from .seam import SeamDevice
from .series7 import Series7Device
from .ultrascale import ultrascale_device

__all__ = ["device_for"]


def device_for(dut, name: str, rng: random.Random, *, lanes: int, stall: float):
    """The model for one of `hw.pcie.adapters.ADAPTERS` or `SEAMS`; it drives the core's clock.

    Whatever the block, it has `clock_ns`, `function`, `checker`, `on_tlp`, `stall`, `leave_reset`
    `expect_no_errors` and `take_timeouts`.

    Parameters
    ----------
    dut
        The core in reset.
    name : str
        Key in either.
    rng : random.Random
    lanes : int
        Width of the link of the 7-series block and of one at the seam; those of the others follow
        from their ports.
    stall : float
        Probability of a pause in each cycle of each direction or stream. May be changed.
    """
    if name == DEFAULT_ADAPTER.name:
        return Series7Device(dut, rng, lanes=lanes, stall=stall)
    if name in SEAMS:
        return SeamDevice(dut, rng, SEAMS[name], lanes=lanes, stall=stall)
    return ultrascale_device(dut, name, rng, stall=stall)
