# SPDX-License-Identifier: BSD-2-Clause
"""`peerdma flash`, with a program in openFPGALoader's place that says what that one says."""

from __future__ import annotations

import json
import shlex
import struct
import sys

import pytest

from peerdma.cli import flash
from peerdma.cli import main as cli
from peerdma.errors import BoardNotFound, PeerdmaError, Timeout, UnsupportedError, VerifyError

DETECTED = "index 0:\n\tidcode 0x362c093\n\tmanufacturer xilinx\n\tmodel  xc7a50t\n"

FAKE = """
import json, pathlib, sys, time
here = pathlib.Path(__file__).parent
arguments = sys.argv[1:]
with open(here / "calls", "a") as log:
    log.write(json.dumps(arguments) + "\\n")
answers = json.loads((here / "answers").read_text())
step = next((name for name in answers if name in arguments), None)
text, status, seconds, size = answers.get(step, ["", 0, 0, 0])
time.sleep(seconds)
if "--dump-flash" in arguments and size:
    pathlib.Path(arguments[-1]).write_bytes(bytes(size))
print(text)
sys.exit(status)
"""


def bit_file(path, part=b"xc7a50tcsg325"):
    head = bytes.fromhex("00090ff00ff00ff00ff0000001")
    for key, value in ((b"a", b"design;UserID=0XFFFFFFFF\0"), (b"b", part + b"\0")):
        head += key + struct.pack(">H", len(value)) + value
    path.write_bytes(head + bytes(100))
    return path


