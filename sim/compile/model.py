# SPDX-License-Identifier: BSD-2-Clause
"""The simulated board's model, compiled from the sources of this checkout."""

from __future__ import annotations

from sim.board.loader import Model
from sim.board.session import Seam

from .configuration import configuration_space
from .generated import obtain
from .native import compile_board
from .tools import Compiler

__all__ = ["compiled"]


def compiled(
    user: str | None = None,
    *,
    plain: bool = False,
    waves: bool = False,
    seam: Seam | None = None,
    block: str | None = None,
    compiler: Compiler | None = None,
    **numbers: int | None,
) -> Model:
    """The model of a board, compiled if it is not there yet.

    Parameters are those of `sim.compile.generated.obtain`, and `compiler` that of
    `sim.compile.native.compile_board`.

    Raises
    ------
    BuildError
    """
    core = obtain(user, plain=plain, waves=waves, seam=seam, block=block, **numbers)
    return Model(compile_board(core, compiler), core.clock_khz, configuration_space())
