# SPDX-License-Identifier: BSD-2-Clause
"""User blocks: what happens to the bytes between a pair's H2C and C2H channel."""

from __future__ import annotations

import importlib
from pathlib import Path

from .axis import Axis, verilog_block
from .base import FrameBlock, UserBlock
from .bfloat16 import ToBfloat16
from .pass_through import PassThrough
from .pattern_source import PatternSource

__all__ = [
    "BLOCKS",
    "Axis",
    "FrameBlock",
    "PassThrough",
    "PatternSource",
    "ToBfloat16",
    "UserBlock",
    "find",
]

#: The blocks of this package, by the names that command lines know them by.
BLOCKS: dict[str, type[UserBlock]] = {
    "pass": PassThrough,
    "bfloat16": ToBfloat16,
    "pattern": PatternSource,
    "axis": Axis,
}


def find(name: str) -> type[UserBlock] | None:
    """The user block that a command line means.

    Parameters
    ----------
    name : str
        A key of `BLOCKS`, ``module:Class`` for a block in a module of one's own, a file whose name
        ends in ``.v`` for one in Verilog (see `axis.verilog_block`), or "none" for a core without
        streams.

    Raises
    ------
    ValueError
        If there is no such block.
    """
    if name == "none":
        return None
    if name in BLOCKS:
        return BLOCKS[name]
    if name.endswith(".v"):
        return verilog_block(Path(name))
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(
            f"there is no user block {name!r}; there are {', '.join(BLOCKS)}, none, and yours as "
            "module:Class or FILE.v"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"asked for the user block {name}: {error}. Is its folder in PYTHONPATH?"
        ) from error
    if not (isinstance(found, type) and issubclass(found, UserBlock)):
        raise ValueError(f"{name} is no user block: derive it from hw.stream.user_blocks.UserBlock")
    return found
