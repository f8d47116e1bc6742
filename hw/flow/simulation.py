# SPDX-License-Identifier: BSD-2-Clause
"""The core after synthesis, as Verilog that a simulator can run."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from .toolchain import Toolchain

__all__ = ["netlist"]

_MODELS = Path(__file__).resolve().parent / "models"


def netlist(verilog: str, top: str) -> str:
    """What synthesis for a 7-series FPGA makes of a design, and the primitives that it uses.

    As for a bitstream (`hw.flow.build.synthesize`), but without I/O buffers.

    Raises
    ------
    hw.flow.toolchain.ToolError, tools.debian_tree.TreeError
        If Yosys fails or cannot be had.
    """
    tools = Toolchain.obtain()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "design.v").write_text(verilog)
        script = (
            "read_verilog design.v; "
            f"synth_xilinx -flatten -nosrl -abc9 -noiopad -noclkbuf -arch xc7 -top {top}; "
            "delete t:$scopeinfo; write_verilog -noattr netlist.v"
        )
        tools.run("yosys", "-q", "-p", script, folder=folder)
        text = (folder / "netlist.v").read_text()
    return text + "".join(_primitives(text, tools))


def _primitives(text: str, tools: Toolchain) -> list[str]:
    """The models of every primitive in a netlist."""
    library = {}
    for path in (tools.models, *_MODELS.glob("*.v")):
        for match in re.finditer(
            r"^module\s+(\w+)\b.*?^endmodule\n", path.read_text(), re.M | re.S
        ):
            library[match.group(1)] = match.group(0)
    used = set(re.findall(r"^  ([A-Z][A-Z0-9]+) (?:#|\\?\S+ \()", text, re.MULTILINE))
    return [library[name] for name in sorted(used & library.keys())]
