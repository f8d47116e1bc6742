# SPDX-License-Identifier: BSD-2-Clause
"""What the engine has to know about the 7-series PCIe block, out of the block's parameters."""

from ...seam import FIVE_BIT_TAGS, Block
from .parameters import PARAMETERS, TRANSMIT_BUFFERS

__all__ = ["SERIES7"]

#: Two of the cycles of `credit_lag` are in the adapter. No document says when `trnterrdrop` comes:
#: what it is for shows in a TLP's header, or at its end.
SERIES7 = Block(
    width=128 if PARAMETERS["TRN_DW"] == "TRUE" else 64,
    transmit_buffers=TRANSMIT_BUFFERS,
    completion_headers=PARAMETERS["VC0_TOTAL_CREDITS_CH"],
    completion_credits=PARAMETERS["VC0_TOTAL_CREDITS_CD"],
    credit_lag=8,
    drop_lag=4,
    max_tags=FIVE_BIT_TAGS,
)
