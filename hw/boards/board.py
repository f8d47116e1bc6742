# SPDX-License-Identifier: BSD-2-Clause
"""What a board is, to the tools that build for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from amaranth.build import DiffPairs, Pins, Subsignal
from amaranth.vendor import XilinxPlatform

from flow.bitstream import Boot
from flow.corrections import Pad
from flow.references import picoevb as picoevb_differences

from .picoevb import PicoEVBPlatform

__all__ = ["BOARDS", "Board"]


@dataclass(frozen=True)
class Board:
    """One board, as data.

    Attributes
    ----------
    platform : type of XilinxPlatform
        Pins and part. Resources that a design asks for: `pcie` (refclk, rx, tx, perst, clkreq),
        `led` and `gpio`.
    fabric : str
        The die, by Project X-Ray's name: "xc7a50t".
    sites : dict of str to str
        Site by primitive, for what must be where the board's wires are.
    boot : Boot
    reference : pathlib.Path
        Record (`flow.record`) of a configuration that is known to work on the board.
    differences, clock_differences : dict of str to str
        Where ours may differ from it -> why; the latter unless the user clock is the reference's.
    reference_khz : int
        User clock of the reference.
    """

    platform: type[XilinxPlatform]
    fabric: str
    sites: dict[str, str]
    boot: Boot
    reference: Path
    differences: dict[str, str]
    clock_differences: dict[str, str]
    reference_khz: int

    def allowed(self, clock_khz: int) -> dict[str, str]:
        """Where an image with that user clock may differ from the reference -> why."""
        more = {} if clock_khz == self.reference_khz else self.clock_differences
        return self.differences | more

    @property
    def part(self) -> str:
        """With package and speed grade, "xc7a50tcsg325-2"."""
        return f"{self.platform.device}{self.platform.package}-{self.platform.speed}"

    @property
    def pads(self) -> list[Pad]:
        """Its I/O, without the transceiver's."""
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


BOARDS = {
    "picoevb": Board(
        platform=PicoEVBPlatform,
        fabric="xc7a50t",
        sites={
            "GTPE2_CHANNEL": "GTPE2_CHANNEL_X0Y3",
            "GTPE2_COMMON": "GTPE2_COMMON_X0Y0",
            # Its pads are the pins of the reference clock.
            "IBUFDS_GTE2": "IBUFDS_GTE2_X0Y1",
            "PCIE_2_1": "PCIE_X0Y0",
        },
        # 66 MHz and four lanes: from power-on to a loaded FPGA in time for enumeration.
        boot=Boot(rate=66, lanes=4),
        reference=Path(__file__).parents[2] / "flow" / "references" / "picoevb.txt",
        differences=picoevb_differences.DIFFERENCES,
        clock_differences=picoevb_differences.CLOCK_DIFFERENCES,
        reference_khz=125_000,
    )
}
