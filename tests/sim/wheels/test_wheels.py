# SPDX-License-Identifier: BSD-2-Clause
"""The wheels, built, installed and run; what builds them, `make test-system` installs."""

from __future__ import annotations

import html
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import peerdma
from sim.compile.tools import CACHE, ROOT, BuildError
from sim.system import Guest

pytestmark = pytest.mark.system
VERSION = peerdma.__version__
LIBRARY = f"peerdma-{VERSION}-py3-none-any.whl"
BOARDS = {
    machine: f"peerdma_sim-{VERSION}-py3-none-manylinux_2_28_{machine}.whl"
    for machine in ("x86_64", "aarch64")
}


def build(folder: Path) -> Path:
    """Builds the wheels into the folder."""
    subprocess.run([sys.executable, "-m", "sim.wheels", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels."""
    return build(tmp_path_factory.mktemp("wheels"))


def metadata(wheel: zipfile.ZipFile) -> Message:
    """The core metadata of a wheel."""
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_two_builds_give_the_same_bytes(wheels, tmp_path):
    names = {LIBRARY, *BOARDS.values()}
    assert {path.name for path in wheels.iterdir()} == names
    build(tmp_path)
    for name in names:
        assert (tmp_path / name).read_bytes() == (wheels / name).read_bytes(), name


def test_what_is_in_them(wheels):
    tops = {
        LIBRARY: {"peerdma", "peerdma_start.py", f"peerdma-{VERSION}.dist-info"},
        **{name: {"peerdma_sim", f"peerdma_sim-{VERSION}.dist-info"} for name in BOARDS.values()},
    }
    sources = {"peerdma": ROOT / "host" / "peerdma", "peerdma_sim": ROOT / "sim" / "board"}
    # The program that compiles models stays behind, the other takes its place.
    renamed = {"peerdma_sim/__main__.py": ROOT / "sim" / "board" / "installed.py"}
    for name, expected in tops.items():
        with zipfile.ZipFile(wheels / name) as wheel:
            assert {each.partition("/")[0] for each in wheel.namelist()} == expected
            for each in wheel.namelist():
                package, _, rest = each.partition("/")
                content = wheel.read(each)
                # Nothing tells where it was built.
                for place in (ROOT, Path(sys.prefix), Path.home()):
                    assert os.fsencode(f"{place}/") not in content, (each, place)
                if package in sources and each.endswith(".py"):
                    path = renamed.get(each, sources[package] / rest)
                    assert content == path.read_bytes(), each


def test_the_board_fits_one_version_and_says_whose_code_is_in_it(wheels):
    for name in BOARDS.values():
        with zipfile.ZipFile(wheels / name) as wheel:
            about = metadata(wheel)
            assert about["Version"] == VERSION
            assert about.get_all("Requires-Dist") == [f"peerdma=={VERSION}"]
            assert about["License-Expression"] == (
                "BSD-2-Clause AND (LGPL-3.0-only OR Artistic-2.0) AND "
                "Apache-2.0 WITH LLVM-exception AND MIT"
            )
            text = about.get_payload()
            assert "Verilator's runtime library (" in text and "{" not in text
            first = {
                "BSD-2-Clause": "BSD 2-Clause License",
                "Artistic-2.0": "Artistic License 2.0",
                "libcxx": "The LLVM Project is under the Apache License v2.0",
                "libcxxabi": "The LLVM Project is under the Apache License v2.0",
                "libunwind": "The LLVM Project is under the Apache License v2.0",
                "zig": "The MIT License",
            }
            files = about.get_all("License-File")
            assert {Path(file).stem for file in files} == set(first)
            for file in files:
                place = f"peerdma_sim-{VERSION}.dist-info/licenses/{file}"
                assert first[Path(file).stem] in wheel.read(place).decode()[:200]


def test_a_model_that_needs_a_newer_system_is_refused(wheels, tmp_path):
    """Here one that calls a function of glibc 2.38."""
    from sim.wheels.__main__ import audit

    code, library = tmp_path / "newer.c", tmp_path / "libboard-series7-pattern.so"
    code.write_text("#include <string.h>\nvoid f(char *a, char *b) { strlcpy(a, b, 4); }\n")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.38"]
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(CACHE / "zig")}
    subprocess.run([*command, "-shared", "-o", library, code], env=environment, check=True)
    good, newer = wheels / BOARDS["x86_64"], tmp_path / BOARDS["x86_64"]
    audit(good, "x86_64")
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(newer, "w") as target:
        for name in source.namelist():
            changed = name == f"peerdma_sim/{library.name}"
            target.writestr(name, library.read_bytes() if changed else source.read(name))
    with pytest.raises(BuildError, match="needs more than its name says"):
        audit(newer, "x86_64")
    assert not newer.exists()


def install_numpy(site: Path) -> None:
    """Links the numpy of this environment into another one, for which pip has no index here."""
    numpy = importlib.metadata.distribution("numpy")
    for name in {file.parts[0] for file in numpy.files if file.parts[0] != ".."}:
        (site / name).symlink_to(numpy.locate_file(name))


@pytest.fixture(scope="module")
def environment(wheels, tmp_path_factory) -> Path:
    """A virtual environment in which the wheels are installed, with numpy."""
    environment = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    install_numpy(site_of(environment))
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    command = [*pip, "install", "--no-index", "--find-links", str(wheels), "peerdma-sim"]
    subprocess.run(command, check=True)
    return environment


def site_of(environment: Path) -> Path:
    """Where packages are in an environment."""
    (site,) = environment.glob("lib/python3*/site-packages")
    return site


def run_in(
    environment: Path, home: Path, program: str, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program of an environment in `home`, with nothing else in its PATH."""
    clean = {"PATH": str(environment / "bin"), "HOME": str(home), **variables}
    assert shutil.which("g++", path=clean["PATH"]) is None
    done = subprocess.run(
        [str(environment / "bin" / program), *arguments],
        cwd=home,
        env=clean,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("options", "nbytes"),
    [
        ("", 1 << 22),
        ("--block ultrascale --size 64x64", 1 << 14),
        ("--block ultrascale-plus --size 64x64", 1 << 14),
    ],
)
def test_they_run_where_there_is_no_compiler(environment, tmp_path, options, nbytes):
    done = run_in(environment, tmp_path, "peerdma", "demo", "--json", *options.split())
    report = json.loads(done.stdout)
    assert report["verified"] and report["simulated"]
    assert report["bytes"] == nbytes
    assert list(tmp_path.iterdir()) == []
    print(f"the demo took {report['wall_seconds']:.1f} s")


#: Writes a notebook with its outputs.
EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.execute(notebook)
nbformat.write(notebook, sys.argv[2])
"""


def test_the_notebook(environment, tmp_path):
    """As Jupyter runs it: a cell that fails is an error; what the cells say is in the result."""
    import nbclient  # which `make test` does not need

    # Jupyter is this environment's. What the other one has comes first.
    jupyter = Path(nbclient.__file__).parents[1]
    path = f"{site_of(environment)}{os.pathsep}{jupyter}"
    notebook = str(ROOT / "host" / "examples" / "peerdma.ipynb")
    run_in(environment, tmp_path, "python", "-c", EXECUTE, notebook, "done.ipynb", PYTHONPATH=path)
    cells = json.loads((tmp_path / "done.ipynb").read_text())["cells"]
    opened, copied, surfaces, frames, trace = (
        cell["outputs"] for cell in cells if cell["cell_type"] == "code"
    )
    assert text_of(opened) == "simulated board, PCIe Gen2 x1\n"
    assert re.fullmatch(r"4096 bytes in \d+ cycles of the board: host memory .*\n", text_of(copied))
    assert text_of(surfaces).startswith("16384 bytes, all right: peer-to-peer to the board")
    numbers = re.findall(r"^frame (\d): begun at cycle \d+, all right$", text_of(frames), re.M)
    assert numbers == list("012345")
    (picture,) = ("".join(each["data"]["text/html"]) for each in trace if "data" in each)
    (page,) = re.findall('<iframe srcdoc="([^"]*)"', picture)
    assert html.unescape(page) == (tmp_path / "copy.html").read_text()
    # In the trace, the GPU's memory is read and written.
    shown = run_in(environment, tmp_path, "peerdma", "trace", "copy.pcapng").stdout
    assert re.search("card > GPU +MRd", shown) and re.search("card > GPU +MWr", shown)


def text_of(outputs: list[dict]) -> str:
    """What a cell has printed."""
    return "".join("".join(each.get("text", [])) for each in outputs)


@pytest.fixture
def arm64() -> Iterator[Guest]:
    """A guest of Debian's arm64, with its Python and numpy."""
    with Guest("arm64", board_options=None, load=False) as guest:
        yield guest


def test_the_other_processor(wheels, arm64, pytestconfig):
    # A folder of the checkout, which the guest sees.
    site = pytestconfig.cache.mkdir("arm64-site")
    shutil.rmtree(site)
    for name in (LIBRARY, BOARDS["aarch64"]):
        with zipfile.ZipFile(wheels / name) as wheel:
            wheel.extractall(site)
    command = "cd / && PYTHONPATH={} python3 -m peerdma demo --board sim --size 64x64 --json"
    status, text = arm64.run(command.format(arm64.path(site)), timeout=600)
    assert status == 0, text
    report = json.loads(text.splitlines()[-1])
    assert report["verified"] and report["simulated"]
    assert report["bytes"] == 64 * 64 * 4
