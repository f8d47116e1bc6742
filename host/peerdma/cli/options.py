# SPDX-License-Identifier: BSD-2-Clause
"""What the commands that transfer have in common: their options, and what they say of them."""

from __future__ import annotations

import argparse
import re
from typing import Any

from ..board.backend import BoardInfo
from ..memory.memory import DataPath
from ..memory.surface import Gpu

__all__ = ["about", "add_gpu_options", "heading", "way"]


def add_gpu_options(command: argparse.ArgumentParser, memory: str, **more: str) -> None:
    """Adds --gpu and --memory: `memory` says of what, `more` are other choices with their help."""
    command.add_argument(
        "--gpu",
        type=_gpu,
        metavar="auto|emulated|cuda[:N]",
        default="auto",
        help="GPU to use: auto is the first CUDA GPU, or the emulated one where there is none, "
        "cuda:1 the second (default: auto)",
    )
    command.add_argument(
        "--memory",
        choices=("auto", "device", "host", *more),
        default="auto",
        help=f"{memory} in the GPU's own memory, or in the host's as an integrated GPU has them; "
        + "".join(f"{name} is {text}; " for name, text in more.items())
        + "auto is the GPU's own where other devices can reach it (default: auto)",
    )


def _gpu(text: str) -> str:
    if not re.fullmatch(r"auto|emulated|cuda(:[0-9]+)?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is none of auto, emulated, cuda, cuda:N")
    return text


def about(board: BoardInfo, gpu: Gpu | None, memory: str) -> dict[str, Any]:
    """What a report says of board and GPU; `memory` is where the surfaces are."""
    return {
        "board": board.name,
        "simulated": board.simulated,
        "link": str(board.extension.link) if board.extension else None,
        "gpu": gpu.name if gpu else None,
        "emulated": gpu.emulated if gpu else None,
        "memory": memory,
    }


def heading(report: dict[str, Any]) -> list[tuple[str, str]]:
    """The same to be read: names and values."""
    board = report["board"] + (f", {report['link']}" if report["link"] else "")
    gpu = [("GPU", report["gpu"])] if report["gpu"] else []
    return [("board", board), *gpu, ("surfaces", report["memory"])]


def way(path: str | None, why: str = "") -> str:
    """The path of the bytes, as shown to users; `why` there is no direct one, if it is known."""
    if path == DataPath.STAGED:
        return f"{path}: copied by the CPU, as {why or 'there is no direct way'}"
    return path or "nothing"
