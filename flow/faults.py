# SPDX-License-Identifier: BSD-2-Clause
"""Plants faults in a finished design, to show that the checks find them.

A check that has never failed may check nothing. Each fault is of a kind that really occurred, or
nearly did; it is put into a copy of the design and must make a check fail.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from hw.boards import Board, Boot

from . import bitstream, checks
from .corrections import correct
from .database import Database
from .frames import assemble, bits_of
from .hard_blocks import configure
from .netlist import HardBlock
from .place import Result
from .primitives import Value
from .record import Record, record
from .references import REFERENCES
from .trace import drivers

__all__ = ["Design", "plant"]


@dataclass(frozen=True)
class Design:
    """A finished design, in which faults are planted.

    Attributes
    ----------
    features : set of str
        Features that the image disassembles to.
    blocks : list of HardBlock
    manager : dict of str to Value
        Parameters of the clock manager.
    data : bytes
        The image.
    results : list of Result
    wanted : dict of str to float
        MHz by clock.
    allowed : dict of str to str
        For `flow.record.compare`.
    """

    board: Board
    database: Database
    features: set[str]
    blocks: list[HardBlock]
    manager: dict[str, Value]
    data: bytes
    results: list[Result]
    wanted: dict[str, float]
    allowed: dict[str, str]


def _compared(design: Design, features: set[str], boot: Boot | None = None) -> list[str]:
    board = design.board
    boot = boot or board.boot
    registers = {
        bitstream.Register.BSPI: bitstream.bspi(boot),
        bitstream.Register.COR0: bitstream.cor0(boot),
    }
    ours = record(design.database, features, board.sites.values(), board.pins, registers)
    return checks.reference(ours, Record.load(REFERENCES[board.name].record), design.allowed)


def _traced(design: Design, features: set[str]) -> list[str]:
    return checks.inputs(design.database, features, design.blocks, design.board.sites)[1]


def _open(design: Design, primitive: str, pin: str) -> set[str]:
    """The design with one input of a hard block cut off from what drives it."""
    database = design.database
    tile, entry = database.site(design.board.sites[primitive])
    where, wire = tile, entry["site_pins"][pin]["wire"]
    driver = drivers(design.features)
    while True:
        node = database.node(where, wire)
        for place in node:
            if place in driver:
                return design.features - {f"{place[0]}.{place[1]}.{driver[place]}"}
        steps = ((t, database.always(database.grid[t]["type"]).get(w)) for t, w in node)
        where, wire = next((t, w) for t, w in steps if w)


def _other_parameter(design: Design, primitive: str, name: str, value: Value) -> set[str]:
    """The design with one parameter of a hard block changed."""
    features = set(design.features)
    for block in design.blocks:
        if block.type == primitive:
            site = design.board.sites[primitive]
            features -= configure(design.database, block, site)
            changed = copy.deepcopy(block)
            changed.parameters[name] = value
            features |= configure(design.database, changed, site)
    return features


def _other_pads(design: Design) -> set[str]:
    """The design with one pin at another pad."""
    pads = design.board.pads
    taken = {pad.pin for pad in pads}
    free = next(
        pin
        for pin, (tile, site) in design.database.pins.items()
        if pin not in taken and tile.startswith("LIOB33_X") and site.startswith("IOB_")
    )
    moved = [dataclasses.replace(p, pin=free) if p.pin == pads[-1].pin else p for p in pads]
    return correct(design.database, design.features, design.manager, moved)


def _other_clock(design: Design) -> set[str]:
    """The design with the transceiver's fast clock at half its rate."""
    manager = design.manager | {"CLKOUT1_DIVIDE": 8}
    return correct(design.database, design.features, manager, design.board.pads)


def _clocks_in_reset(design: Design) -> set[str]:
    """The design with the clock manager's reset inverted: it would never run."""
    end = ".MMCME2_ADV.IN_USE"
    (tile,) = (f.removesuffix(end) for f in design.features if f.endswith(end))
    return design.features | {f"{tile}.MMCME2_ADV.ZINV_RST"}


def _stray_bit(design: Design) -> list[str]:
    frames = {a: list(words) for a, words in assemble(design.database, design.features).items()}
    # A bit that no feature uses, in the last frame that is not empty.
    used = bits_of(frames)
    address = max(frames)
    word, bit = next(
        (w, b) for w in range(101) for b in range(31, -1, -1) if (address, w, b) not in used
    )
    frames[address][word] |= 1 << bit
    return checks.bits(design.database, design.features, frames)[1]


def _damaged(design: Design) -> list[str]:
    data = bytearray(design.data)
    data[len(data) // 2] ^= 1
    try:
        bitstream.read(bytes(data), design.database.columns)
    except (ValueError, KeyError) as error:
        return [str(error)]
    return []


#: Fault -> function that plants it and returns what a check found.
_FAULTS: dict[str, Callable[[Design], list[str]]] = {
    "tie-off: reference clock buffer's CEB left open": lambda d: _traced(
        d, _open(d, "IBUFDS_GTE2", "CEB")
    ),
    "tie-off: transceiver's DRPWE left open": lambda d: _traced(
        d, _open(d, "GTPE2_CHANNEL", "DRPWE")
    ),
    "tie-off: PLL0REFCLKSEL names another clock": lambda d: _compared(
        d, _open(d, "GTPE2_COMMON", "PLL0REFCLKSEL1")
    ),
    "wire: PIPERX0VALID of the PCIe block cut": lambda d: _traced(
        d, _open(d, "PCIE_2_1", "PIPERX0VALID")
    ),
    "parameter: BAR 1 of another size": lambda d: _compared(
        d, _other_parameter(d, "PCIE_2_1", "BAR1", 0xFFFF_8000)
    ),
    "parameter: shortened training for simulation": lambda d: _compared(
        d, _other_parameter(d, "PCIE_2_1", "PL_FAST_TRAIN", "TRUE")
    ),
    "parameter: transmitter's buffer on": lambda d: _compared(
        d, _other_parameter(d, "GTPE2_CHANNEL", "TXBUF_EN", "TRUE")
    ),
    "parameter: PLL's loop filter": lambda d: _compared(
        d, _other_parameter(d, "GTPE2_COMMON", "PLL0_CFG", 0x1F03DC)
    ),
    "parameter: PIPE clock of 125 MHz at Gen2": lambda d: _compared(d, _other_clock(d)),
    "inverter: clock manager's reset active low": lambda d: _compared(d, _clocks_in_reset(d)),
    "pin: a GPIO at another pad": lambda d: _compared(d, _other_pads(d)),
    "constraint: slow configuration clock": lambda d: _compared(
        d, d.features, dataclasses.replace(d.board.boot, rate=3)
    ),
    "constraint: a user clock that is not met": lambda d: checks.timing(
        d.results, dict.fromkeys(d.wanted, 1000.0)
    ),
    "image: a bit of no feature": _stray_bit,
    "image: a damaged byte": _damaged,
}


def plant(design: Design) -> tuple[int, list[str]]:
    """Plants each fault; how many, and those that no check found."""
    missed = [name for name, check in _FAULTS.items() if not check(design)]
    return len(_FAULTS), missed
