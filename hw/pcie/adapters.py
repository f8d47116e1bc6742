# SPDX-License-Identifier: BSD-2-Clause
"""The PCIe blocks that the core can be built for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from amaranth.lib import wiring

from ..seam import FIVE_BIT_TAGS, WIDTHS, Block
from .ports import Port
from .series7.adapter import Series7Adapter
from .series7.block import SERIES7
from .series7.ports import TRN_PORTS
from .ultrascale.adapter import UltraScaleAdapter
from .ultrascale.family import ULTRASCALE, ULTRASCALE_PLUS, ULTRASCALE_PLUS_PCIE4C, Family
from .ultrascale.ports import ports_of_block

__all__ = ["ADAPTERS", "AdapterKind"]


@dataclass(frozen=True)
class AdapterKind:
    """A PCIe block, and what joins it to the core.

    Attributes
    ----------
    name : str
        Its key in `ADAPTERS`.
    title : str
        What it is, for people.
    block : Block
    ports : tuple of Port
    interface : str
        Name of what has these ports, at the adapter and at the endpoint.
    make : callable
        The adapter for a clock of so many kHz, and with `overcommit` or not; its other interface is
        `seam`.
    fpga : str
        Yosys' name of the FPGAs that have it.
    core : mapping
        Parameters of `hw.core.CoreConfig` whose default is another one with this block.
    """

    name: str
    title: str
    block: Block
    ports: tuple[Port, ...]
    interface: str
    make: Callable[[int, bool], wiring.Component]
    fpga: str
    core: Mapping[str, int] = field(default_factory=dict)


def _ultrascale(family: Family, title: str, fpga: str, width: int) -> AdapterKind:
    return AdapterKind(
        name=f"{family.name}-{width}",
        title=f"the {title} block, {width} bits",
        block=family.block(width),
        ports=ports_of_block(family, width),
        interface="pcie",
        make=lambda *_: UltraScaleAdapter(family, width),
        fpga=fpga,
        # At Gen3 x8, 16 tags do not suffice for reads of 256 bytes, nor for small descriptors.
        core={"tags": FIVE_BIT_TAGS} if width == max(WIDTHS) else {},
    )


_KINDS = (
    AdapterKind(
        "series7",
        "the 7-series PCIe block",
        SERIES7,
        TRN_PORTS,
        "trn",
        lambda clock_khz, overcommit: Series7Adapter(clock_khz, overcommit=overcommit),
        "xc7",
    ),
    *(
        _ultrascale(family, title, fpga, width)
        for family, title, fpga in (
            (ULTRASCALE, "UltraScale PCIe", "xcu"),
            (ULTRASCALE_PLUS, "UltraScale+ PCIe", "xcup"),
            (ULTRASCALE_PLUS_PCIE4C, "UltraScale+ PCIE4C", "xcup"),
        )
        for width in WIDTHS
    ),
)
ADAPTERS = {kind.name: kind for kind in _KINDS}
