# SPDX-License-Identifier: BSD-2-Clause
"""Boards: a platform of Amaranth each, and what programming and checking must know of them."""

from .board import BOARDS, Board

__all__ = ["BOARDS", "Board"]
