# SPDX-License-Identifier: BSD-2-Clause
"""Compiles the stand-in for NVIDIA's Vulkan driver, for boards that are to find it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

__all__ = ["compile_driver"]

_HERE = Path(__file__).resolve().parent
_NATIVE = _HERE.parents[2] / "sim/board/native"


def compile_driver(folder: Path) -> dict[str, str]:
    """Makes it in a folder; returns the environment of a board that finds no other."""
    library = folder / "libstandin.so"
    source = _HERE / "vulkan_driver.cpp"
    flags = ["-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", f"-I{_NATIVE}"]
    subprocess.run(["g++", *flags, str(source), "-o", str(library)], check=True)
    description = folder / "standin.json"
    description.write_text(json.dumps({"ICD": {"library_path": "./libstandin.so"}}))
    return {"VK_DRIVER_FILES": str(description)}
