# SPDX-License-Identifier: BSD-2-Clause
"""The machines that are simulated: what is between board, memory and GPU."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LANES", "Lane"]


@dataclass(frozen=True)
class Lane:
    """A kind of machine.

    Attributes
    ----------
    name : str
    about : str
        What it is, in a few words.
    architecture : "amd64" or "arm64"
    machine : tuple of str
        Arguments of QEMU.
    console : str
        The serial port, for the kernel.
    append : str
        Further words for the kernel.
    modules : tuple of str
        Loaded at the start, in this order.
    """

    name: str
    about: str
    architecture: str
    machine: tuple[str, ...]
    console: str
    append: str
    modules: tuple[str, ...]


_PC = (
    *("-machine", "q35,accel=tcg,memory-backend=ram,kernel-irqchip=off", "-cpu", "max"),
    # Without caching mode QEMU ends when the guest turns the IOMMU on.
    *("-device", "intel-iommu,caching-mode=on"),
)
_VIRT = (*("-machine", "virt,accel=tcg,memory-backend=ram,gic-version=3", "-cpu", "cortex-a57"),)

LANES = {
    lane.name: lane
    for lane in (
        # An IOMMU translates, and unmaps at once: a stray access of the board faults. Memory is
        # pages of the host, and the GPU's as a dma-buf.
        Lane(
            "strict",
            "an IOMMU translates",
            "amd64",
            _PC,
            "ttyS0",
            "intel_iommu=on iommu.strict=1 no_timer_check",
            ("peerdma", "simgpu"),
        ),
        # Bus addresses are physical ones, as NVIDIA's driver wants it for discrete GPUs.
        Lane(
            "identity",
            "an IOMMU that does not translate",
            "amd64",
            _PC,
            "ttyS0",
            "intel_iommu=on iommu=pt no_timer_check",
            ("peerdma", "simgpu", "peerdma_nvp2p"),
        ),
        # No IOMMU, as a Jetson's GPU memory is the host's.
        Lane(
            "arm64",
            "no IOMMU, as on a Jetson",
            "arm64",
            _VIRT,
            "ttyAMA0",
            "",
            ("peerdma", "simtegra", "peerdma_nvp2p_tegra"),
        ),
    )
}
