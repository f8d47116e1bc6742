# SPDX-License-Identifier: BSD-2-Clause
"""The package `peerdma_sim`: the files of `sim/board`, with compiled models."""

from __future__ import annotations

import shutil
from pathlib import Path

from hw.core import CoreConfig
from hw.stream.user_blocks import BLOCKS
from sim.board.installed import save
from sim.compile.model import compiled
from sim.compile.tools import ROOT, Compiler

__all__ = ["write_package"]

#: User blocks of its models: the default core's, and a source of frames.
_USERS = (None, "pattern")


def write_package(folder: Path, compiler: Compiler) -> None:
    """Writes the package as `folder`, which it makes; raises BuildError."""
    folder.mkdir(parents=True)
    for path in (ROOT / "sim" / "board").glob("*.py"):
        if path.name != "__main__.py":
            name = "__main__.py" if path.name == "installed.py" else path.name
            shutil.copyfile(path, folder / name)
    core = CoreConfig()
    names = "h2c", "c2h", "ram_size", "launch_queues"
    options = {name: getattr(core, name) for name in names} | {
        "plain": False,
        "waves": False,
        "block": "series7",
    }
    default = next(name for name, block in BLOCKS.items() if block is core.user)
    models = [
        (compiled(user, compiler=compiler), {"user": user or default, **options}) for user in _USERS
    ]
    save(models, folder)
