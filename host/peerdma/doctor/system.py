# SPDX-License-Identifier: BSD-2-Clause
"""What the kernel says of a machine, in files below one root; and the doctor's findings."""

from __future__ import annotations

import enum
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import PeerdmaError

__all__ = ["Finding", "System", "Verdict", "fail", "note", "ok", "warn"]


class Verdict(enum.Enum):
    """What a finding means."""

    #: as it should be
    OK = "ok"
    #: worth to know; nothing to do
    NOTE = "note"
    #: works, but slower or with less than there could be
    WARN = "warn"
    #: does not work
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    subject : str
        What was looked at, in a few words.
    verdict : Verdict
    found : str
        What there is.
    step : str
        What to do next; "" if there is nothing to do.
    exit_code : int
        That of the command if this is what fails first, as in `peerdma.errors`; else 0.
    """

    subject: str
    verdict: Verdict
    found: str
    step: str = ""
    exit_code: int = 0


def ok(subject: str, found: str) -> Finding:
    """As it should be."""
    return Finding(subject, Verdict.OK, found)


def note(subject: str, found: str, step: str = "") -> Finding:
    """Worth to know."""
    return Finding(subject, Verdict.NOTE, found, step)


def warn(subject: str, found: str, step: str) -> Finding:
    """Works, but not as well as it could."""
    return Finding(subject, Verdict.WARN, found, step)


def fail(subject: str, found: str, step: str, kind: type[PeerdmaError] = PeerdmaError) -> Finding:
    """Does not work; `kind` is the class of error that a program would meet."""
    return Finding(subject, Verdict.FAIL, found, step, kind.exit_code)


class System:
    """Files of the kernel, below `root`: those of this machine, or a copy of another's.

    What cannot be read is as if it were not there.
    """

    def __init__(self, root: str | os.PathLike[str] = "/"):
        self.root = Path(root)

    @property
    def here(self) -> bool:
        """Whether it is the machine that this runs on."""
        return self.root == Path("/")

    def path(self, name: str) -> Path:
        """Where ``/name`` is."""
        return self.root / name

    def data(self, name: str) -> bytes | None:
        """The content of a file."""
        try:
            return self.path(name).read_bytes()
        except OSError:
            return None

    def text(self, name: str) -> str | None:
        """The content of a file as text, without space and zero bytes around it."""
        data = self.data(name)
        return None if data is None else data.decode(errors="replace").strip("\0 \t\n")

    def number(self, name: str) -> int | None:
        """A number that a file consists of, decimal or with 0x in front."""
        try:
            return int(self.text(name) or "", 0)
        except ValueError:
            return None

    def names(self, folder: str) -> list[str]:
        """What is in a folder, sorted."""
        try:
            return sorted(os.listdir(self.path(folder)))
        except OSError:
            return []

    def exists(self, name: str) -> bool:
        """Whether there is such a file or folder."""
        return self.path(name).exists()

    def target(self, link: str) -> Path | None:
        """Where a link leads in the end."""
        path = self.path(link)
        return path.resolve() if path.exists() else None

    def may_open(self, name: str) -> bool:
        """Whether this user may read and write a file."""
        return os.access(self.path(name), os.R_OK | os.W_OK)

    @property
    def kernel(self) -> str:
        """The kernel's release; "" if it does not say."""
        return self.text("proc/sys/kernel/osrelease") or ""

    def module(self, name: str) -> bool:
        """Whether a kernel module is loaded, or built in."""
        return self.exists(f"sys/module/{name}")

    def installed(self, name: str) -> bool:
        """Whether the running kernel has a module to load."""
        return f"/{name}.ko" in (self.text(f"lib/modules/{self.kernel}/modules.dep") or "")

    @property
    def nodes(self) -> list[str]:
        """Paths of the boards' device nodes."""
        # picoevb0 is another name of the first.
        found = (n for n in self.names("dev") if re.fullmatch(r"picoevb([1-9]\d*)?", n))
        return [f"/dev/{name}" for name in found]

    @property
    def secure_boot(self) -> bool:
        """Whether the kernel loads only modules that are signed, since Secure Boot is on."""
        for name in self.names("sys/firmware/efi/efivars"):
            if name.startswith("SecureBoot-"):
                # Four bytes of attributes come before the value.
                return (self.data(f"sys/firmware/efi/efivars/{name}") or b"")[4:5] == b"\1"
        return False

    @property
    def tegra(self) -> str:
        """Which Tegra this is, as ``"tegra234"``; "" on other machines."""
        compatible = (self.data("proc/device-tree/compatible") or b"").split(b"\0")
        names = (name.decode(errors="replace") for name in compatible)
        return next((n[7:] for n in names if n.startswith("nvidia,tegra")), "")
