# SPDX-License-Identifier: BSD-2-Clause
"""The QEMU command for a guest, its initramfs and its root file system."""

from __future__ import annotations

import compileall
import json
import os
import shlex
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.debian_tree import Tree, obtain

from . import qemu
from .board import ROOT, Board
from .configurations import Configuration
from .errors import GuestError
from .initramfs import archive
from .kernel import Kernel

__all__ = ["BOARD_SLOTS", "CHECKOUT", "Plan", "board_device"]

#: Mount point of the checkout in guests that do not have the host's root.
CHECKOUT = "/checkout"
#: Number of slots for boards, each behind a root port of its own.
BOARD_SLOTS = 3
_AGENT = "agent"
#: Modules for the root over 9p, for the agent's port, and for a disk in memory.
_MODULES = ("virtio_pci", "9p", "9pnet_virtio", "virtio_console", "brd")
#: Property in a device tree, of devices whose DMA is coherent with the processor's caches.
_COHERENT = b"dma-coherent"
#: Header of a device tree. The second number is the tree's length, the third and the fourth are the
#: offsets of nodes and names, the last and the one before it their lengths.
_TREE = ">10I"
#: The Python version of a foreign root, for this machine.
_PYTHON = Tree("trixie", ("python3",))


@dataclass(frozen=True)
class Plan:
    """How to start a guest.

    Attributes
    ----------
    configuration, kernel
        Kind of machine, and the kernel to boot.
    sockets : Path
        Folder of the sockets.
    console : Path
        File for the console's output.
    memory, aperture : int
        MiB of RAM and of the simulated GPU's memory.
    processors : int
        Number of processors.
    terminal : bool
        Connect standard input and output to the guest's /dev/hvc0.
    append : str
        Further kernel parameters.
    modules : tuple of str
        Further modules of the kernel's own to load at boot.
    """

    configuration: Configuration
    kernel: Kernel
    sockets: Path
    console: Path
    memory: int
    aperture: int
    processors: int
    terminal: bool
    append: str
    modules: tuple[str, ...]

    def socket(self, name: str) -> Path:
        """Path of the socket that QEMU connects to for the "agent" or the "monitor"."""
        return self.sockets / f"{name}.sock"

    def command(
        self, files: Mapping[str, Path], boards: Sequence[Board]
    ) -> tuple[list[str | Path], dict[str, str]]:
        """The command and its environment; `files` go to the guest's /run/guest."""
        found = qemu.find(self.configuration.architecture)
        initramfs = self.sockets / "initramfs"
        root = self._root()
        initramfs.write_bytes(self._initramfs(files))
        chosen = self.configuration
        words = f"console={chosen.console} ignore_loglevel {chosen.append} {self.append}"
        share = "security_model=none,readonly=on,multidevs=remap"
        devices = [
            *("-device", "virtio-serial-pci"),
            *("-chardev", f"socket,id=agent,path={self.socket('agent')}"),
            *("-device", f"virtserialport,chardev=agent,name={_AGENT}"),
            *("-qmp", f"unix:{self.socket('monitor')}"),
            *("-serial", f"file:{self.console}"),
            *("-fsdev", f"local,id=root,path={_escaped(root)},{share}"),
            *("-device", "virtio-9p-pci,fsdev=root,mount_tag=root"),
            *("-fsdev", f"local,id=checkout,path={_escaped(ROOT)},{share}"),
            *("-device", "virtio-9p-pci,fsdev=checkout,mount_tag=checkout"),
            *(f"-device pcie-root-port,id=gpu-slot,chassis={BOARD_SLOTS + 1}".split()),
            *("-object", f"memory-backend-memfd,id=gpu,size={self.aperture}M,share=on"),
            *("-device", "ivshmem-plain,memdev=gpu,bus=gpu-slot"),
        ]
        for n in range(BOARD_SLOTS):
            devices += ["-device", f"pcie-root-port,id=slot{n},chassis={n + 1}"]
        for n, board in enumerate(boards):
            devices += ["-device", json.dumps(board_device(board, n))]
        if self.terminal:
            devices += ["-chardev", "stdio,id=terminal,signal=off"]
            devices += ["-device", "virtconsole,chardev=terminal"]
        machine = [
            found.program,
            *found.arguments,
            *("-nodefaults", "-no-user-config", "-display", "none"),
            *self.configuration.machine,
            *("-smp", str(self.processors), "-m", f"{self.memory}M"),
            # The board maps the guest's memory by this file.
            *("-object", f"memory-backend-memfd,id=ram,size={self.memory}M,share=on"),
        ]
        command = [
            *machine,
            *("-kernel", self.kernel.image, "-initrd", initramfs, "-append", words),
            *devices,
        ]
        if not self.configuration.coherent:
            command += ["-dtb", self._not_coherent(machine, found.environment)]
        return command, found.environment

    def _not_coherent(self, machine: Sequence[str | Path], environment: Mapping[str, str]) -> Path:
        """QEMU's device tree for a machine, without what says that DMA is coherent."""
        tree = self.sockets / "device-tree"
        dump = [*machine, "-machine", f"dumpdtb={tree}"]
        done = subprocess.run(
            dump, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise GuestError(f"QEMU wrote no device tree: {done.stderr}")
        data = tree.read_bytes()
        # Names of properties are all in one place: this one becomes unknown.
        data = data.replace(_COHERENT, bytes(reversed(_COHERENT)))
        # What is free at the end goes: QEMU makes twice as much, and Linux takes at most 2 MiB.
        _, _, structure, strings, *more = struct.unpack_from(_TREE, data)
        end = max(structure + more[-1], strings + more[-2])
        tree.write_bytes(data[:4] + struct.pack(">I", end) + data[8:end])
        return tree

    def _root(self) -> Path:
        """The folder that the guest mounts as its root."""
        if self.configuration.architecture == "amd64":
            # The guest cannot write byte code, and would compile for each program again.
            compileall.compile_dir(ROOT / "host", quiet=1)
            return Path("/")
        # bash depends on the package with the standard folders; tests import pytest.
        packages = ("python3-numpy", "python3-pytest", "dash", "bash")
        obtain(_PYTHON)  # now, as `_as_root` needs it while `obtain` has its lock, not reentrant
        root = obtain(Tree("trixie", packages, foreign=self.configuration.architecture), _as_root)
        _compile(ROOT / "host")
        return root

    def _initramfs(self, files: Mapping[str, Path]) -> bytes:
        here = Path(__file__).parent
        architecture = self.configuration.architecture
        foreign = "" if architecture == "amd64" else architecture
        shell = (
            obtain(Tree("trixie", alone=("busybox-static",), foreign=foreign)) / "usr/bin/busybox"
        )
        own = architecture == "amd64"
        python = sys.executable if own else "/usr/bin/python3"
        settings = f"CHECKOUT={'' if own else CHECKOUT}\n"
        settings += f"PYTHON={shlex.quote(python)}\nPORT={_AGENT}\n"
        modules = self.kernel.modules_for((*_MODULES, *self.modules)).items()
        return archive(
            {
                "init": (here / "init.sh").read_bytes(),
                "bin/busybox": shell.read_bytes(),
                "settings": settings.encode(),
                "guest/agent.py": (here / "agent.py").read_bytes(),
                **{f"modules/{n:02}-{name}.ko": data for n, (name, data) in enumerate(modules)},
                **{f"guest/{name}": path.read_bytes() for name, path in files.items()},
            }
        )


def board_device(board: Board, slot: int) -> dict[str, object]:
    """QEMU's description of a board in a slot."""
    return {
        "driver": "vfio-user-pci",
        "id": f"board{slot}",
        "bus": f"slot{slot}",
        "rombar": 0,
        # QEMU would confuse a reply after this time-out, 5 s by default, with the next request's.
        "x-msg-timeout": 600_000,
        "socket": {"type": "unix", "path": str(board.socket)},
    }


def _escaped(path: Path) -> str:
    """A path with its commas escaped, for QEMU's options."""
    return str(path).replace(",", ",,")


def _compile(folder: Path) -> None:
    """Compiles a folder's Python code with the Python version of a foreign root."""
    python = obtain(_PYTHON) / "usr/bin/python3"
    subprocess.run([python, "-I", "-m", "compileall", "-q", folder], check=True)


def _as_root(draft: Path, root: Path) -> None:
    """Completes a root of unpacked packages: mount points, and what package scripts would do."""
    _compile(draft / "usr/lib")
    (draft / CHECKOUT.lstrip("/")).mkdir()
    # Links that package scripts would make, for numpy.
    for library in draft.glob("usr/lib/*/*/lib*.so.3"):
        if library.parent.name in ("blas", "lapack"):
            (library.parents[1] / library.name).symlink_to(f"{library.parent.name}/{library.name}")
