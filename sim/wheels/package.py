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

#: User blocks of its models, and PCIe blocks: the default core, with a source of frames, and behind
#: each other block. Each takes time to compile and half a MB, so not all pairs are there.
_MODELS = (
    (None, "series7"),
    ("pattern", "series7"),
    (None, "ultrascale"),
    (None, "ultrascale-plus"),
)


def write_package(folder: Path, compiler: Compiler) -> None:
    """Writes the package as `folder`, which it makes; raises BuildError."""
    folder.mkdir(parents=True)
    for path in (ROOT / "sim" / "board").glob("*.py"):
        if path.name != "__main__.py":
            name = "__main__.py" if path.name == "installed.py" else path.name
            shutil.copyfile(path, folder / name)
    core = CoreConfig()
    names = "h2c", "c2h", "ram_size", "launch_queues"
    options = {name: getattr(core, name) for name in names} | {"plain": False, "waves": False}
    default = next(name for name, block in BLOCKS.items() if block is core.user)
    models = (
        (
            compiled(user, block=block, compiler=compiler),
            {"user": user or default, "block": block, **options},
        )
        for user, block in _MODELS
    )
    save(models, folder)
