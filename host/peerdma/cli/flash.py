# SPDX-License-Identifier: BSD-2-Clause
"""``peerdma flash``: loads an FPGA image into a PicoEVB over its USB port, with openFPGALoader.

First into the FPGA's configuration memory, where it lasts until power is lost; then, on request,
into the flash that the FPGA boots from, after saving the flash's content.
"""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import BoardNotFound, PeerdmaError, Timeout, UnsupportedError, VerifyError

__all__ = ["FLASH_BYTES", "PART", "Programmer", "image_part"]

#: Part of the board's FPGA, as an image's header names it.
PART = "xc7a50tcsg325"
#: JTAG IDCODE of that die; the highest four bits are its revision.
_IDCODE, _IDCODE_MASK = 0x0362_C093, 0x0FFF_FFFF
#: The board's flash: S25FL132K.
FLASH_BYTES = 4 << 20

_PROGRAM = "openFPGALoader"
#: USB bridge FT230X, bit by bit: TDI, TDO, TCK and TMS are at D1, D2, D0 and D3.
_CABLE = ("--cable", "ft231X", "--pins", "RXD:RTS:TXD:CTS")
#: openFPGALoader accesses the flash through a bridge design, of which it has none for this package.
#: The one for the same die in another package drives the same pads: configuration pins belong to
#: the die (Project X-Ray's database: D00 to D03 and FCS_B are IOB_X0Y48, Y47, Y46, Y45 and Y38 in
#: both).
_BRIDGE = ("--fpga-part", "xc7a50tcsg324")

#: Time limit of each step, in seconds: a bit-banging cable takes minutes per megabyte.
_DETECT_SECONDS, _LOAD_SECONDS, _FLASH_SECONDS = 60, 900, 3600


def image_part(image: Path) -> str:
    """The part that a `.bit` file is for, without speed grade.

    Raises
    ------
    UnsupportedError
        If the file is no `.bit` file.
    """
    data = image.read_bytes()[:512]
    # Field "a" is the design, "b" the part: a letter, a length of two bytes, text, a zero.
    start = data.find(b"a")
    if data[:2] == b"\x00\x09" and start > 0:
        for letter in b"ab":
            if data[start : start + 1] != bytes([letter]):
                break
            (length,) = struct.unpack_from(">H", data, start + 1)
            text = data[start + 3 : start + 3 + length].rstrip(b"\0").decode("ascii", "replace")
            start += 3 + length
            if letter == ord("b"):
                return text.lower().partition("-")[0]
    raise UnsupportedError(
        f"{image} is not an FPGA image: give a .bit file, which `make bitstream` writes"
    )


