# SPDX-License-Identifier: BSD-2-Clause
"""The driver's interface: the header compiles for programs, and the Python mirror is the same."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from pathlib import Path

import pytest

from peerdma import uapi

DRIVER = Path(__file__).resolve().parents[2] / "driver"
HEADERS = ("peerdma_picoevb.h", "peerdma_uapi.h")
TEXT = "".join((DRIVER / name).read_text() for name in HEADERS)

#: Classes of the mirror by the name of their structure.
STRUCTURES = {
    re.sub(r"(?<=.)(?=[A-Z])", "_", name).lower(): value
    for name, value in vars(uapi).items()
    if isinstance(value, type) and issubclass(value, ctypes.Structure) and name[0] != "_"
}
#: Enumerations of the mirror by the prefix of their members in the header.
ENUMERATIONS = {
    "PEERDMA_IOC_": uapi.Ioctl,
    "PEERDMA_": uapi.Interrupts,
    "PEERDMA_BOARD_": uapi.BoardState,
    "PEERDMA_FEATURE_": uapi.Feature,
    "PEERDMA_ACCESS_": uapi.Access,
    "PEERDMA_PIN_": uapi.PinFlag,
    "PEERDMA_PLACEMENT_": uapi.Placement,
    "PEERDMA_OP_": uapi.Op,
    "PEERDMA_REASON_": uapi.Reason,
    "PEERDMA_SURFACE_": [*uapi.SurfaceState, *uapi.SurfaceFeature],
    "PEERDMA_MAP_": uapi.MapFlag,
    "PEERDMA_CACHE_": uapi.Cache,
    "PEERDMA_EXPORT_": uapi.ExportFlag,
    "PEERDMA_REGISTER_": uapi.RegisterFlag,
    "PEERDMA_RING_": uapi.RingFlag,
    "PEERDMA_SUBMIT_": uapi.SubmitFlag,
    "PEERDMA_QUEUE_": uapi.QueueWord,
    "PEERDMA_PREPARE_": uapi.PrepareFlag,
}
#: On 32-bit x86 a 64-bit member is aligned to 4 bytes, so this one has no padding at its end.
PADDED = "pin_cuda"


def constants() -> dict[str, int]:
    """Every constant of the mirror under its name in the header."""
    found = {
        f"{prefix}{member.name}": int(member)
        for prefix, members in ENUMERATIONS.items()
        for member in members
    }
    found |= {f"PEERDMA_{n}": int(v) for n, v in uapi.LegacyFlag.__members__.items()}
    major, minor = uapi.UAPI_VERSION
    return found | {"PEERDMA_UAPI_VERSION": major << 16 | minor}


def assertions(bits: int) -> list[str]:
    """C expressions that hold if the header is what the mirror says, for programs of `bits`."""
    held = []
    for name, structure in STRUCTURES.items():
        tag = f"struct peerdma_{name}"
        size = ctypes.sizeof(structure)
        if name == PADDED and bits == 32:
            size -= 4
        held.append(f"sizeof({tag}) == {size}")
        for member, _ in structure._fields_:
            field = getattr(structure, member)
            held.append(f"offsetof({tag}, {member}) == {field.offset}")
            held.append(f"sizeof((({tag} *)0)->{member}) == {field.size}")
    for name, value in constants().items():
        if name == "PEERDMA_IOC_PIN_CUDA" and bits == 32:
            value -= 4 << 16  # the code holds the size
        held.append(f"(unsigned int)({name}) == {value}u")
    return held


@pytest.mark.parametrize("language", ["c", "c++"])
@pytest.mark.parametrize("bits", [64, 32])
def test_header_is_what_the_mirror_says(tmp_path: Path, bits: int, language: str):
    keyword = "static_assert" if language == "c++" else "_Static_assert"
    lines = [f'{keyword}({condition}, "{condition}");' for condition in assertions(bits)]
    source = tmp_path / f"uapi.{language}"
    source.write_text('#include <stddef.h>\n#include "peerdma_uapi.h"\n' + "\n".join(lines) + "\n")
    command = [os.environ.get("CC", "gcc"), f"-m{bits}", "-x", language, "-fsyntax-only"]
    # A 32-bit compiler does not look for the kernel's headers where a 64-bit one does.
    command += ["-idirafter", "/usr/include/x86_64-linux-gnu", "-Wall", "-Wextra", "-Werror"]
    done = subprocess.run(
        [*command, "-Wno-padded", f"-I{DRIVER}", str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_mirror_has_every_structure():
    members = {
        name: re.findall(r"(\w+)(?:\[\d+\])?;", body)
        for name, body in re.findall(r"^struct peerdma_(\w+) \{(.*?)^\};", TEXT, re.M | re.S)
    }
    mirrored = {name: [f[0] for f in s._fields_] for name, s in STRUCTURES.items()}
    assert members == mirrored


def test_mirror_has_every_constant():
    names = set(re.findall(r"^#define (PEERDMA_(?!\w+_H\b)\w+)", TEXT, re.M))
    names |= set(re.findall(r"^\t(PEERDMA_\w+) = \d+,$", TEXT, re.M))
    assert names - {"PEERDMA_IOC_MAGIC"} == set(constants())


def test_layouts_have_no_holes_that_differ():
    for name, structure in STRUCTURES.items():
        if name == PADDED:
            continue
        end = 0
        for member, _ in structure._fields_:
            field = getattr(structure, member)
            assert field.offset == end, f"{name}.{member} is behind a hole"
            end = field.offset + field.size
        assert ctypes.sizeof(structure) == end, f"{name} is padded at its end"


def test_codes_are_those_of_nvidia():
    """As published in the header of its driver for the PicoEVB board."""
    assert [hex(code) for code in list(uapi.Ioctl)[:7]] == [
        "0x40045000",
        "0xc0185001",
        "0x40045002",
        "0xc0285003",
        "0x80085004",
        "0xc0285005",
        "0xc0285006",
    ]


def test_sized_structures_know_their_size():
    assert uapi.Info().size == ctypes.sizeof(uapi.Info)
    assert uapi.Submit(op=uapi.Op.COPY, length=5).length == 5


def test_members_are_documented():
    for name, body in re.findall(r"^struct (peerdma_\w+) \{(.*?)^\};", TEXT, re.M | re.S):
        doc = TEXT[: TEXT.index(f"struct {name} {{")].rpartition("/**")[2]
        for member in re.findall(r"(\w+)(?:\[\d+\])?;", body):
            assert f"@{member}:" in doc, f"{name}.{member} is not documented"
