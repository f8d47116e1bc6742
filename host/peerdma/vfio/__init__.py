# SPDX-License-Identifier: BSD-2-Clause
"""The platform of `peerdma.userspace`: a PCI function on a vfio-user socket.

`wire` defines the messages, `channel` sends and receives them, `client` implements the protocol,
and `pci` sets up the function: BARs, bus mastering, interrupts. `simboard` starts the simulated
board of a checkout.
"""
