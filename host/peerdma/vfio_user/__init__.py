# SPDX-License-Identifier: BSD-2-Clause
"""Simulated boards: a PCI function on a vfio-user socket, as a platform for `peerdma.userspace`.

`wire` defines the messages, `channel` sends and receives them, `client` implements the protocol,
and `pci` sets up the function: BARs, bus mastering, interrupts. `simboard` starts the simulated
board of the checkout, or the one installed.
"""
