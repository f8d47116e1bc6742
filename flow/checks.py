# SPDX-License-Identifier: BSD-2-Clause
"""Checks that a bitstream must pass before anybody loads it. Each returns the faults it found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hw.boards import Boot

from . import bitstream
from .database import Database
from .frames import Frames, assemble, bits_of, disassemble, sets_bits
from .netlist import DEDICATED, HardBlock
from .place import Result
from .record import Record, compare
from .trace import HIGH, LOW, Tracer

__all__ = [
    "POWER_ON_MS",
    "READY_MS",
    "bits",
    "boot",
    "enumeration",
    "inputs",
    "loading_ms",
    "other_reader",
    "reference",
    "timing",
]


def bits(database: Database, features: set[str], frames: Frames) -> tuple[set[str], list[str]]:
    """The features that the image's frames disassemble to, and how they differ from `features`.

    `frames` are those read back from the finished image.
    """
    found, unknown = disassemble(database, frames)
    wrong = (
        [f"{len(unknown)} bits belong to no known feature, such as {sorted(unknown)[0]}"]
        if unknown
        else []
    )
    with_bits = {feature for feature in features if sets_bits(database, feature)}
    wrong += [f"{feature} is not in the image" for feature in sorted(with_bits - found)]
    ours = bits_of(assemble(database, features))
    theirs = bits_of(frames)
    if ours != theirs:
        wrong.append(f"{len(ours ^ theirs)} bits differ from what was placed and routed")
    return found, wrong


def other_reader(lines: Iterable[str], frames: Frames) -> list[str]:
    """Compares the bits with those that Project X-Ray's `bitread` printed as `lines`."""
    theirs = {line.strip() for line in lines if line.startswith("bit_")}
    ours = {f"bit_{address:08x}_{word:03}_{bit:02}" for address, word, bit in bits_of(frames)}
    return [f"{len(ours ^ theirs)} bits are read differently"] if ours != theirs else []


def inputs(
    database: Database, features: set[str], blocks: Iterable[HardBlock], sites: Mapping[str, str]
) -> tuple[int, list[str]]:
    """Traces every input of every hard block: (how many, those not driven as in the netlist).

    A constant must be that constant. Inputs on one net must have one source, and inputs on
    different nets different ones.
    """
    tracer = Tracer(database, features)
    wrong, count = [], 0
    sources: dict[int | str, str] = {}
    nets: dict[str, int | str] = {}
    for block in blocks:
        traced = tracer.inputs(sites[block.type])
        for name, wanted in block.inputs.items():
            port = name.rstrip("0123456789")
            if name in DEDICATED[block.type] or port in DEDICATED[block.type]:
                continue
            count += 1
            found = traced[name]
            label = f"{block.type} {name}"
            if name in block.inverted:
                wanted = HIGH
            if wanted in (LOW, HIGH) or found in (LOW, HIGH):
                if wanted != found:
                    wrong.append(f"{label} is {found}, in the netlist {_net(wanted)}")
                continue
            if sources.setdefault(wanted, found) != found:
                wrong.append(
                    f"{label} is driven by {found}, others of its net by {sources[wanted]}"
                )
            if nets.setdefault(found, wanted) != wanted:
                wrong.append(f"{label} is driven by {found}, and so are inputs of another net")
    return count, wrong


def _net(wanted: int | str) -> str:
    return wanted if isinstance(wanted, str) else "driven by logic"


def reference(ours: Record, theirs: Record, allowed: Mapping[str, str]) -> list[str]:
    """Compares a record with that of a configuration that is known to work."""
    different, unused = compare(ours, theirs, allowed)
    wrong = [str(difference) for difference in different]
    return wrong + [f"{pattern} is allowed to differ, but nothing does" for pattern in unused]


def boot(image: bitstream.Image, wanted: Boot, idcode: int) -> list[str]:
    """Checks the image's configuration registers, and that it has its checksums."""
    register = bitstream.Register
    wrong = []
    for name, number, value in (
        ("BSPI", register.BSPI, bitstream.bspi(wanted)),
        ("COR0", register.COR0, bitstream.cor0(wanted)),
        ("IDCODE", register.IDCODE, idcode),
    ):
        if image.registers.get(number) != value:
            wrong.append(f"{name} is {image.registers.get(number, 0):#x}, should be {value:#x}")
    if image.checked < 2:
        wrong.append(f"{image.checked} checksums in the image, should be 2")
    return wrong


#: Longest time from stable power to the start of configuration (DS181, TPOR, 50 ms ramp), and time
#: from stable power until a card must be ready to train its link: PERST# may rise after 100 ms
#: (TPVPERL) and the link has 20 ms from then (PCI Express 6.6.1).
POWER_ON_MS, READY_MS = 50.0, 120.0
#: Lowest configuration clock, as a part of its nominal rate (DS181, FMCCKTOL: +-50 %).
_SLOWEST = 0.5


def loading_ms(size: int, how: Boot, slowest: bool = False) -> float:
    """Time to load `size` bytes from flash, with the nominal or the slowest clock."""
    return size * 8 / how.lanes / (how.rate * 1e3 * (_SLOWEST if slowest else 1))


def enumeration(size: int, how: Boot) -> list[str]:
    """Checks that the FPGA is loaded before the host enumerates."""
    needed = POWER_ON_MS + loading_ms(size, how, slowest=True)
    if needed <= READY_MS:
        return []
    return [
        f"{size} bytes are loaded {needed:.0f} ms after power is good, the limit is {READY_MS:g} ms"
    ]


def timing(results: Iterable[Result], wanted: Mapping[str, float]) -> list[str]:
    """Compares the clocks of every run with their required MHz.

    Parameters
    ----------
    wanted : mapping of str to float
        Required MHz by net. A clock that is missing in a report is a fault too.
    """
    wrong = []
    for result in results:
        for clock, frequency in wanted.items():
            reached = result.frequencies.get(clock)
            if reached is None:
                wrong.append(
                    f"seed {result.seed}: no clock {clock}; there are {sorted(result.frequencies)}"
                )
            elif reached < frequency:
                wrong.append(
                    f"seed {result.seed}: {clock} reaches {reached:.1f} MHz of {frequency:g}"
                )
    return wrong
