# SPDX-License-Identifier: BSD-2-Clause
"""The 7-series PCIe block, PCIE_2_1: its transaction ports and the adapter to the seam.

`receive` parses the TLPs that arrive: register accesses, and the completions of reads. `transmit`
builds the TLPs that leave: read requests, writes, and completions of register reads. `adapter`
joins both to the block's configuration and interrupt ports. `parameters` lists what the block is
given, and `block` what the engine has to know of it; `ports` lists its ports. `phy` has the block
itself and its transceiver.
"""
