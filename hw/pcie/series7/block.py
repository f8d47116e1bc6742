# SPDX-License-Identifier: BSD-2-Clause
"""What the engine has to know about the 7-series PCIe block, out of the block's parameters."""

from ...seam import FIVE_BIT_TAGS, Block, PortContract
from .parameters import PARAMETERS, TRANSMIT_BUFFERS

__all__ = ["SERIES7"]

#: 10^6 bytes per second of a lane, by its speed, less line code.
_LANE_MBPS = {1: 250, 2: 500}

#: Two of the cycles of `credit_lag` are in the adapter. No document says when `trnterrdrop` comes:
#: what it is for shows in a TLP's header, or at its end. At 125 MHz a port that pauses for 3 cycles
#: behind each TLP keeps up with the smallest completions, which take the link 5.
SERIES7 = Block(
    width=128 if PARAMETERS["TRN_DW"] == "TRUE" else 64,
    transmit_buffers=TRANSMIT_BUFFERS,
    completion_headers=PARAMETERS["VC0_TOTAL_CREDITS_CH"],
    completion_credits=PARAMETERS["VC0_TOTAL_CREDITS_CD"],
    credit_lag=8,
    drop_lag=4,
    max_tags=FIVE_BIT_TAGS,
    port=PortContract(
        link_mbps=PARAMETERS["LINK_CAP_MAX_LINK_WIDTH"]
        * _LANE_MBPS[PARAMETERS["LINK_CAP_MAX_LINK_SPEED"]],
        idle=4,
    ),
)
