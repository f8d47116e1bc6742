# SPDX-License-Identifier: BSD-2-Clause
"""The installed simulated board: `sim.board.server` with the model that lies beside it.

`save` puts one there. In the wheel peerdma-sim this file is `__main__`, in place of the one that
compiles models.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

from .config_space import ConfigSpace
from .loader import Model
from .server import StartError, main

__all__ = ["save"]

_LIBRARY, _ABOUT = "libboard.so", "model.json"


def save(model: Model, folder: Path, **core: str | int | bool) -> None:
    """Writes a model's files into a folder.

    Parameters
    ----------
    **core
        What its core is in terms of the board's options, all that choose one.
    """
    space = {name: image.hex() for name, image in asdict(model.space).items()}
    about = {"clock_khz": model.clock_khz, "core": core, "space": space}
    (folder / _ABOUT).write_text(json.dumps(about, indent=1, sort_keys=True))
    shutil.copyfile(model.library, folder / _LIBRARY)


def _model(user: str | None, **core: int | bool | None) -> Model:
    folder = Path(__file__).parent
    about = json.loads((folder / _ABOUT).read_text())
    others = [
        f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
        for name, value in {"user": user, **core}.items()
        if value not in (None, about["core"][name])
    ]
    if others:
        raise StartError(
            f"the installed board has a model of the default core only, none for "
            f"{', '.join(others)}. A checkout of peerdma compiles others: there `make setup && "
            ".venv/bin/python -m sim.board --socket board.sock` with these options, and open that "
            "socket"
        )
    space = ConfigSpace(**{name: bytes.fromhex(image) for name, image in about["space"].items()})
    return Model(folder / _LIBRARY, about["clock_khz"], space)


if __name__ == "__main__":
    sys.exit(main(_model, "python3 -m peerdma_sim"))
