# SPDX-License-Identifier: BSD-2-Clause
"""The simulated kinds of machine, which differ in what is between board, memory and GPU."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CONFIGURATIONS", "Configuration"]


@dataclass(frozen=True)
class Configuration:
    """A kind of machine.

    Attributes
    ----------
    name : str
    about : str
        Short description.
    architecture : "amd64" or "arm64"
    machine : tuple of str
        Arguments of QEMU.
    console : str
        The kernel's name of the serial port.
    append : str
        Further kernel parameters.
    modules : tuple of str
        Modules to load at the start, in this order.
    coherent : bool
        Whether the processor's caches are coherent with DMA, as the kernel is told.
    """

    name: str
    about: str
    architecture: str
    machine: tuple[str, ...]
    console: str
    append: str
    modules: tuple[str, ...]
    coherent: bool = True


_PC = (
    # Native PCI Express hot-plug. With ACPI hot-plug, ports never report that their link is up, and
    # the kernel considers a reset of the device behind them failed.
    *("-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"),
    *("-machine", "q35,accel=tcg,memory-backend=ram,kernel-irqchip=off", "-cpu", "max"),
    # Without caching mode, QEMU exits when the guest enables the IOMMU.
    *("-device", "intel-iommu,caching-mode=on"),
)
_VIRT = (*("-machine", "virt,accel=tcg,memory-backend=ram,gic-version=3", "-cpu", "cortex-a57"),)

CONFIGURATIONS = {
    configuration.name: configuration
    for configuration in (
        # An IOMMU translates and unmaps at once, so that a stray access of the board faults. Pins
        # host pages, and GPU memory as a dma-buf.
        Configuration(
            "strict",
            "an IOMMU translates",
            "amd64",
            _PC,
            "ttyS0",
            "intel_iommu=on iommu.strict=1 no_timer_check",
            ("peerdma", "simgpu"),
        ),
        # Bus addresses are physical, as NVIDIA's driver requires for discrete GPUs.
        Configuration(
            "identity",
            "an IOMMU that does not translate",
            "amd64",
            _PC,
            "ttyS0",
            "intel_iommu=on iommu=pt no_timer_check",
            ("peerdma", "simgpu", "peerdma_nvp2p"),
        ),
        # Every transfer of pages goes through the kernel's bounce buffers, which the driver's syncs
        # fill and empty: one that is missing, or covers too much, shows as wrong bytes.
        Configuration(
            "bounce",
            "no IOMMU, DMA through bounce buffers, as in a confidential guest",
            "amd64",
            _PC,
            "ttyS0",
            "intel_iommu=off swiotlb=force no_timer_check",
            ("peerdma", "simgpu"),
        ),
        # No IOMMU; as on a Jetson, GPU memory is host memory.
        Configuration(
            "arm64",
            "no IOMMU, as on a Jetson",
            "arm64",
            _VIRT,
            "ttyAMA0",
            "",
            ("peerdma", "simtegra", "peerdma_nvp2p_tegra"),
        ),
        # The kernel maintains caches that QEMU does not have: what it is asked for can be seen.
        Configuration(
            "not-coherent",
            "no IOMMU, DMA past the caches, as on small arm64 boards",
            "arm64",
            _VIRT,
            "ttyAMA0",
            "",
            ("peerdma",),
            coherent=False,
        ),
    )
}
