# SPDX-License-Identifier: BSD-2-Clause
"""Guests that fail: each ends with a message and its logs, and never hangs."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
from pathlib import Path

import pytest

from sim.system import LANES, Guest, GuestError, demo, lanes
from sim.system import guest as guest_module

pytestmark = pytest.mark.system
LOGS = re.compile(r"All logs are in (\S+)")


def logs(failure: pytest.ExceptionInfo[GuestError]) -> Path:
    """The logs that the message names, which are there."""
    found = LOGS.search(str(failure.value))
    assert found, failure.value
    folder = Path(found[1])
    assert (folder / "console.log").stat().st_size
    return folder


def test_the_kernel_panics():
    with pytest.raises(GuestError, match="kernel panicked: .*sysrq triggered crash") as failure:
        with Guest("identity", board_options=None) as guest:
            guest.run("echo c >/proc/sysrq-trigger")
    assert "Call Trace" in (logs(failure) / "console.log").read_text()


def test_qemu_dies():
    with pytest.raises(GuestError, match="QEMU ended with exit status -9") as failure:
        with Guest("identity", board_options=None) as guest:
            running = guest.start("sleep 1000")
            os.kill(guest.qemu, signal.SIGKILL)
            guest.finish(running)
    logs(failure)


def test_the_guest_starts_again_by_itself():
    with pytest.raises(GuestError, match="started again by itself") as failure:
        with Guest("identity", board_options=None) as guest:
            guest.run("sleep 1; echo b >/proc/sysrq-trigger; sleep 1000")
    logs(failure)


def test_the_guest_does_not_start(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guest_module, "_BOOT", 1.0)
    with pytest.raises(GuestError, match="the guest did not start within 1 s") as failure:
        Guest("identity", board_options=None)
    assert LOGS.search(str(failure.value))


def test_qemu_does_not_start(monkeypatch: pytest.MonkeyPatch):
    broken = dataclasses.replace(LANES["identity"], machine=("-machine", "none-such"))
    monkeypatch.setitem(lanes.LANES, "identity", broken)
    with pytest.raises(GuestError, match=r"QEMU ended with exit status 1.*none-such"):
        Guest("identity", board_options=None)


def test_the_root_cannot_be_mounted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sim.system.machine._MODULES", ("virtio_pci",))
    with pytest.raises(GuestError, match="guest: cannot mount the root") as failure:
        Guest("identity", board_options=None)
    logs(failure)


def test_the_board_does_not_start():
    with pytest.raises(GuestError, match=r"did not start: (?s:.*)there is no user block 'nothing'"):
        Guest("identity", board_options=["--user", "nothing"])


def test_a_module_cannot_be_loaded():
    with pytest.raises(GuestError, match=r"insmod .* ended with exit status") as failure:
        with Guest("identity", board_options=None) as guest:
            guest.load("peerdma")  # a second time
    assert "File exists" in str(failure.value)


def test_the_board_dies():
    with Guest("identity") as guest:
        assert guest.board
        guest.board.kill()
        status, text = guest.run("peerdma info")
        assert status != 0
        assert text
        # The guest lives, and finds a board again that is plugged in.
        guest.check_run("true")


def test_the_board_hangs_and_goes_on():
    with Guest("identity") as guest:
        assert guest.board
        guest.board.freeze()
        # A read of a register waits, and with it the processor that makes it.
        running = guest.start("head -c 4 /sys/bus/pci/devices/*/config >/dev/null; echo done")
        guest.board.thaw()
        assert running.wait()[1] == "done\n"
        assert guest.run("peerdma info")[0] == 0


def test_a_board_that_ends_badly_is_told():
    with pytest.raises(GuestError, match=r"board-0 ended with exit status -9"):
        with Guest("identity") as guest:
            os.kill(guest.boards[0].pid, signal.SIGKILL)


def test_the_demos_status_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch):
    # No terminal, no board: the first demo fails.
    monkeypatch.setattr(demo, "_NODES", {"that is missing": "/dev/picoevb7"})
    assert demo.main(["identity"]) == 3
