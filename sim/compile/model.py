# SPDX-License-Identifier: BSD-2-Clause
"""The simulated board's model, compiled from the sources of this checkout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hw.pcie.ultrascale.family import FAMILIES
from sim.board.loader import Model
from sim.board.session import Seam

from .configuration import configuration_space
from .generated import obtain
from .native import compile_board
from .tools import Compiler

if TYPE_CHECKING:
    from .exerciser import Exercised

__all__ = ["SERVED", "compiled"]

#: Cores of served boards, by their PCIe blocks. Behind UltraScale and UltraScale+ they are for
#: Gen3 x8, which 256 bits carry at this clock.
SERVED: dict[str, dict[str, Any]] = {
    "series7": {},
    "ultrascale": {"block": "ultrascale-256", "clock_khz": 250_000},
    "ultrascale-plus": {"block": "ultrascale_plus-256", "clock_khz": 250_000},
}


def compiled(
    user: str | None = None,
    *,
    plain: bool = False,
    waves: bool = False,
    seam: Seam | None = None,
    block: str | Exercised | None = None,
    compiler: Compiler | None = None,
    **numbers: int | None,
) -> Model:
    """The model of a board, compiled if it is not there yet.

    Parameters are those of `sim.compile.generated.obtain`, where `block` may also be one of
    `SERVED`, and `compiler` that of `sim.compile.native.compile_board`.

    Raises
    ------
    BuildError
    """
    chosen = SERVED.get(block, {"block": block}) if block else {}
    core = obtain(user, plain=plain, waves=waves, seam=seam, **{**chosen, **numbers})
    name = chosen.get("block", "series7")
    name = getattr(name, "adapter", name)
    family = name.rsplit("-", 1)[0]
    space = configuration_space(family)
    return Model(compile_board(core, compiler), core.clock_khz, space, _described(name, family))


def _described(name: str, family: str) -> dict[str, int | str]:
    """A block of `hw.pcie.adapters.ADAPTERS`, as `Model.block`."""
    if family not in FAMILIES:
        return {}
    found = FAMILIES[family]
    return {
        "streams": name,
        "completion_headers": found.completion_headers,
        "completion_credits": found.completion_credits,
    }
