# SPDX-License-Identifier: BSD-2-Clause
"""The description of a board for the tools that build for it: data only."""

from collections.abc import Iterator
from dataclasses import dataclass

from amaranth.build import DiffPairs, Pins, Subsignal
from amaranth.vendor import XilinxPlatform

from .picoevb import PicoEVBPlatform

__all__ = ["BOARDS", "Board", "Boot", "Pad"]


@dataclass(frozen=True)
class Boot:
    """How the FPGA loads itself from flash.

    Attributes
    ----------
    rate : int
        Configuration clock in MHz.
    lanes : int
        Data lines of the flash, 1, 2 or 4.
    """

    rate: int = 66
    lanes: int = 4


@dataclass(frozen=True)
class Pad:
    """One pin of the board, 3.3 V CMOS.

    Attributes
    ----------
    pin : str
        Package pin.
    output : bool
    drive : int
        Drive strength of an output in mA, 8 or 12.
    pull : str
        "UP", "DOWN" or "".
    """

    pin: str
    output: bool
    drive: int = 12
    pull: str = ""


@dataclass(frozen=True)
class Board:
    """One board, as data.

    Attributes
    ----------
    name : str
        Its key in `BOARDS`.
    platform : type of XilinxPlatform
        Pins and part. Resources that the design needs: `pcie` (refclk, rx, tx, perst, clkreq),
        `led` and `gpio`.
    fabric : str
        The die, by Project X-Ray's name: "xc7a50t".
    sites : dict of str to str
        Site by primitive, for primitives whose place the board's wiring determines.
    boot : Boot
    """

    name: str
    platform: type[XilinxPlatform]
    fabric: str
    sites: dict[str, str]
    boot: Boot

    @property
    def part(self) -> str:
        """The part with package and speed grade, "xc7a50tcsg325-2"."""
        return f"{self.platform.device}{self.platform.package}-{self.platform.speed}"

    @property
    def pads(self) -> list[Pad]:
        """The board's I/O pins, without those of transceivers."""
        found = []
        for resource in self.platform.resources:
            for subsignal in _leaves(resource):
                for pins in subsignal.ios:
                    if not isinstance(pins, Pins):
                        continue
                    attrs = subsignal.attrs
                    pull = next((way for way in ("UP", "DOWN") if attrs.get(f"PULL{way}")), "")
                    drive, output = int(attrs.get("DRIVE", 12)), pins.dir == "o"
                    found += [Pad(name, output, drive, pull) for name in pins.names]
        return found

    @property
    def pins(self) -> list[str]:
        """Package pins of all resources."""
        found = []
        for resource in self.platform.resources:
            for subsignal in _leaves(resource):
                for pins in subsignal.ios:
                    both = (pins.p, pins.n) if isinstance(pins, DiffPairs) else (pins,)
                    found += [name for one in both if isinstance(one, Pins) for name in one.names]
        return found


def _leaves(resource: Subsignal) -> Iterator[Subsignal]:
    for io in resource.ios:
        if isinstance(io, Subsignal):
            yield from _leaves(io)
    if not any(isinstance(io, Subsignal) for io in resource.ios):
        yield resource


_BOARDS = (
    Board(
        name="picoevb",
        platform=PicoEVBPlatform,
        fabric="xc7a50t",
        sites={
            "GTPE2_CHANNEL": "GTPE2_CHANNEL_X0Y3",
            "GTPE2_COMMON": "GTPE2_COMMON_X0Y0",
            # The buffer whose pads are the reference clock's pins.
            "IBUFDS_GTE2": "IBUFDS_GTE2_X0Y1",
            "PCIE_2_1": "PCIE_X0Y0",
        },
        # 66 MHz and four lanes load the FPGA fast enough after power-on for enumeration.
        boot=Boot(rate=66, lanes=4),
    ),
)
BOARDS = {board.name: board for board in _BOARDS}
