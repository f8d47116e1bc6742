# SPDX-License-Identifier: BSD-2-Clause
"""Message TLPs that stand for INTx (PCI Express Base Specification 2.2.8)."""

from __future__ import annotations

from cocotbext.pcie.core.tlp import MsgType, Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId

__all__ = ["interrupt_message", "message_code"]


def message_code(tlp: Tlp) -> MsgType:
    """The message code, which a message has where requests have their byte enables (2.2.8)."""
    return MsgType(tlp.last_be << 4 | tlp.first_be)


def interrupt_message(asserted: bool, sender: PcieId) -> Tlp:
    """Assert_INTA or Deassert_INTA."""
    tlp = Tlp()
    tlp.fmt_type = TlpType.MSG_LOCAL
    tlp.requester_id = sender
    code = MsgType.ASSERT_INTA if asserted else MsgType.DEASSERT_INTA
    tlp.first_be, tlp.last_be = code & 0xF, code >> 4
    return tlp