class Programmer:
    """openFPGALoader with this board's cable.

    Parameters
    ----------
    say : callable
        Called with a line of text for each step.

    Raises
    ------
    UnsupportedError
        If openFPGALoader is not installed.
    """

    def __init__(self, say: Callable[[str], None]):
        program = shutil.which(_PROGRAM)
        if program is None:
            raise UnsupportedError(
                f"{_PROGRAM} was not found: install it (Debian and Ubuntu: apt-get install "
                "openfpgaloader), and try again"
            )
        self._program, self._say = program, say

    def _run(self, what: str, arguments: Sequence[str], seconds: float) -> str:
        self._say(what)
        command = [self._program, *_CABLE, *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise Timeout(
                f"{what}: {_PROGRAM} did not finish within {seconds:.0f} s. Unplug the board's USB "
                "cable and plug it in again; use a port of the machine itself, not of a hub"
            ) from None
        said = done.stdout + done.stderr
        if done.returncode:
            raise _cause(what, said)
        return said

    def detect(self) -> None:
        """Checks that the FPGA of this board answers.

        Raises
        ------
        BoardNotFound
            If no cable is there, or nothing or something else answers.
        """
        said = self._run("looking for the board", ["--detect"], _DETECT_SECONDS)
        found = [int(text, 16) for text in re.findall(r"idcode\s+(0x[0-9a-fA-F]+)", said)]
        if not found:
            raise BoardNotFound(
                "the USB bridge is there, but no FPGA answers behind it: is the card in its slot, "
                "and is the slot powered? The USB port does not power the FPGA"
            )
        if [idcode & _IDCODE_MASK for idcode in found] != [_IDCODE]:
            raise BoardNotFound(
                f"found JTAG devices {', '.join(f'{idcode:#010x}' for idcode in found)}, but a "
                f"PicoEVB has only {_IDCODE:#010x} (XC7A50T): is another board plugged in?"
            )

    def load(self, image: Path) -> None:
        """Loads an image into the FPGA, where it lasts until power is lost or another is loaded.

        Raises
        ------
        UnsupportedError
            If it is an image for another part.
        """
        _check(image)
        self._run(f"loading {image} into the FPGA", ["--write-sram", str(image)], _LOAD_SECONDS)

    def save(self, backup: Path) -> None:
        """Saves the flash's content to a file.

        Raises
        ------
        PeerdmaError
            If `backup` exists, or what is read is too short.
        """
        if backup.exists():
            raise PeerdmaError(f"{backup} exists: name another file for the old image (--backup)")
        arguments = [*_BRIDGE, "--dump-flash", "--file-size", str(FLASH_BYTES), str(backup)]
        self._run(f"saving the flash to {backup}", arguments, _FLASH_SECONDS)
        size = backup.stat().st_size if backup.exists() else 0
        if size != FLASH_BYTES:
            raise PeerdmaError(
                f"the old image was not saved: {backup} has {size} bytes of {FLASH_BYTES}. Nothing "
                "was written to the flash"
            )

    def write(self, image: Path) -> None:
        """Writes an image, or a backup, to the flash, reads it back, and has the FPGA load it.

        Raises
        ------
        VerifyError
            If what is read back differs.
        """
        kind = ["--file-type", "raw"] if image.suffix == ".bin" else []
        arguments = [*_BRIDGE, "--write-flash", "--verify", *kind, str(image)]
        self._run(f"writing {image} to the flash", arguments, _FLASH_SECONDS)

    def program(self, image: Path, *, permanent: bool, backup: Path | None = None) -> None:
        """Finds the board, loads the image, and with `permanent` saves and writes the flash.

        A `.bin` file is a backup to restore: it goes to the flash only.
        """
        restore = image.suffix == ".bin"
        if restore and not permanent:
            raise UnsupportedError(f"{image} is a backup of the flash: restore it with --permanent")
        _check(image)
        self.detect()
        if not restore:
            self.load(image)
        if permanent:
            self.save(backup or Path(time.strftime("picoevb-flash-%Y%m%d-%H%M%S.bin")))
            self.write(image)


def _check(image: Path) -> None:
    """UnsupportedError for a file that is no image for this board, before the board is touched."""
    if image.suffix == ".bin":
        size = image.stat().st_size
        if size > FLASH_BYTES:
            raise UnsupportedError(f"{image} has {size} bytes, the flash {FLASH_BYTES}")
        return
    part = image_part(image)
    if part != PART:
        raise UnsupportedError(f"{image} is for {part}, the board has {PART}")


#: Pattern of openFPGALoader's output, class of the error that it means, and what to do.
_CAUSES: tuple[tuple[str, type[PeerdmaError], str], ...] = (
    (
        r"device not found",
        BoardNotFound,
        "no PicoEVB on USB (0403:6015): connect the micro-USB port of the card",
    ),
    (
        r"(?i)permission|access denied|unable to open ftdi device: -[48]\b",
        BoardNotFound,
        "the USB bridge cannot be opened: run this as root, or install openFPGALoader's udev "
        "rules; end any program that has it open (a serial console, xvcd)",
    ),
    (
        r"(?i)usb bulk (write|read) failed|usb_open",
        BoardNotFound,
        "the USB bridge went away: plug the cable in again",
    ),
    (
        r"(?i)verif\w* (failed|error)|verify.*fail",
        VerifyError,
        "the flash's content differs from the image: write it again, or restore the backup",
    ),
    (
        r"(?i)JTAG init failed|no device|empty",
        BoardNotFound,
        "no FPGA answers behind the USB bridge: is the card in its slot, and is the slot powered?",
    ),
)


def _cause(what: str, said: str) -> PeerdmaError:
    """The error that openFPGALoader's output means."""
    last = " / ".join(line for line in said.strip().splitlines()[-2:])
    for pattern, error, advice in _CAUSES:
        if re.search(pattern, said):
            text = f"{what}: {advice} ({_PROGRAM}: {last})"
            if error is VerifyError:
                return VerifyError(text, offset=0, expected=0, found=0, wrong=0)
            return error(text)
    return PeerdmaError(f"{what}: {_PROGRAM} failed: {last}")
