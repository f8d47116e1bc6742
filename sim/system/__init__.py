# SPDX-License-Identifier: BSD-2-Clause
"""The whole system in QEMU: a Linux guest with the driver, the simulated board, a simulated GPU.

    with Guest("strict") as guest:
        status, text = guest.run("peerdma info")

See `sim.system.guest.Guest`, and docs/system.md.
"""

from .board import Board
from .configurations import CONFIGURATIONS, Configuration
from .errors import BootError, GuestError, KernelComplaint
from .guest import Guest, Running
from .kernel import Kernel, stock

__all__ = [
    "CONFIGURATIONS",
    "Board",
    "BootError",
    "Configuration",
    "Guest",
    "GuestError",
    "Kernel",
    "KernelComplaint",
    "Running",
    "stock",
]
