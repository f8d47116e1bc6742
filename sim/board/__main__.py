# SPDX-License-Identifier: BSD-2-Clause
"""The simulated board as a program: `sim.board.server` with a model of this checkout.

The only file here that imports `sim.compile`, which makes the model.
"""

import sys

from sim.compile.model import compiled
from sim.compile.tools import BuildError

from .loader import Model
from .server import StartError, main


def _model(user: str | None, *, plain: bool, waves: bool, **core: int | str | None) -> Model:
    try:
        return compiled(user, plain=plain, waves=waves, **core)
    except BuildError as problem:
        raise StartError(str(problem)) from None


if __name__ == "__main__":
    sys.exit(main(_model, ".venv/bin/python -m sim.board"))
