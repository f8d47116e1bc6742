# SPDX-License-Identifier: BSD-2-Clause
"""An XDMA-compatible engine driven from this process, by its registers.

`backend` maps memory for the board and divides transfers, `xdma` makes descriptors of them, and
`engine` runs these: start, wait, check, stop. All of it works on any platform with the methods of
`registers.Registers`; `peerdma.vfio` is the one the library has.
"""
