# SPDX-License-Identifier: BSD-2-Clause
"""peerdma.h and peerdma.hpp compile by themselves, and with what programs use beside them."""

import shutil
import subprocess
from pathlib import Path

import pytest

import peerdma
from tests.host.programs import ROOT

INCLUDE = Path(peerdma.include_dir())
EXAMPLES = ROOT / "host" / "examples" / "c"
HERE = Path(__file__).parent
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-pthread")
#: What a program begins with before it includes a header.
POSIX = "#define _POSIX_C_SOURCE 200809L\n"


def compiles(source: Path, *options: str, compiler: str = "") -> None:
    compiler = compiler or ("gcc" if source.suffix == ".c" else "g++")
    command = [compiler, *STRICT, *options, "-I", INCLUDE, "-fsyntax-only", source]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "standard", "before", "header"),
    [
        ("a.c", "c99", POSIX, "peerdma.h"),
        ("a.c", "gnu99", "", "peerdma.h"),
        ("a.c", "c17", POSIX, "peerdma.h"),
        ("a.cpp", "c++11", "", "peerdma.h"),
        ("a.cpp", "c++11", "", "peerdma.hpp"),
        ("a.cpp", "c++20", "", "peerdma.hpp"),
        ("a.c", "gnu99", "#include <cuda.h>\n", "peerdma.h"),
        ("a.cpp", "c++17", "#include <cuda.h>\n", "peerdma.hpp"),
        ("a.cpp", "c++17", "#include <peerdma/device.cuh>\n", "peerdma.hpp"),
    ],
)
def test_a_header_alone(tmp_path: Path, name: str, standard: str, before: str, header: str):
    source = tmp_path / name
    # Twice, as a program may.
    source.write_text(before + f"#include <peerdma/{header}>\n" * 2 + "int main() { return 0; }\n")
    compiles(source, f"-std={standard}", "-I", str(HERE))


def test_what_is_missing_is_said(tmp_path: Path):
    source = tmp_path / "a.c"
    source.write_text("#include <peerdma/peerdma.h>\n")
    with pytest.raises(AssertionError, match="define _POSIX_C_SOURCE as 200809L"):
        compiles(source, "-std=c99")


@pytest.mark.parametrize("path", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_an_example_compiles(path: Path):
    standard = "gnu99" if path.suffix == ".c" else "c++11"
    compiles(path, f"-std={standard}", "-I", str(HERE))
    if shutil.which("clang++"):
        compiles(path, f"-std={standard}", "-I", str(HERE), compiler="clang")


def test_the_drivers_interface_is_the_drivers_own():
    for name in ("peerdma_uapi.h", "peerdma_picoevb.h"):
        assert (INCLUDE / "peerdma" / name).read_bytes() == (ROOT / "driver" / name).read_bytes()


def test_a_reader_gets_through_it():
    assert len((INCLUDE / "peerdma" / "peerdma.h").read_text().splitlines()) <= 900


def test_without_a_board_it_says_what_to_do(tmp_path: Path):
    program = tmp_path / "copy"
    for source in ("copy.c", "copy.cpp"):
        compiler = "gcc" if source.endswith(".c") else "g++"
        command = [compiler, *STRICT, "-I", INCLUDE, EXAMPLES / source, "-o", program]
        subprocess.run(command, check=True)
        for node, words in (("/dev/no board", "is the driver loaded"), ("/dev/null", "release")):
            done = subprocess.run([program, node], capture_output=True, text=True)
            assert done.returncode == 1
            assert words in done.stderr
            assert done.stdout == ""
