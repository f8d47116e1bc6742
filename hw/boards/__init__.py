# SPDX-License-Identifier: BSD-2-Clause
"""Boards as plain data: part, pins, links and identity.

`hw.top` takes a board's pins from here, and `flow` all that it needs to make and check an image.
The reference that an image is compared with is in `flow.references`.
"""

from .board import BOARDS, Board, Boot, Pad

__all__ = ["BOARDS", "Board", "Boot", "Pad"]
