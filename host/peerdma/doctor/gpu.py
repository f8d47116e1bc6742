# SPDX-License-Identifier: BSD-2-Clause
"""The doctor's checks of GPUs, of access to their memory, and of the path to a board."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .pci import PciDevice, common, functions
from .system import Finding, System, note, ok, warn

__all__ = ["gpus", "look_at_gpus", "look_at_iommu", "look_at_path"]

_NVIDIA = 0x10DE
#: The BAR of NVIDIA's GPUs that maps their memory.
_MEMORY_BAR = 1
_SMALL_BAR = 256 << 20
#: Product names of Tegras, by the name in the device tree.
_TEGRAS = {"tegra194": "Xavier", "tegra234": "Orin", "tegra264": "Thor"}
#: Names of GPUs that have no memory but the host's, and of those that are coherent with it.
_INTEGRATED, _COHERENT = r"\bGB10\b", r"\bG[HB][23]00\b|\bGrace\b"
_HOST_INSTEAD = 'Surfaces in host memory work: memory="host", which is then the default'


def gpus(system: System) -> list[PciDevice]:
    """The discrete GPUs of a machine, by class: a board may have NVIDIA's vendor number."""
    return [each for each in functions(system) if each.is_display]


def look_at_gpus(system: System) -> Iterator[Finding]:
    """Which GPUs there are, and which module can pin their memory."""
    if system.tegra:
        yield from _tegra(system)
        return
    found = gpus(system)
    if not found:
        yield note("GPU", "none on the PCI bus: only transfers to and from host memory work")
    for gpu in found:
        yield from _nvidia(system, gpu) if gpu.identity[0] == _NVIDIA else _other(gpu)
    if any(gpu.identity[0] == _NVIDIA for gpu in found) and system.module("nvidia"):
        yield from _providers(system)


def _tegra(system: System) -> Iterator[Finding]:
    name = _TEGRAS.get(system.tegra, system.tegra)
    release = re.search(r"R(\d+).*?REVISION: ([\d.]+)", system.text("etc/nv_tegra_release") or "")
    l4t = f"L4T {release[1]}.{release[2]}" if release else "no L4T release in /etc"
    model = system.text("proc/device-tree/model") or "no model"
    found = f"integrated, {name} ({system.tegra}): {model}, {l4t}"
    yield ok("GPU", f"{found}. Surfaces are cudaHostAlloc memory, which board and GPU share")
    if system.module("peerdma_nvp2p_tegra"):
        yield ok("provider", "peerdma_nvp2p_tegra is loaded, for programs with PIN_CUDA")
    elif name == "Thor":
        yield ok("provider", "none needed: Thor has no nv-p2p, host memory is pinned as pages")
    else:
        yield note("provider", "peerdma_nvp2p_tegra is not loaded: memory is pinned as pages")


def _nvidia(system: System, gpu: PciDevice) -> Iterator[Finding]:
    information = system.text(f"proc/driver/nvidia/gpus/{gpu.address}/information") or ""
    model = re.search(r"Model:\s*(.+)", information)
    name = model[1] if model else "an NVIDIA GPU"
    version = system.text("proc/driver/nvidia/version")
    if version is None:
        yield warn(
            "GPU",
            f"{gpu.address} is {name}, but its driver is not loaded"
            + (f" (bound to {gpu.driver})" if gpu.driver else ""),
            "Install NVIDIA's driver with the open kernel modules; nvidia-smi shows the GPU then",
        )
        return
    release = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", version)
    driver = f"driver {release[0] if release else 'of unknown version'}"
    if "GeForce" in name:
        yield warn(
            "GPU",
            f"{gpu.address} is {name}, {driver}: NVIDIA does not let other devices access the "
            "memory of GeForce GPUs",
            f"{_HOST_INSTEAD}. Peer-to-peer needs an RTX PRO, Quadro or data-centre GPU",
        )
        return
    if re.search(_INTEGRATED, name):
        yield note(
            "GPU",
            f"{gpu.address} is {name}, {driver}, integrated: board and GPU share pinned memory of "
            "the host, where surfaces are; other devices do not reach memory of cudaMalloc",
        )
        return
    if "Open Kernel Module" not in version:
        yield warn(
            "GPU",
            f"{gpu.address} is {name}, {driver} with proprietary kernel modules: they export no "
            "dma-bufs, and peerdma_nvp2p cannot link to them",
            "Install the open kernel modules, for Turing and later GPUs (package nvidia-open or "
            f"nvidia-open-kernel-dkms). {_HOST_INSTEAD}",
        )
        return
    yield ok("GPU", f"{gpu.address} is {name}, {driver}, open kernel modules: dma-buf, nv-p2p")
    if re.search(_COHERENT, name):
        yield note(
            "GPU",
            f"{name} is coherent with its processor: dma-bufs with addresses that PCIe devices "
            "reach take a driver of CUDA 12.8 or later (docs/cuda.md)",
        )
    yield from _memory_bar(gpu)


