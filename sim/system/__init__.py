# SPDX-License-Identifier: BSD-2-Clause
"""The whole system in QEMU: a Linux guest with the driver, the simulated board, a simulated GPU.

    with Guest("strict") as guest:
        status, text = guest.run("peerdma info")

See `sim.system.guest.Guest`, and docs/system.md.
"""

from .board import Board
from .errors import GuestError, KernelComplaint
from .guest import Guest, Running
from .kernel import Kernel, stock
from .lanes import LANES, Lane

__all__ = [
    "LANES",
    "Board",
    "Guest",
    "GuestError",
    "Kernel",
    "KernelComplaint",
    "Lane",
    "Running",
    "stock",
]
