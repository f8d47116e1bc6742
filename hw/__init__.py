# SPDX-License-Identifier: BSD-2-Clause
"""Gateware: an XDMA-compatible PCIe DMA engine in Amaranth, and nothing else.

`hw.core` is the engine, `hw.endpoint` the engine with the adapter of a PCIe block, and `hw.top` a
board's whole design; start reading at `hw.core`. The folders follow a transfer: `pcie` moves
packets, `registers` takes the host's accesses, `channel` fetches descriptors and splits them,
`read` brings data from the bus, `memory` and `stream` hold it, `write` puts it back on the bus, and
`interrupts` tells the host. `hw.seam` and `hw.records` define what passes between them, and
`parts` holds the queue, the round robin and the shares that they are built from.
"""
