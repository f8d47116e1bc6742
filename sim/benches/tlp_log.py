# SPDX-License-Identifier: BSD-2-Clause
"""One line of text per TLP, as the native model's ``--log-tlps`` writes them."""

from __future__ import annotations

from cocotbext.pcie.core.tlp import Tlp

__all__ = ["describe"]

#: Dwords of payload that a line shows.
_SHOWN = 4


def describe(tlp: Tlp) -> str:
    """A memory request or completion; addresses in hexadecimal, lengths in bytes."""
    length = 4 * tlp.length if tlp.has_data() else 0
    if tlp.is_completion():
        line = (
            f"Cpl{'D' * tlp.has_data()} status={tlp.status:d} len={length} tag={tlp.tag}"
            f" count={tlp.byte_count} low={tlp.lower_address:#04x}{' poisoned' * tlp.ep}"
        )
    else:
        line = (
            f"{'MWr' if tlp.has_data() else 'MRd'} addr={tlp.address:#x} len={4 * tlp.length}"
            f" tag={tlp.tag} be={tlp.first_be:x}/{tlp.last_be:x}"
        )
    return line + f" data={tlp.data[: 4 * _SHOWN].hex()}" * tlp.has_data()
