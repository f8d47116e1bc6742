# SPDX-License-Identifier: BSD-2-Clause
"""Real boards without a driver of ours: a PCI function that is bound to the kernel's vfio-pci.

`place` finds a function and its nodes, `space` opens them and maps memory for DMA, `device` reaches
registers and interrupts, and `platform` is what `peerdma.userspace` gets of all that. `ioctls` are
the numbers of <linux/vfio.h> and <linux/iommufd.h>.
"""
