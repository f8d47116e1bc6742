# SPDX-License-Identifier: BSD-2-Clause
"""The platform of `peerdma.userspace`: a PCI function on a vfio-user socket.

`wire` has the messages, `channel` sends and receives them, `client` is the protocol, `pci` sets up
the function: BARs, bus mastering, interrupts. `simboard` starts the simulated board of a checkout.
"""
