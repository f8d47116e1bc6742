# SPDX-License-Identifier: BSD-2-Clause
"""A board behind the kernel driver, `/dev/picoevb`: the way to hardware.

`backend` makes a transfer jobs of the driver, `node` issues the requests. Their structures are in
`peerdma.uapi`.
"""
