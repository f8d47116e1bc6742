# SPDX-License-Identifier: BSD-2-Clause
"""Translates the hard blocks' parameters to features of the configuration.

nextpnr-himbaechel places and routes these blocks, but does not configure them. Almost every
parameter has a feature of the same name with its value; the exceptions are listed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .database import Database, widths
from .netlist import HardBlock
from .primitives import Value

__all__ = ["ConfigurationError", "configure", "features"]

#: Prefix of a block's features in its tile.
_PREFIXES = {"GTPE2_CHANNEL": "GTPE2_CHANNEL", "GTPE2_COMMON": "GTPE2_COMMON", "PCIE_2_1": "PCIE"}
#: Features of a block in use that do not depend on parameters. The common block's reconfiguration
#: port has a clock, so it is enabled, as in the reference.
_PRESENT = {
    "GTPE2_CHANNEL": {"IN_USE"},
    "GTPE2_COMMON": {"IN_USE", "ENABLE_DRP"},
    "PCIE_2_1": set(),
}


class ConfigurationError(Exception):
    """Some parameters cannot be translated; the message names each."""


_FEEDBACK = {1: 16, 2: 0, 3: 1, 4: 2, 5: 3}
_DIVIDER = {1: 16, 2: 0}
_OUTPUT = {1: 0, 2: 1, 4: 2, 8: 3}
_WIDTH = {16: 2, 20: 3, 32: 4, 40: 5}

#: Stored value by parameter value, for parameters where they differ (UG482's DRP map).
_STORED: dict[str, Mapping[int, int]] = {
    "RXOUT_DIV": _OUTPUT,
    "TXOUT_DIV": _OUTPUT,
    "RX_DATA_WIDTH": _WIDTH,
    "TX_DATA_WIDTH": _WIDTH,
    "PLL0_FBDIV": _FEEDBACK,
    "PLL1_FBDIV": _FEEDBACK,
    "PLL0_FBDIV_45": {4: 0, 5: 1},
    "PLL1_FBDIV_45": {4: 0, 5: 1},
    "PLL0_REFCLK_DIV": _DIVIDER,
    "PLL1_REFCLK_DIV": _DIVIDER,
}
#: Parameters that are stored minus one.
_COUNTS = {
    "RX_CLK25_DIV",
    "TX_CLK25_DIV",
    "CLK_COR_SEQ_LEN",
    "CHAN_BOND_SEQ_LEN",
    "RX_SIG_VALID_DLY",
}
#: Parameters whose values are words; each word may have a feature of its own.
_WORDS = {
    "CBCC_DATA_SOURCE_SEL": {"DECODED", "ENCODED"},
    "RXBUF_ADDR_MODE": {"FAST", "FULL"},
    "RXOOB_CLK_CFG": {"FABRIC", "PMA"},
    "RXSLIDE_MODE": {"AUTO", "PCS", "PMA", "OFF"},
    "RX_XCLK_SEL": {"RXUSR", "RXREC"},
    "SATA_PLL_CFG": {"VCO_1500MHZ", "VCO_750MHZ", "VCO_3000MHZ"},
    "TXPI_PPMCLK_SEL": {"TXUSRCLK2", "TXUSRCLK"},
    "TX_DRIVE_MODE": {"PIPE", "DIRECT"},
    "TX_XCLK_SEL": {"TXUSR", "TXOUT"},
}
_BOOLEAN = {"TRUE": 1, "FALSE": 0}


def configure(database: Database, block: HardBlock, site: str) -> set[str]:
    """All features of a hard block at a site.

    Raises
    ------
    ConfigurationError
        As `features`.
    """
    tile = database.tile_of_site(site)
    known = database.features(database.grid[tile]["type"], "CLB_IO_CLK")
    if block.type == "IBUFDS_GTE2":
        # The quad has two of these buffers; a feature of the common block selects one.
        number = int(site[-1]) % 2
        parameters = dict(block.parameters)
        swing = {"IBUFDS_GTE2.CLKSWING_CFG": parameters.pop("CLKSWING_CFG")}
        common = features(swing, _below(known, "GTPE2_COMMON"))
        own = features(parameters, _below(known, f"IBUFDS_GTE2_Y{number}"))
        found = {f"GTPE2_COMMON.{name}" for name in {*common, f"GTREFCLK{number}_USED"}}
        found |= {f"IBUFDS_GTE2_Y{number}.{name}" for name in own}
    else:
        prefix = _PREFIXES[block.type]
        parameters = block.parameters | {f"IS_{name}_INVERTED": 1 for name in block.inverted}
        found = {
            f"{prefix}.{name}"
            for name in features(parameters, _below(known, prefix)) | _PRESENT[block.type]
        }
    return {f"{tile}.{name}" for name in found}


def _below(known: Iterable[str], prefix: str) -> set[str]:
    return {name[len(prefix) + 1 :] for name in known if name.startswith(f"{prefix}.")}


def features(parameters: Mapping[str, Value], known: set[str]) -> set[str]:
    """The features of one block, without the names of its tile and site.

    Parameters
    ----------
    parameters : mapping of str to Value
        All parameters of the primitive.
    known : set of str
        The block's features in the database.

    Raises
    ------
    ConfigurationError
        If a parameter has no feature or its value does not fit.
    """
    bits = widths(known)
    found, wrong = set(), []
    for name, value in sorted(parameters.items()):
        if name.startswith("SIM_"):  # for Xilinx' simulation models
            continue
        if name in _WORDS:
            if value not in _WORDS[name]:
                wrong.append(f"{name} = {value}: not one of {sorted(_WORDS[name])}")
            elif f"{name}.{value}" in known:
                found.add(f"{name}.{value}")
            continue
        if name.startswith("IS_") and name.endswith("_INVERTED"):
            feature = f"INV_{name[3:-9]}"
            if value and feature not in known:
                wrong.append(f"{name}: the database has no {feature}")
            elif value:
                found.add(feature)
            continue
        if name not in bits:
            wrong.append(f"{name} = {value}: not in the database")
            continue
        try:
            stored = _stored(name, value)
        except KeyError:
            wrong.append(f"{name} = {value}: not a value it can have")
            continue
        if bits[name] == 0:
            fits = stored in (0, 1)
            found |= {name} if stored == 1 else set()
        else:
            present = {bit for bit in range(stored.bit_length()) if stored >> bit & 1}
            fits = all(f"{name}[{bit}]" in known for bit in present)
            found |= {f"{name}[{bit}]" for bit in present}
        if not fits:
            wrong.append(f"{name} = {value}: wider than its feature")
    if wrong:
        raise ConfigurationError("\n".join(wrong))
    return found


def _stored(name: str, value: Value) -> int:
    if name in _STORED:
        return _STORED[name][value]  # type: ignore[index]
    if isinstance(value, str):
        return _BOOLEAN[value.upper()]
    return int(value) - (name in _COUNTS)
