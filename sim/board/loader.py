# SPDX-License-Identifier: BSD-2-Clause
"""A compiled model of the board, and loading it into this process."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
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
    block : mapping
        What the native model has to be told of another PCIe block than the 7 series', as options
        of `sim/board/native/options.h`.
    """

    library: Path
    clock_khz: int
    space: ConfigSpace
    block: Mapping[str, int | str] = field(default_factory=dict)

    def load(self) -> ctypes.CDLL:
        """The library, loaded."""
        return ctypes.CDLL(str(self.library))
