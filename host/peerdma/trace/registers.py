# SPDX-License-Identifier: BSD-2-Clause
"""Names of registers by their place in a BAR."""

from __future__ import annotations

from .. import regs

__all__ = ["name_of"]

#: Blocks of BAR_DMA that each channel has: (block, base of H2C channel 0, base of C2H channel 0).
_OF_CHANNELS = (
    (regs.CHANNEL, regs.CHANNEL.base, regs.C2H_CHANNEL_BASE),
    (regs.SGDMA, regs.SGDMA.base, regs.C2H_SGDMA_BASE),
    (regs.CAPTURE, regs.CAPTURE.base, regs.C2H_CAPTURE_BASE),
)
_CHANNELS = 4
#: Where descriptors are pushed: (direction, base of channel 0).
_PUSHED = (("h2c", regs.H2C_PUSH_BASE), ("c2h", regs.C2H_PUSH_BASE))


def _names() -> dict[tuple[int, int], str]:
    names: dict[tuple[int, int], str] = {}
    for block, *bases in _OF_CHANNELS:
        for direction, base in zip(("h2c", "c2h"), bases, strict=True):
            for channel in range(_CHANNELS):
                for register in block.registers:
                    place = block.address(register.name, channel, base)
                    names[regs.BAR_DMA[0], place] = f"{direction}{channel}.{register.name}"
    for direction, base in _PUSHED:
        for channel in range(_CHANNELS):
            for dword in range(regs.PUSH_STRIDE // 4):
                place = base + regs.PUSH_STRIDE * channel + 4 * dword
                names[regs.BAR_DMA[0], place] = f"{direction}{channel}.pushed[{dword}]"
    repeated = [block for block, *_ in _OF_CHANNELS]
    single = [(regs.BAR_DMA, block) for block in regs.BLOCKS_DMA if block not in repeated]
    single += [(regs.BAR_USER, each) for each in (*regs.BLOCKS_USER, *regs.BLOCKS_OPTIONAL)]
    for (bar, _), block in single:
        for register in block.registers:
            names[bar, block.address(register.name)] = f"{block.name}.{register.name}"
    for entry in range(regs.MSIX_ENTRIES):
        for index, word in enumerate(("address_lo", "address_hi", "data", "control")):
            place = regs.MSIX_TABLE_OFFSET + 16 * entry + 4 * index
            names[regs.BAR_DMA[0], place] = f"msix_table[{entry}].{word}"
    return names


_NAMES = _names()


def name_of(bar: int, offset: int) -> str:
    """What is at byte `offset` of a BAR: ``"h2c0.control"``, or ``"BAR1 + 0x7000"``."""
    return _NAMES.get((bar, offset), f"BAR{bar} + {offset:#x}")