def _memory_bar(gpu: PciDevice) -> Iterator[Finding]:
    size = gpu.bars[_MEMORY_BAR].size if len(gpu.bars) > _MEMORY_BAR else 0
    if not size:
        yield note("BAR1", f"{gpu.address}: the kernel does not report its size")
    elif size <= _SMALL_BAR:
        yield warn(
            "BAR1",
            f"{gpu.address} maps {size >> 20} MiB of its memory, some of it reserved: about "
            f"{size * 7 // 8 >> 20} MiB can be pinned at a time",
            "Turn Resizable BAR (and Above 4G Decoding) on in the firmware's setup",
        )
    else:
        yield ok("BAR1", f"{gpu.address} maps {size >> 20} MiB of its memory")


def _providers(system: System) -> Iterator[Finding]:
    if system.module("peerdma_nvp2p"):
        yield ok("provider", "peerdma_nvp2p is loaded: CUDA pointers can be pinned")
    elif system.module("peerdma"):
        step = "As root: modprobe peerdma_nvp2p"
        if not system.installed("peerdma_nvp2p"):
            step = "Rebuild the driver with the source of NVIDIA's open kernel modules in /usr/src"
        yield note(
            "provider",
            "peerdma_nvp2p is not loaded: GPU memory can only be pinned as a dma-buf, and not by "
            "programs for NVIDIA's PicoEVB driver",
            step,
        )
    if system.module("nvidia_peermem"):
        yield note("provider", "nvidia_peermem is loaded; it serves network adapters, not boards")


def _other(gpu: PciDevice) -> Iterator[Finding]:
    yield note(
        "GPU",
        f"{gpu.address} is vendor {gpu.identity[0]:04x}, driver {gpu.driver or 'none'}: its memory "
        "can be pinned as a dma-buf that a program exports (amdgpu before Linux 6.15 and xe put it "
        "into host memory for that); this library uses CUDA GPUs",
    )


def look_at_iommu(system: System, board: PciDevice) -> Finding:
    """Whether an IOMMU translates the board's addresses."""
    kind = board.iommu
    if not kind:
        return ok("IOMMU", f"none between {board.address} and memory")
    if kind == "identity":
        return ok("IOMMU", f"does not translate {board.address}'s addresses (identity)")
    found = f"{board.address}'s addresses are translated ({kind})"
    if system.module("peerdma_nvp2p") and not system.tegra:
        return warn(
            "IOMMU",
            f"{found}; NVIDIA supports nv-p2p only without translation",
            "Start the kernel with iommu=pt, on Arm iommu.passthrough=1. Memory pinned as dma-buf "
            "or as pages works with translation",
        )
    return ok("IOMMU", f"{found}; host memory and dma-bufs are mapped for it")


def look_at_path(board: PciDevice, gpu: PciDevice) -> Finding:
    """The bridges between the two, and whether these forward peer-to-peer transfers."""
    subject, pair = "path", f"{board.address} to {gpu.address}"
    shared = common(board, gpu)
    host = 'Surfaces in host memory work everywhere: memory="host"'
    if not shared:
        return warn(
            subject,
            f"{pair}: below different host bridges, {_bridge(board)} and {_bridge(gpu)}. Few "
            "machines forward peer-to-peer between these",
            f"Put both below one switch, or on one processor's slots. {host}",
        )
    if len(shared) == 1:
        return warn(
            subject,
            f"{pair}: below different root ports of {shared[0]}. Many root complexes forward "
            "peer-to-peer writes there, fewer also reads",
            f"The tests below show what this one forwards. A switch forwards both. {host}",
        )
    # ACS redirects at the ports below the shared switch, down to the devices.
    ports = {*board.above[len(shared) :], *gpu.above[len(shared) :]}
    states = {port: board.beside(port).redirects for port in sorted(ports)}
    redirecting = [port for port, state in states.items() if state]
    if redirecting:
        return warn(
            subject,
            f"{pair}: below one switch, {shared[-1]}, but access control (ACS) of "
            f"{', '.join(redirecting)} redirects peer-to-peer to the root complex",
            "Turn ACS off for these ports in the firmware's setup, or start the kernel with "
            f"pci=disable_acs_redir={';'.join(redirecting)}",
        )
    unknown = None in states.values()
    text = "; only root sees whether ACS redirects" if unknown else ", which forwards both"
    return (note if unknown else ok)(subject, f"{pair}: below one switch, {shared[-1]}{text}")


def _bridge(device: PciDevice) -> str:
    return device.above[0] if device.above else "an unknown one"
