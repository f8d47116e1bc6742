# SPDX-License-Identifier: BSD-2-Clause
"""VFIO as every way to a PCI function from user space has it, whichever way its requests go.

`structures` are those of <linux/vfio.h>, `function` sets up a function's configuration space, and
`platform` is what a driver in user space gets. `peerdma.vfio_user` implements it over a socket.
"""
