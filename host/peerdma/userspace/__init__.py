# SPDX-License-Identifier: BSD-2-Clause
"""A user-space driver for an XDMA-compatible engine.

`backend` maps memory for the board and splits transfers into steps, `xdma` makes descriptors of
these, and `engine` runs the chains: start, wait, check, stop. All but `backend` only need the
methods of `registers.Registers`, which `peerdma.vfio` implements.
"""
