# SPDX-License-Identifier: BSD-2-Clause
"""What the PCIe block may do that is hard on a core, as `Series7Device.pauses` counts it."""

from __future__ import annotations

__all__ = ["PAUSES"]

#: Cycles without a beat in the middle of a TLP that has begun, either way; cycles in which all is
#: held up, either way; and completions that come between two of another read.
PAUSES = ("in received", "in sent", "long receive", "long transmit", "interleaved")
