# SPDX-License-Identifier: BSD-2-Clause
"""Identifies the engine behind the DMA BAR: its channels and its extension block."""

from __future__ import annotations

from ..board.backend import Extension
from ..board.link import Link
from ..errors import BoardNotFound, VersionMismatch
from ..regs import (
    BAR_DMA,
    C2H_CHANNEL_BASE,
    CHANNEL,
    EXTENSION,
    EXTENSION_MAGIC,
    EXTENSION_VERSION,
    Capability,
    identifier,
    user_block_text,
    waits_for_text,
)
from .registers import Bank, Registers

__all__ = ["count_channels", "read_extension"]

_MAX_CHANNELS = 4
#: Above this, the value is implausible: no simulation is so much slower than real time.
_MOST_TIME_SCALE = 1_000_000


def count_channels(registers: Registers) -> tuple[int, int]:
    """Numbers of memory-mapped H2C and C2H channels.

    Raises
    ------
    BoardNotFound
        If there is not one of each.
    """
    h2c = _count(registers, CHANNEL.base)
    c2h = _count(registers, C2H_CHANNEL_BASE)
    if not (h2c and c2h):
        raise BoardNotFound(
            f"no XDMA-compatible engine: found {h2c} H2C and {c2h} C2H memory-mapped channels "
            f"behind BAR {BAR_DMA[0]}, but one of each is needed (the first register reads "
            f"{Bank(registers, CHANNEL).read('identifier'):#010x}; 0xffffffff: no device answers). "
            "Check that this is a peerdma board and that its design is loaded"
        )
    return h2c, c2h


def _count(registers: Registers, base: int) -> int:
    for channel in range(_MAX_CHANNELS):
        found = Bank(registers, CHANNEL, base + channel * CHANNEL.stride).read("identifier")
        # The lowest byte is the version of the vendor's core; drivers ignore it.
        if found & ~0xFF != identifier(base >> 12, channel) & ~0xFF:
            return channel
    return _MAX_CHANNELS


def read_extension(registers: Registers) -> Extension | None:
    """Reads the extension block; None on a plain XDMA core.

    Raises
    ------
    VersionMismatch
        If the block has another major version than this library knows.
    BoardNotFound
        If its values are implausible.
    """
    bank = Bank(registers, EXTENSION)
    if bank.read("magic") != EXTENSION_MAGIC:
        return None
    version = bank.fields("version")
    found = (version["major"], version["minor"])
    if found[0] != EXTENSION_VERSION[0]:
        raise VersionMismatch(
            f"the board's register map is version {found[0]}.{found[1]}, this library knows "
            f"{EXTENSION_VERSION[0]}.x (up to {EXTENSION_VERSION[1]}); update the older of "
            "the two"
        )
    bank.write("error_clear", 1)
    time_scale = bank.read("time_scale")
    if time_scale > _MOST_TIME_SCALE:
        raise BoardNotFound(
            f"the board's time scale register reads {time_scale:#x}, more than the largest "
            f"plausible value {_MOST_TIME_SCALE}, so its registers cannot be trusted. Check the "
            "gateware and the link"
        )
    ratio, waits_for = bank.fields("user_ratio"), bank.fields("waits_for")
    return Extension(
        version=found,
        capabilities=Capability(bank.read("capabilities")),
        card_ram_size=bank.read("card_ram_size"),
        link=_read_link(bank),
        clock_khz=bank.read("clock_khz"),
        time_scale=max(1, time_scale),
        waits_for=(waits_for_text(waits_for["h2c0"]), waits_for_text(waits_for["c2h0"])),
        user_block=user_block_text(bank.read("user_block")),
        user_ratio=(ratio["bytes_in"], ratio["bytes_out"]),
    )


def _read_link(bank: Bank) -> Link:
    link = bank.fields("link")
    return Link(
        speed=link["speed"],
        width=link["width"],
        max_payload=128 << link["max_payload"],
        max_read_request=128 << link["max_read_request"],
        rcb=128 if link["rcb"] else 64,
    )
