# SPDX-License-Identifier: BSD-2-Clause
"""Boards behind the kernel driver, `/dev/picoevb`: real hardware.

`backend` pins memory and makes jobs of transfers, `jobs` runs these, `frames` receives frames, and
`node` issues the ioctls, whose structures are in `peerdma.uapi`.
"""
