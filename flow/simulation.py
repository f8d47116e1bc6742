# SPDX-License-Identifier: BSD-2-Clause
"""The synthesized core as Verilog for simulation."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from .toolchain import Toolchain, ToolError, synthesis

__all__ = ["models", "netlist"]

_MODELS = Path(__file__).resolve().parent / "models"


def models() -> str:
    """Our models of primitives of which Yosys' library has the ports only."""
    return "".join(path.read_text() for path in sorted(_MODELS.glob("*.v")))


def netlist(verilog: str, top: str) -> str:
    """The netlist of a design for a 7-series FPGA, with models of the primitives that it uses.

    As for a bitstream (`flow.image.synthesize`), but without I/O buffers.

    Raises
    ------
    flow.toolchain.ToolError, tools.debian_tree.TreeError
        If Yosys fails or cannot be downloaded.
    """
    tools = Toolchain.obtain()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "design.v").write_text(verilog)
        script = (
            f"read_verilog design.v; {synthesis(top, '-noiopad', '-noclkbuf')}"
            "delete t:$scopeinfo; write_verilog -noattr netlist.v"
        )
        tools.run("yosys", "-q", "-p", script, folder=folder)
        text = (folder / "netlist.v").read_text()
    return _with_models(text, tools.models.read_text())


def _with_models(text: str, library: str) -> str:
    """A netlist with the models of every primitive in it."""
    found, ours = (
        {m[1]: m[0] for m in re.finditer(r"^module\s+(\w+)\b.*?^endmodule\n", source, re.M | re.S)}
        for source in (library, models())
    )
    used = set(re.findall(r"^  ([A-Z][A-Z0-9]+) (?:#\(|\\?\S+ \()", text, re.MULTILINE))
    # Initial contents of block RAM, which are all zero or undefined here; the model has zeros.
    text = re.sub(r"^ *\.INITP?_[0-9A-F]{2}\(256'[bh][0x]+\),\n", "", text, flags=re.MULTILINE)
    if missing := sorted(name for name in used - ours.keys() if name.startswith("RAMB")):
        raise ToolError(f"no model of {', '.join(missing)}: Yosys has none either; see {_MODELS}")
    found |= ours
    return text + "".join(found[name] for name in sorted(used & found.keys()))
