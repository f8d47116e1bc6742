# SPDX-License-Identifier: BSD-2-Clause
"""A compiled model of the board, and loading it into this process."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path

from .config_space import ConfigSpace

__all__ = ["Model"]


@dataclass(frozen=True)
class Model:
    """A compiled model: the core, and the native model of PCIe block, link and root complex.

    Attributes
    ----------
    library : Path
        Shared library with the interfaces of `sim/board/native/capi.cpp` and `session.cpp`.
    clock_khz : int
        The core's clock.
    space : ConfigSpace
        The function's configuration space.
    """

    library: Path
    clock_khz: int
    space: ConfigSpace

    def load(self) -> ctypes.CDLL:
        """The library, loaded."""
        return ctypes.CDLL(str(self.library))
