# SPDX-License-Identifier: BSD-2-Clause
"""Gateware: an XDMA-compatible PCIe DMA engine in Amaranth. Start reading at `hw.core`."""
