# SPDX-License-Identifier: BSD-2-Clause
"""A machine's system files, below one root; and the doctor's findings."""

from __future__ import annotations

import enum
import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import PeerdmaError

__all__ = ["Finding", "System", "Verdict", "fail", "note", "ok", "warn"]


class Verdict(enum.Enum):
    """How good or bad a finding is."""

    #: as it should be
    OK = "ok"
    #: for information; nothing has to be done
    NOTE = "note"
    #: works, but slower or with less than possible
    WARN = "warn"
    #: does not work
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes
    ----------
    subject : str
        What was checked, in a few words.
    verdict : Verdict
    found : str
        What was found.
    step : str
        What to do next; "" if there is nothing to do.
    exit_code : int
        The command's exit code, as in `peerdma.errors`, if this is the first failure; else 0.
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
    """For information."""
    return Finding(subject, Verdict.NOTE, found, step)


def warn(subject: str, found: str, step: str) -> Finding:
    """Works, but not as well as it could."""
    return Finding(subject, Verdict.WARN, found, step)


def fail(subject: str, found: str, step: str, kind: type[PeerdmaError] = PeerdmaError) -> Finding:
    """Does not work; `kind` is the class of error that a program would get."""
    return Finding(subject, Verdict.FAIL, found, step, kind.exit_code)


class System:
    """System files below `root`: those of this machine, or a copy of another's.

    A file that cannot be read counts as missing.
    """

    def __init__(self, root: str | os.PathLike[str] = "/"):
        self.root: Path = Path(root)

    @property
    def here(self) -> bool:
        """Whether these are the files of the machine that this runs on."""
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
        """The number in a file, decimal or with 0x in front; None if there is none."""
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
        """Where a symbolic link leads, resolved; None if nowhere."""
        path = self.path(link)
        return path.resolve() if path.exists() else None

    def may_open(self, name: str) -> bool:
        """Whether this user may read and write a file."""
        return os.access(self.path(name), os.R_OK | os.W_OK)

    @property
    def kernel(self) -> str:
        """The kernel's release; "" if unknown."""
        return self.text("proc/sys/kernel/osrelease") or ""

    def module(self, name: str) -> bool:
        """Whether a kernel module is loaded, or built in."""
        return self.exists(f"sys/module/{name}")

    def installed(self, name: str) -> bool:
        """Whether a module is installed for the running kernel."""
        return f"/{name}.ko" in (self.text(f"lib/modules/{self.kernel}/modules.dep") or "")

    @property
    def nodes(self) -> list[str]:
        """Paths of the boards' device nodes."""
        # picoevb0 is another name of picoevb.
        found = (n for n in self.names("dev") if re.fullmatch(r"picoevb([1-9]\d*)?", n))
        return [f"/dev/{name}" for name in found]

    @property
    def secure_boot(self) -> bool:
        """Whether Secure Boot is on, so that the kernel loads only signed modules."""
        for name in self.names("sys/firmware/efi/efivars"):
            if name.startswith("SecureBoot-"):
                # Four bytes of attributes come before the value.
                return (self.data(f"sys/firmware/efi/efivars/{name}") or b"")[4:5] == b"\1"
        return False

    @property
    def dkms_certificate(self) -> str:
        """Where DKMS, as this distribution has it, keeps the certificate that it signs with."""
        ubuntu = "ID=ubuntu" in (self.text("etc/os-release") or "").splitlines()
        return f"/var/lib/{'shim-signed/mok/MOK.der' if ubuntu else 'dkms/mok.pub'}"

    @property
    def tegra(self) -> str:
        """Which Tegra this is, for example ``"tegra234"``; "" on other machines."""
        compatible = (self.data("proc/device-tree/compatible") or b"").split(b"\0")
        names = (name.decode(errors="replace") for name in compatible)
        return next((n[7:] for n in names if n.startswith("nvidia,tegra")), "")