@pytest.fixture
def loader(tmp_path, monkeypatch):
    """A folder in PATH with the fake; `answers` there says what it does in each step."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "openFPGALoader"
    (folder / "fake.py").write_text(FAKE)
    # Not the interpreter after "#!": the kernel would end its path at a space.
    command = shlex.join([sys.executable, str(folder / "fake.py")])
    program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))

    def answer(**steps):
        given = {"detect": [DETECTED, 0, 0, 0], "dump-flash": ["", 0, 0, flash.FLASH_BYTES]}
        given |= {name.replace("_", "-"): value for name, value in steps.items()}
        (folder / "answers").write_text(json.dumps({f"--{k}": v for k, v in given.items()}))

    answer()
    return folder, answer


def calls(loader):
    """What was asked for, without the cable, which every call has."""
    found = [json.loads(line) for line in (loader[0] / "calls").read_text().splitlines()]
    for call in found:
        assert call[:4] == ["--cable", "ft231X", "--pins", "RXD:RTS:TXD:CTS"]
    return [call[4:] for call in found]


def program(image, **options):
    flash.Programmer(lambda line: None).program(image, **{"permanent": False, **options})


BRIDGE = ["--fpga-part", "xc7a50tcsg324"]


def test_loads_into_the_fpga_only(loader, tmp_path):
    image = bit_file(tmp_path / "a.bit")
    program(image)
    assert calls(loader) == [["--detect"], ["--write-sram", str(image)]]


def test_permanent_saves_before_it_writes(loader, tmp_path):
    image, backup = bit_file(tmp_path / "a.bit"), tmp_path / "old.bin"
    program(image, permanent=True, backup=backup)
    assert calls(loader) == [
        ["--detect"],
        ["--write-sram", str(image)],
        [*BRIDGE, "--dump-flash", "--file-size", str(4 << 20), str(backup)],
        [*BRIDGE, "--write-flash", "--verify", str(image)],
    ]
    assert backup.stat().st_size == 4 << 20


def test_restores_a_backup(loader, tmp_path):
    old = tmp_path / "old.bin"
    old.write_bytes(bytes(10))
    with pytest.raises(UnsupportedError, match="--permanent"):
        program(old)
    program(old, permanent=True, backup=tmp_path / "before.bin")
    assert calls(loader)[-1] == [
        *BRIDGE,
        "--write-flash",
        "--verify",
        "--file-type",
        "raw",
        str(old),
    ]


@pytest.mark.parametrize("size", [0, 100])
def test_writes_nothing_without_a_whole_backup(loader, tmp_path, size):
    loader[1](dump_flash=["", 0, 0, size])
    with pytest.raises(PeerdmaError, match=f"has {size} bytes of {4 << 20}. Nothing was written"):
        program(bit_file(tmp_path / "a.bit"), permanent=True, backup=tmp_path / "old.bin")
    assert not any("--write-flash" in call for call in calls(loader))


def test_keeps_an_earlier_backup(loader, tmp_path):
    backup = tmp_path / "old.bin"
    backup.write_bytes(b"mine")
    with pytest.raises(PeerdmaError, match="exists"):
        program(bit_file(tmp_path / "a.bit"), permanent=True, backup=backup)
    assert backup.read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("step", "said", "error", "advice"),
    [
        ("detect", "unable to open ftdi device: -3 (device not found)", BoardNotFound, "micro-USB"),
        ("detect", "unable to open ftdi device: -4 (usb_open() failed)", BoardNotFound, "as root"),
        ("detect", "JTAG init failed with: No device", BoardNotFound, "in its slot"),
        ("write-sram", "ftdi: usb bulk write failed", BoardNotFound, "plug the cable in again"),
        ("write-flash", "Verifying write: Verify failed", VerifyError, "write it again"),
        ("write-flash", "something else", PeerdmaError, "something else"),
    ],
)
def test_says_what_to_do(loader, tmp_path, step, said, error, advice):
    loader[1](**{step.replace("-", "_"): [said, 1, 0, 0]})
    with pytest.raises(error, match=advice) as caught:
        program(bit_file(tmp_path / "a.bit"), permanent=True, backup=tmp_path / "old.bin")
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("index 0:\n\tidcode 0x13631093\n", "found JTAG devices 0x13631093.*XC7A50T"),
        (DETECTED + DETECTED, "has only"),
        ("Jtag frequency : requested 6.00MHz", "no FPGA answers"),
    ],
)
def test_another_device(loader, tmp_path, said, message):
    loader[1](detect=[said, 0, 0, 0])
    with pytest.raises(BoardNotFound, match=message):
        program(bit_file(tmp_path / "a.bit"))
    assert calls(loader) == [["--detect"]]


def test_any_revision_of_the_die(loader, tmp_path):
    loader[1](detect=[DETECTED.replace("0x362c093", "0x1362c093"), 0, 0, 0])
    program(bit_file(tmp_path / "a.bit"))


def test_a_step_that_hangs(loader, tmp_path, monkeypatch):
    monkeypatch.setattr(flash, "_DETECT_SECONDS", 0.2)
    loader[1](detect=["", 0, 30, 0])
    with pytest.raises(Timeout, match="did not finish within"):
        program(bit_file(tmp_path / "a.bit"))


def test_an_image_of_another_part(loader, tmp_path):
    with pytest.raises(UnsupportedError, match=r"for xc7a35tcsg325, the board has xc7a50tcsg325"):
        program(bit_file(tmp_path / "a.bit", b"xc7a35tcsg325"))
    assert not (loader[0] / "calls").exists(), "the board was not touched"


def test_a_backup_that_is_none(loader, tmp_path):
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(flash.FLASH_BYTES + 1))
    with pytest.raises(UnsupportedError, match="has 4194305 bytes, the flash 4194304"):
        program(large, permanent=True)
    with pytest.raises(FileNotFoundError):
        program(tmp_path / "gone.bin", permanent=True)
    assert not (loader[0] / "calls").exists()


@pytest.mark.parametrize("content", [b"", b"PNG", b"\x00\x09" + bytes(600)])
def test_no_image(tmp_path, content):
    path = tmp_path / "a.bit"
    path.write_bytes(content)
    with pytest.raises(UnsupportedError, match="not an FPGA image"):
        flash.image_part(path)


def test_without_the_program(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedError, match="apt-get install openfpgaloader"):
        flash.Programmer(print)


def test_command(loader, tmp_path, capsys):
    image = bit_file(tmp_path / "a.bit")
    assert cli.main(["flash", str(image)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("done, until power is lost")
    backup = tmp_path / "b.bin"
    assert cli.main(["flash", str(image), "--permanent", "--backup", str(backup)]) == 0
    assert "shut down and switch on again" in capsys.readouterr().out
    loader[1](detect=["unable to open ftdi device: -3 (device not found)", 1, 0, 0])
    assert cli.main(["flash", str(image)]) == BoardNotFound.exit_code
    assert "micro-USB" in capsys.readouterr().err
    assert cli.main(["flash", str(tmp_path / "gone.bit")]) != 0
