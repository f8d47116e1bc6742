# SPDX-License-Identifier: BSD-2-Clause
"""Replaces features that nextpnr-himbaechel gets wrong or leaves out.

Found with version 0.11, by comparison with an image that works on the board: the clock manager has
other settings than Vivado's (filter, power, the inverters of constant inputs); pads have no pull
resistors, only one drive strength, and some are configured in the other half of their tile; a
clock multiplexer has other inverters than the reference's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from hw.boards import Pad

from .database import Database
from .frames import FrameError
from .primitives import Value

__all__ = ["clock_manager", "correct", "pads"]


_COMMON = "LVCMOS12_LVCMOS15_LVCMOS18_LVCMOS25_LVCMOS33"
_SLOW = f"{_COMMON}_LVTTL_SSTL135_SSTL15.SLEW.SLOW"
_DRIVE = {8: "LVCMOS33_LVTTL.DRIVE.I12_I8", 12: "LVCMOS33_LVTTL.DRIVE.I12_I16"}
#: A pull-down is the default, without a bit.
_PULL = {"UP": ("PULLTYPE.PULLUP",), "DOWN": (), "": ("PULLTYPE.NONE",)}
_INPUT = (f"{_COMMON}_LVDS_25_LVTTL_SSTL135_SSTL15_TMDS_33.IN_ONLY", "LVCMOS25_LVCMOS33_LVTTL.IN")


def pads(database: Database, used: Iterable[Pad]) -> set[str]:
    """Features of the board's pads."""
    found = set()
    for pad in used:
        tile, site = database.pins[pad.pin]
        # The odd site of a tile is the lower one, which the database calls Y1.
        where = f"{tile}.IOB_Y{int(site.rpartition('Y')[2]) % 2}"
        names = (_SLOW, _DRIVE[pad.drive]) if pad.output else _INPUT
        found |= {f"{where}.{name}" for name in (*names, *_PULL[pad.pull])}
    return found


#: Inputs of an MMCM that have an inverter.
_INVERTERS = ("PSEN", "PSINCDEC", "PWRDWN", "RST")


def clock_manager(parameters: Mapping[str, Value]) -> set[str]:
    """Features of an MMCM with a multiplier of 10, without its name.

    ZINV_RST and its like put an inverter in, other than their name says: images that work have them
    where the input is open, so 1, and must be 0, and nextpnr writes them in the same sense.

    Raises
    ------
    FrameError
        If the features for these parameters are not known.
    """
    multiply = float(parameters["CLKFBOUT_MULT_F"])
    divide = int(parameters.get("DIVCLK_DIVIDE", 1))
    if (multiply, divide) != (10, 1):
        raise FrameError(f"settings of an MMCM are known for x10 / 1, not x{multiply:g} / {divide}")
    found = {
        "IN_USE",
        "COMP.Z_ZHOLD",
        *(f"ZINV_{n}" for n in _INVERTERS if parameters.get(f"IS_{n}_INVERTED")),
    }
    # Loop filter and lock detector for that multiplier (Xilinx XAPP888's tables), and features that
    # Vivado always sets.
    found |= _number("TABLE", 0x3D4) | _number("LKTABLE", 0xE7_3E8F_A401)
    found |= _number("FILTREG1_RESERVED", 0x8) | _number("LOCKREG3_RESERVED", 0x1)
    found |= _number("POWER_REG_POWER_REG_POWER_REG", 0x100)
    found |= {"DIVCLK_DIVCLK_NO_COUNT[0]"}
    found |= _number("DIVCLK_DIVCLK_HIGH_TIME", 1) | _number("DIVCLK_DIVCLK_LOW_TIME", 1)
    found |= _counter("CLKFBOUT", 10, "CLKOUT2", True)
    for output in range(7):
        given = parameters.get("CLKOUT0_DIVIDE_F" if output == 0 else f"CLKOUT{output}_DIVIDE", 1)
        second = "CLKOUT2" if output < 5 else "CLKOUT2_FRACTIONAL"
        found |= _counter(f"CLKOUT{output}", float(given), second, float(given) != 1)
    return found


def _counter(name: str, divide: float, second: str, enabled: bool) -> set[str]:
    """A counter without phase shift; one that divides by 1 is bypassed."""
    if divide == 1:
        high, found = 1, {f"{name}_{second}_NO_COUNT[0]"}
    elif divide % 2 == 0 and divide <= 126:
        high, found = int(divide) // 2, set()
    else:
        raise FrameError(f"{name} divides by {divide:g}: only even divisions are known")
    found |= {f"{name}_CLKOUT1_OUTPUT_ENABLE[0]"} if enabled else set()
    return (
        found
        | _number(f"{name}_CLKOUT1_HIGH_TIME", high)
        | _number(f"{name}_CLKOUT1_LOW_TIME", high)
    )


def _number(name: str, value: int) -> set[str]:
    return {f"{name}[{bit}]" for bit in range(value.bit_length()) if value >> bit & 1}


#: A multiplexer with selects driven by logic; its other inputs are constant and open, so 1.
_MULTIPLEXER = ("IN_USE", "ZINV_CE0", "ZINV_CE1", "ZINV_S0", "ZINV_S1", "ZPRESELECT_I0")


def correct(
    database: Database,
    features: set[str],
    manager: Mapping[str, Value],
    used: Iterable[Pad],
) -> set[str]:
    """nextpnr's features with those of clock manager, multiplexers and pads replaced.

    Parameters
    ----------
    features : set of str
    manager : mapping of str to Value
        Parameters of the design's MMCM.
    used : iterable of Pad
    """
    managers = {f.partition(".")[0] for f in features if f.endswith(".MMCME2_ADV.IN_USE")}
    buffers = {
        match[1]: match[2]
        for match in (re.match(r"(CLK_BUFG_\w+)\.CLK_BUFG_BUFGCTRL(\d+)_I1\.", f) for f in features)
        if match
    }
    multiplexers = {f"{tile}.BUFGCTRL.BUFGCTRL_X0Y{number}" for tile, number in buffers.items()}
    dropped = re.compile(r"\w+IOB33\w*\.IOB_Y|\w+\.MMCME2_ADV\.")
    kept = {
        feature
        for feature in features
        if not dropped.match(feature) and feature.rpartition(".")[0] not in multiplexers
    }
    kept |= {f"{tile}.MMCME2_ADV.{name}" for tile in managers for name in clock_manager(manager)}
    kept |= {f"{buffer}.{name}" for buffer in multiplexers for name in _MULTIPLEXER}
    return kept | pads(database, used)
