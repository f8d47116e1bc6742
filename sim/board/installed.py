# SPDX-License-Identifier: BSD-2-Clause
"""The installed simulated board: `sim.board.server` with the models that lie beside it.

`save` puts them there. In the wheel peerdma-sim this file is `__main__`, in place of the one that
compiles models.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .config_space import ConfigSpace
from .loader import Model
from .server import StartError, main

__all__ = ["save"]

_ABOUT = "models.json"


def save(models: Iterable[tuple[Model, dict[str, Any]]], folder: Path) -> None:
    """Writes the files of models into a folder.

    Parameters
    ----------
    models
        Each with what its core is in terms of the board's options, all that choose one. They
        differ in `user` or `block`. The first is that of a board without such options.
    """
    abouts = []
    for model, core in models:
        library = f"libboard-{core['block']}-{core['user']}.so"
        shutil.copyfile(model.library, folder / library)
        space = {name: image.hex() for name, image in asdict(model.space).items()}
        about = {
            "library": library,
            "clock_khz": model.clock_khz,
            "block": dict(model.block),
            "core": core,
            "space": space,
        }
        abouts.append(about)
    (folder / _ABOUT).write_text(json.dumps(abouts, indent=1, sort_keys=True))


def _model(user: str | None, **numbers: int | str | bool | None) -> Model:
    folder = Path(__file__).parent
    models = json.loads((folder / _ABOUT).read_text())

    def others(about: dict[str, Any]) -> list[str]:
        """The options that its core does not have."""
        return [
            f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")
            for name, value in {"user": user, **numbers}.items()
            if value not in (None, about["core"][name])
        ]

    about = next((each for each in models if not others(each)), None)
    if about is None:
        there = ("--user {user} --block {block}".format(**each["core"]) for each in models)
        raise StartError(
            "the installed board has models of the default core only, with "
            f"{' or '.join(there)}, none with {' '.join(others(models[0]))}. A checkout of peerdma "
            "compiles others: there `make setup && .venv/bin/python -m sim.board --socket "
            "board.sock` with these options, and open that socket"
        )
    space = ConfigSpace(**{name: bytes.fromhex(image) for name, image in about["space"].items()})
    return Model(folder / about["library"], about["clock_khz"], space, about["block"])


if __name__ == "__main__":
    sys.exit(main(_model, "python3 -m peerdma_sim"))
