# SPDX-License-Identifier: BSD-2-Clause
"""Guests: commands, the kernel's log, what is in them, and that faults are seen."""

from __future__ import annotations

import re

import pytest

from sim.system import Guest, GuestError, KernelComplaint
from sim.system.board import ROOT
from sim.system.errors import Overdue

pytestmark = pytest.mark.system
GUEST = {"configuration": "strict", "load": False}

#: Where nothing is: the IOMMU maps addresses from the top of 32 bits downwards.
NOWHERE = 0x1234_5000
#: Has the board fetch a descriptor from there, without a driver, until the kernel tells a fault.
STRAY = f"""
import mmap, os
from pathlib import Path
from peerdma.regs import CHANNEL, SGDMA
device = next(p for p in Path("/sys/bus/pci/devices").iterdir()
              if (p / "vendor").read_text() == "0x10ee\\n")
(device / "enable").write_text("1")
with (device / "config").open("r+b", buffering=0) as config:
    config.seek(4)
    config.write((6).to_bytes(2, "little"))
log = os.open("/dev/kmsg", os.O_RDONLY)
os.lseek(log, 0, os.SEEK_END)
with (device / "resource1").open("r+b") as file, mmap.mmap(file.fileno(), 65536) as bar:
    def write(register, value):
        memoryview(bar).cast("I")[register // 4] = value
    write(SGDMA.address("descriptor_lo"), {NOWHERE})
    write(SGDMA.address("descriptor_hi"), 0)
    write(CHANNEL.address("control"), 1)
    while b"fault addr" not in os.read(log, 8192):
        pass
    write(CHANNEL.address("control"), 0)
(device / "enable").write_text("0")
"""


def test_a_command_ends_with_its_status_and_what_it_said(guest: Guest):
    assert guest.run("echo one; echo two >&2; exit 3") == (3, "one\ntwo\n")
    assert guest.run("kill -9 $$") == (-9, "")
    assert guest.run(["printf", "%s|", "a b", "$c"]) == (0, "a b|$c|")
    with pytest.raises(GuestError, match=r"false ended with exit status 1(?s:.*)All logs are in"):
        guest.check_run("false")


def test_much_output_and_many_commands_at_once(guest: Guest):
    running = [guest.start(f"seq {n} 50000; exit {n}") for n in range(1, 5)]
    for n, command in enumerate(running, start=1):
        status, text = command.wait()
        assert status == n
        assert text == "".join(f"{k}\n" for k in range(n, 50001))


def test_python_code_has_the_library(guest: Guest):
    found = guest.python("import peerdma; print(peerdma.__file__)")
    assert found == f"{guest.path(ROOT)}/host/peerdma/__init__.py\n"
    with pytest.raises(GuestError, match="ZeroDivisionError"):
        guest.python("1 / 0")
    with pytest.raises(GuestError, match=r"exit status 1(?s:.*)words"):
        guest.python("raise SystemExit('words')")


def test_a_command_that_takes_too_long_is_killed(guest: Guest):
    running = guest.start("echo begun; sleep 1000 & sleep 1000")
    running.wait_for("begun")
    with pytest.raises(GuestError, match=r"did not end within 1 s and was killed(?s:.*)begun"):
        guest.finish(running, timeout=1)
    # The kernel is not done with them when the last output has come.
    guest.check_run("while pgrep sleep; do :; done")
    running = guest.start("echo ready; sleep 1000")
    running.wait_for("ready")
    assert running.status is None
    running.kill()
    assert running.wait()[0] == -9
    with pytest.raises(Overdue):
        guest.start("sleep 1000").wait(0.1)


def test_the_host_is_there_but_cannot_be_written(guest: Guest):
    here = guest.path(ROOT / "README.md")
    assert guest.check_run(["cat", here]) == (ROOT / "README.md").read_text()
    status, text = guest.run(["touch", here])
    assert status != 0
    assert "Read-only file system" in text
    guest.check_run("echo more >$TMPDIR/file && rm $TMPDIR/file")


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: CPU: 0 PID: 1 at driver/main.c:1 probe+0x1/0x2 [peerdma]",
        "BUG: KASAN: slab-use-after-free in probe+0x1/0x2",
        "DMAR: [DMA Read NO_PASID] Request device [02:00.0] fault addr 0x1000",
        "INFO: task dd:123 blocked for more than 120 seconds.",
        "INFO: possible recursive locking detected",
        "DMA-API: peerdma 0000:02:00.0: device driver frees DMA memory with wrong function",
        "kmemleak: 1 new suspected memory leaks (see /sys/kernel/debug/kmemleak)",
        "pcieport 0000:00:05.0: AER: Corrected error message received from 0000:00:05.0",
        "pcieport 0000:00:05.0: AER: Corrected Error message received from 0000:00:05.0",  # 7.3
    ],
)
def test_what_the_kernel_complains_of_fails_a_test(guest: Guest, line: str):
    with pytest.raises(KernelComplaint, match=re.escape(line)):
        guest.run(f"echo '{line}' >/dev/kmsg")
    guest.run("true")  # said once
    with guest.expects(re.escape(line)):
        guest.run(f"echo '{line}' >/dev/kmsg")
    with pytest.raises(KernelComplaint), guest.expects("WARNING: another"):
        guest.run(f"echo 'WARNING: another' >/dev/kmsg; echo '{line}' >/dev/kmsg")


def test_what_was_announced_has_to_come(guest: Guest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sim.system.guest._ANNOUNCED", 0.1)
    with (
        pytest.raises(GuestError, match="the kernel did not log 'WARNING: a'"),
        guest.expects("WARNING: a"),
    ):
        guest.run("true")


def test_the_kernels_log_can_be_read_from_a_mark_on(guest: Guest):
    guest.run("echo before >/dev/kmsg")
    mark = guest.mark()
    guest.run("echo between >/dev/kmsg")
    (line,) = guest.messages(mark)
    assert line.endswith("between")
    late = guest.start("sleep 0.3; echo later >/dev/kmsg")
    assert guest.wait_for("lat.r", mark).endswith("later")
    late.wait()


def test_a_stray_access_of_the_board_faults(guest: Guest):
    with pytest.raises(KernelComplaint, match=f"fault addr {NOWHERE:#x}"):
        guest.python(STRAY)
    with guest.expects(r"DMAR: .*(fault addr|fault status)"):
        guest.python(STRAY)


def test_it_starts_again(guest: Guest):
    mark = guest.mark()
    guest.run("touch /run/was-here")
    guest.reboot()
    assert guest.run("ls /run/was-here")[0] != 0
    assert any("Linux version" in line for line in guest.messages(mark))
    assert guest.run("ls /dev/picoevb /dev/simgpu")[0] == 0


def test_a_board_is_pulled_and_plugged():
    with Guest("identity", board_options=["--no-msix"]) as guest:
        assert guest.board
        guest.unplug(guest.board)
        assert guest.run("ls /dev/picoevb*")[0] != 0
        guest.plug()
        guest.wait_for(r"peerdma 0000.*/dev/picoevb", since=len(guest.messages()) - 5)
        assert "time scale" in guest.check_run("peerdma info")
