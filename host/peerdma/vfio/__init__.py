# SPDX-License-Identifier: BSD-2-Clause
"""What two ways to a PCI function from user space have in common.

`peerdma.vfio_user` reaches a simulated board over a socket, `peerdma.vfio_pci` a real one through
the kernel's VFIO. `structures` are those of <linux/vfio.h>, which both use; `function` sets up a
function's configuration space; `platform` is what a driver in user space gets from either.
"""
