# SPDX-License-Identifier: BSD-2-Clause
"""``make driver-install``: what it puts where, and what it says when something is missing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import peerdma
from peerdma.doctor.system import System
from tests.driver.call_graph import headers, sources

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "driver"
KERNEL = "6.12.0-test"
#: Programs that the script needs and that are what they are everywhere.
REAL = ("sh", "sed", "dirname", "rm", "mkdir", "cp", "tr", "ls", "cat", "uname", "grep", "make")


class Machine:
    """A machine with stand-ins for what would change the real one.

    Attributes
    ----------
    root : pathlib.Path
        Where the script installs to.
    """

    def __init__(self, tmp: Path):
        self.root = tmp / "root"
        self.programs = tmp / "programs"
        self.log = tmp / "log"
        self.log.touch()
        self.programs.mkdir()
        for name in REAL:
            (self.programs / name).symlink_to(shutil.which(name) or name)
        for name in ("dkms", "udevadm", "modprobe", "gcc"):
            self.program(name, f'echo "{name} $*" >>{self.log}')
        self.program("id", "echo 0")
        headers = self.root / "lib/modules" / KERNEL / "build"
        headers.mkdir(parents=True)
        (headers / "Makefile").touch()

    def program(self, name: str, script: str) -> None:
        (self.programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.programs / name).chmod(0o755)

    def install(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": str(self.programs), "DESTDIR": str(self.root), "KERNEL": KERNEL}
        return subprocess.run(
            ["/bin/sh", str(DRIVER / "install.sh"), *arguments],
            env={**env, "HOME": os.environ["HOME"]},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def version() -> str:
    return re.findall(r'^PACKAGE_VERSION="(.*)"$', (DRIVER / "dkms.conf").read_text(), re.M)[0]


def test_version_is_that_of_the_library():
    assert version() == peerdma.__version__


def test_installs_and_removes(machine: Machine):
    done = machine.install()
    assert done.returncode == 0, done.stderr
    assert "installed and loaded" in done.stdout
    source = machine.root / f"usr/src/peerdma-{version()}"
    wanted = {str(p.relative_to(DRIVER)) for p in [*sources(DRIVER), *headers(DRIVER)]}
    wanted -= {"compat_probes.h"}
    wanted |= {"conftest.sh", "Makefile", "dkms.conf", "symbols/nvidia.c", "symbols/Makefile"}
    assert {str(p.relative_to(source)) for p in source.rglob("*") if p.is_file()} == wanted
    rules = machine.root / "etc/udev/rules.d/70-peerdma.rules"
    assert 'GROUP="video"' in rules.read_text()
    calls = machine.log.read_text()
    assert f"dkms build peerdma/{version()} -k {KERNEL}\n" in calls
    assert calls.endswith("udevadm control --reload\nmodprobe peerdma\n")

    assert machine.install("remove").returncode == 0
    assert not source.exists()
    assert not rules.exists()


def test_dkms_starts_the_makefile_as_a_user_does():
    """It would give KERNELRELEASE to a command that begins with make."""
    script = f'kernelver={KERNEL}; . "{DRIVER}/dkms.conf"; echo "${{MAKE[0]/#make/changed}}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"'make' -j\d+ KDIR=/lib/modules/{KERNEL}/build\n", done.stdout)


@pytest.mark.parametrize("flags", ["", "w"], ids=["alone", "below make -C"])
def test_dkms_reads_the_modules_that_would_be_built(machine: Machine, monkeypatch, flags: str):
    monkeypatch.setenv("MAKEFLAGS", flags)
    assert machine.install().returncode == 0
    script = f'source_tree={machine.root}/usr/src kernelver={KERNEL}; . "{DRIVER}/dkms.conf"; '
    script += 'echo "${BUILT_MODULE_NAME[*]}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "peerdma"


@pytest.mark.parametrize(
    ("program", "script", "words"),
    [
        ("dkms", None, "missing: dkms. Debian, Ubuntu: apt-get install dkms"),
        ("id", "echo 1000", "only root can install a driver"),
        ("dkms", 'test "$1" != build', "the build failed: see /var/lib/dkms/peerdma/"),
        ("modprobe", "exit 1", "built, but the kernel does not load it: see dmesg"),
    ],
)
def test_says_what_is_missing(machine: Machine, program: str, script: str | None, words: str):
    if script is None:
        (machine.programs / program).unlink()
    else:
        machine.program(program, script)
    done = machine.install()
    assert done.returncode == 1
    assert words in done.stderr


def test_says_that_headers_are_missing(machine: Machine):
    shutil.rmtree(machine.root / "lib")
    done = machine.install()
    assert done.returncode == 1
    assert f"no headers of kernel {KERNEL}" in done.stderr


@pytest.mark.parametrize(
    ("system", "certificate"),
    [
        ("debian", "/var/lib/dkms/mok.pub"),
        ("ubuntu", "/var/lib/shim-signed/mok/MOK.der"),
        (None, "/var/lib/dkms/mok.pub"),
    ],
)
def test_secure_boot_prints_how_to_enroll_the_key(
    machine: Machine, system: str | None, certificate: str
):
    machine.program("modprobe", "exit 1")
    machine.program("mokutil", "echo SecureBoot enabled")
    if system:
        (machine.root / "etc").mkdir()
        (machine.root / "etc/os-release").write_text(f'NAME="x"\nID={system}\nVERSION_ID="13"\n')
    done = machine.install()
    assert done.returncode == 1
    assert f"mokutil --import {certificate} " in done.stdout
    assert certificate in (ROOT / "docs/driver.md").read_text()
    assert certificate in (DRIVER / "peerdma.4").read_text().replace("\\-", "-")
    assert System(machine.root).dkms_certificate == certificate


def test_secure_boot_names_the_key_of_the_machines_settings(machine: Machine):
    machine.program("modprobe", "exit 1")
    machine.program("mokutil", "echo SecureBoot enabled")
    (machine.root / "etc/dkms/framework.conf.d").mkdir(parents=True)
    (machine.root / "etc/dkms/framework.conf").write_text("# mok_certificate=/not/this\n")
    settings = machine.root / "etc/dkms/framework.conf.d/own.conf"
    settings.write_text('mok_signing_key="/own.key"\nmok_certificate="/own-$kernelver.pub"\n')
    assert f"mokutil --import /own-{KERNEL}.pub " in machine.install().stdout


def test_a_key_that_is_enrolled_is_not_to_be_enrolled(machine: Machine):
    machine.program("modprobe", "exit 1")
    answer = 'echo "SecureBoot enabled"; test "$1" != --test-key || echo "$2 is already enrolled"'
    machine.program("mokutil", answer)
    done = machine.install()
    assert "--import" not in done.stdout
    assert "built, but the kernel does not load it: see dmesg" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("remove",)])
def test_files_of_the_package_are_left_alone(machine: Machine, arguments: tuple[str, ...]):
    (machine.root / "var/lib/dpkg/info").mkdir(parents=True)
    (machine.root / "var/lib/dpkg/info/peerdma-dkms.list").touch()
    done = machine.install(*arguments)
    assert done.returncode == 1
    assert "the package peerdma-dkms is installed" in done.stderr
    assert machine.log.read_text() == ""


def test_the_man_page_has_all_requests_and_parameters():
    page = (DRIVER / "peerdma.4").read_text()
    interface = "".join(path.read_text() for path in DRIVER.glob("peerdma_*.h"))
    code = "".join(path.read_text() for path in sources(DRIVER))
    requests = set(re.findall(r"#define (PEERDMA_IOC_\w+)\s+_IO", interface))
    parameters = set(re.findall(r"^module_param\((\w+)", code, re.M))
    assert requests and requests == set(re.findall(r"PEERDMA_IOC_\w+", page))
    assert parameters and parameters == set(re.findall(r'^\.BR (\w+) " \(', page, re.M))


def test_the_guide_says_how_to_build_again_what_dkms_has_built():
    """For a kernel that it has built a module for, `dkms autoinstall` does nothing."""
    guide = (ROOT / "docs/driver.md").read_text()
    rows = re.findall(r"^\| (?:`disagrees|\*build it again).*$", guide, re.M)
    assert len(rows) == 2
    assert [row for row in rows if "driver/install.sh" not in row or "autoinstall" in row] == []
