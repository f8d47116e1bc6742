# SPDX-License-Identifier: BSD-2-Clause
"""Guests that fail: each ends with a message and its logs, and never hangs."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.system import CONFIGURATIONS, BootError, Guest, GuestError, configurations, demo
from sim.system import guest as guest_module
from sim.system.board import ROOT
from tests.system import conftest

pytestmark = pytest.mark.system


@contextlib.contextmanager
def fails(pattern: str, **settings) -> Iterator[Guest]:
    """That what is done with a guest ends with a message, which names the logs."""
    settings = {"board_options": None, "load": False, **settings}
    with (
        pytest.raises(GuestError, match=pattern) as failure,
        Guest("identity", **settings) as guest,
    ):
        yield guest
    assert console(str(failure.value))


def console(message: str) -> str:
    """The kernel's log, where an error message says that it is."""
    found = re.search(r"logs are in (.+)|(?:[Ll]og is|said is in) (.+)/[^/]+$", message)
    assert found, message
    return Path(found[1] or found[2], "console.log").read_text()


def test_the_kernel_panics():
    with fails("kernel panicked: .*sysrq triggered crash") as guest:
        guest.run("echo c >/proc/sysrq-trigger")


def test_the_kernel_panics_before_it_has_started():
    """The message has all that the kernel says of it, not the end only."""
    said = r"panicked: .*Unable to mount root(?s:.*)CPU: (?s:.*)Call Trace:(?s:.*)end Kernel panic"
    with pytest.raises(BootError, match=said):
        Guest("identity", board_options=None, append="rdinit=/none")


@pytest.mark.parametrize("panics", [1, 2])
def test_tests_boot_once_more_after_such_a_panic(panics, monkeypatch: pytest.MonkeyPatch):
    booted = []

    def guest(**settings):
        booted.append(settings)
        if len(booted) <= panics:
            raise BootError("the guest's kernel panicked")

    monkeypatch.setattr(conftest, "Guest", guest)
    monkeypatch.delenv("PEERDMA_KERNEL", raising=False)
    again = pytest.raises(BootError) if panics == 2 else contextlib.nullcontext()
    with pytest.warns(UserWarning, match="booted again: .* panicked"), again:
        conftest._boot({"configuration": "identity"})
    assert booted == [{"configuration": "identity"}] * 2


def test_qemu_dies():
    with fails("QEMU ended with exit status -9") as guest:
        running = guest.start("sleep 1000")
        os.kill(guest.qemu, signal.SIGKILL)
        guest.finish(running)


def test_the_guest_starts_again_by_itself():
    with fails("rebooted by itself") as guest:
        guest.run("sleep 1; echo b >/proc/sysrq-trigger; sleep 1000")


def test_logs_that_were_named_stay():
    """Also when a test has caught the error, or the guest is one that others go on with."""
    with Guest("identity", board_options=None, load=False) as guest:
        with pytest.raises(GuestError) as failure:
            guest.run("echo 'BUG: a test of the log' >/dev/kmsg")
        guest.check_run("true")
    assert "BUG: a test of the log" in console(str(failure.value))
    with Guest("identity", board_options=None, load=False) as guest:
        guest.check_run("true")
    assert not guest.logs.exists()


def test_a_module_cannot_be_loaded():
    with fails(r"insmod .* ended with exit status(?s:.*)File exists") as guest:
        guest.load("peerdma")
        guest.load("peerdma")


def test_a_board_that_ends_badly_is_told():
    with fails("board-0 ended with exit status -9", board_options=()) as guest:
        assert guest.board
        os.kill(guest.board.pid, signal.SIGKILL)


def test_the_guest_does_not_start(monkeypatch: pytest.MonkeyPatch):
    wait = Guest._wait_for_boot

    def wait_in_vain(guest: Guest) -> None:
        # For QEMU itself, which has started by now, the limit was the usual one.
        monkeypatch.setattr(guest_module, "_BOOT", 1.0)
        wait(guest)

    monkeypatch.setattr(Guest, "_wait_for_boot", wait_in_vain)
    with pytest.raises(GuestError, match=r"the guest did not start within 1 s(?s:.*)logs are in"):
        Guest("identity", board_options=None)


def test_qemu_does_not_start(monkeypatch: pytest.MonkeyPatch):
    broken = dataclasses.replace(CONFIGURATIONS["identity"], machine=("-machine", "none-such"))
    monkeypatch.setitem(configurations.CONFIGURATIONS, "identity", broken)
    with pytest.raises(GuestError, match=r"QEMU ended with exit status 1(?s:.*)none-such"):
        Guest("identity", board_options=None)


def test_the_root_cannot_be_mounted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sim.system.machine._MODULES", ("virtio_pci",))
    with pytest.raises(GuestError, match="guest: cannot mount the root") as failure:
        Guest("identity", board_options=None)
    assert "cannot mount" in console(str(failure.value))


def test_the_board_does_not_start():
    with pytest.raises(GuestError, match=r"did not start: (?s:.*)there is no user block 'nothing'"):
        Guest("identity", board_options=["--user", "nothing"])


def test_the_board_dies_and_another_is_plugged_in():
    with Guest("identity") as guest:
        assert guest.board
        guest.board.kill()
        status, text = guest.run(["python3", guest.path(ROOT / "host/demo.py"), "--size", "16x16"])
        assert status == 4, text
        mark = guest.mark()
        guest.plug(["--no-msix"])
        guest.wait_for("/dev/picoevb1: ", mark)
        guest.check_run("peerdma info --board /dev/picoevb1")


def test_the_board_hangs_and_goes_on():
    with Guest("identity") as guest:
        assert guest.board
        guest.board.freeze()
        # A read of a register waits, and with it the processor that makes it.
        reading = guest.start("peerdma info")
        guest.check_run("sleep 1")
        assert reading.status is None
        guest.board.thaw()
        assert reading.wait()[0] == 0


def test_the_demos_status_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(demo, "_NODES", {"that is missing": "/dev/picoevb7"})
    assert demo.main(["identity"]) == 3
