# SPDX-License-Identifier: BSD-2-Clause
"""Kernel headers with a matching compiler, and NVIDIA's nv-p2p.h, from Debian's packages.

    python3 tools/kernel_headers.py            list the kernels
    python3 tools/kernel_headers.py 6.12 ...   get these; prints each one's build folder

Standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

if __package__:
    from .debian_tree import Tree, TreeError, obtain
else:
    from debian_tree import Tree, TreeError, obtain

__all__ = [
    "KERNELS",
    "NV_P2P",
    "Headers",
    "coccinelle",
    "headers",
    "main",
    "nv_p2p",
    "scripts",
    "sparse",
    "xdma",
]


#: Kernels that the driver is built for, and guests boot: Debian's oldest to the newest that its
#: backports have. Those that the tests boot most come with their image.
KERNELS = {
    "5.10": Tree("bullseye", ("gcc-10",), kernel="linux-headers-amd64"),
    "6.1": Tree("bookworm", ("gcc-12",), kernel="linux-headers-amd64"),
    "6.12": Tree("trixie", ("gcc-14",), kernel="linux-headers-amd64", image=True),
    "6.12-arm64": Tree(
        "trixie", ("gcc-14-aarch64-linux-gnu",), kernel="linux-headers-arm64:arm64", image=True
    ),
    "newest": Tree("trixie", ("gcc-14",), kernel="linux-headers-amd64", backports=True),
}
#: NVIDIA's open kernel modules, by driver branch.
NV_P2P = {
    "535": Tree("bookworm", alone=("nvidia-open-kernel-source",)),
    "550": Tree("trixie", alone=("nvidia-open-kernel-source",)),
}
_SPARSE = Tree("bookworm", ("libc6",), ("sparse",))
_COCCINELLE = Tree("trixie", ("coccinelle",))
_SOURCE = Tree("trixie", alone=("linux-source-6.12",))


@dataclass(frozen=True)
class Headers:
    """A kernel to build modules for.

    Attributes
    ----------
    build : pathlib.Path
        The folder for ``make KDIR=``.
    options : tuple of str
        Arguments of that make.
    environment : dict of str to str
        Environment of that make, with the compiler in PATH.
    """

    build: Path
    options: tuple[str, ...]
    environment: dict[str, str]


def headers(name: str, image: bool = False) -> Headers:
    """The headers of KERNELS[`name`], downloaded if needed; TreeError if that fails.

    With `image`, the kernel's image and modules are beside them.
    """
    tree = KERNELS[name]
    root = obtain(replace(tree, image=tree.image or image), _fix_paths)
    architecture = name.partition("-")[2] or "amd64"
    build = next((root / "usr/src").glob(f"linux-headers-*-{architecture}"))
    path = f"{root}/usr/bin:{os.environ.get('PATH', '')}"
    # Without BTF, which would need the kernel's uncompressed image.
    options = [f"KDIR={build}", "CONFIG_DEBUG_INFO_BTF_MODULES="]
    if architecture == "arm64":
        options.append("ARCH=arm64")
    return Headers(build, tuple(options), {**os.environ, "PATH": path})


def nv_p2p(branch: str) -> Path:
    """The folder with nv-p2p.h of NV_P2P[`branch`]."""
    root = obtain(NV_P2P[branch], _unpack_nv_p2p)
    return root / "include"


def sparse() -> Path:
    """The program sparse."""
    return obtain(_SPARSE) / "usr/bin/sparse"


def coccinelle() -> Path:
    """Coccinelle's program, spatch."""
    return obtain(_COCCINELLE) / "usr/bin/spatch"


def scripts() -> Path:
    """The folder with the kernel's checkpatch.pl, its data files, kernel-doc, and coccinelle/."""
    return obtain(_SOURCE, _unpack_kernel) / "scripts"


def xdma() -> Path:
    """The kernel's folder drivers/dma, with what its own driver for XDMA needs: xilinx/xdma.c."""
    return obtain(_SOURCE, _unpack_kernel) / "dma"


def _fix_paths(draft: Path, root: Path) -> None:
    """Makes the headers refer to each other in the tree, and not where packages install them."""
    for makefile in (draft / "usr/src").glob("linux-headers-*/Makefile"):
        text = makefile.read_text()
        makefile.write_text(re.sub(r"(?<=[ =])/usr/src/", f"{root}/usr/src/", text))
    # A wrapper that starts the modpost for the kernel's word size and byte order, whose path is
    # not right in the tree: replaced by a link to it.
    for modpost in (draft / "usr/lib").glob("linux-kbuild-*/scripts/mod/modpost"):
        modpost.unlink()
        modpost.symlink_to("modpost.real-lsb-64")
    for tool in (draft / "usr/bin").glob("*-linux-gnu-*"):
        # gcc finds its assembler and linker by their plain names in its own folder.
        triplet, _, plain = tool.name.partition("-linux-gnu-")
        for folder in (draft / "usr").glob(f"lib*/gcc*/{triplet}-linux-gnu/*"):
            if plain in ("as", "ld") and not (folder / plain).exists():
                (folder / plain).symlink_to(root / "usr/bin" / tool.name)


def _unpack(archive: Path, to: dict[str, Path], folder: str = "", copy: Path = Path()) -> None:
    """Writes the members whose path ends with a key of `to` to its value.

    Those that have `folder`, "/scripts/", in their path go to the folder `copy`.
    """
    with tarfile.open(archive) as tar:
        for member in tar:
            places = [place for ending, place in to.items() if member.name.endswith(ending)]
            if folder and folder in member.name:
                places.append(copy / member.name.partition(folder)[2])
            for place in places:
                if data := tar.extractfile(member):
                    place.parent.mkdir(parents=True, exist_ok=True)
                    place.write_bytes(data.read())


def _unpack_nv_p2p(draft: Path, root: Path) -> None:
    source = draft / "usr/src/nvidia-open-kernel.tar.xz"
    _unpack(source, {"/nvidia/nv-p2p.h": draft / "include/nv-p2p.h"})
    source.unlink()


def _unpack_kernel(draft: Path, root: Path) -> None:
    source = next((draft / "usr/src").glob("linux-source-*.tar.xz"))
    names = ("checkpatch.pl", "spelling.txt", "const_structs.checkpatch", "kernel-doc")
    driver = ("Makefile", "xdma.c", "xdma-regs.h")
    shared = ("virt-dma.h", "dmaengine.h")
    wanted = {f"/scripts/{name}": draft / "scripts" / name for name in names}
    for name in (*(f"xilinx/{name}" for name in driver), *shared):
        wanted[f"/drivers/dma/{name}"] = draft / "dma" / name
    _unpack(source, wanted, "/scripts/coccinelle/", draft / "scripts/coccinelle")
    source.unlink()


def main() -> None:
    """Get the kernels named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernel", nargs="*", help=f"any of {', '.join(KERNELS)}")
    wanted = parser.parse_args().kernel
    if unknown := set(wanted) - set(KERNELS):
        parser.error(f"no such kernel: {', '.join(sorted(unknown))}; there is {', '.join(KERNELS)}")
    try:
        for name in wanted:
            print(headers(name).build)
    except TreeError as error:
        sys.exit(f"peerdma: {error}")
    if not wanted:
        print(*KERNELS, sep="\n")


if __name__ == "__main__":
    main()
