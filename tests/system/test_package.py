# SPDX-License-Identifier: BSD-2-Clause
"""``make deb``: the driver is checked, installed, built, loaded and removed, and so are headers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import peerdma
from sim.system import Guest, stock
from tests.system.debian import Debian
from tools.kernel_headers import nv_p2p
from tools.release import LINTIAN

pytestmark = pytest.mark.system

DRIVER = Path(__file__).resolve().parents[2] / "driver"
PACKAGE = f"peerdma-dkms_{peerdma.__version__}_all.deb"
HEADERS = f"libpeerdma-dev_{peerdma.__version__}_all.deb"
EXAMPLE = DRIVER.parent / "host" / "examples" / "c" / "copy.c"
RULES = "/usr/lib/udev/rules.d/70-peerdma.rules"
_TRANSFERS = """
from tests.system.picoevb import *
source, destination = Buffer(3 * PAGE), Buffer(3 * PAGE, b"")
with Gpu() as gpu, Node() as node:
    node.h2c2h(source.address, destination.address, 3 * PAGE)
    assert destination[:] == source[:]
    handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
    assert node.query(handle).provider == b"nvp2p"
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, made by a user with a mail address."""
    folder = tmp_path_factory.mktemp("package")
    env = {**os.environ, "DEBFULLNAME": "A User", "DEBEMAIL": "user@debian.org"}
    subprocess.run(["sh", DRIVER / "deb.sh", folder], env=env, check=True)
    return folder / PACKAGE


def provide(folder: Path, release: str, header: str) -> None:
    """Puts the source of a release of NVIDIA's driver in place of the one that was there."""
    for former in folder.glob("usr/src/nvidia-*"):
        shutil.rmtree(former)
    source = folder / f"usr/src/nvidia-{release}/nvidia"
    source.mkdir(parents=True)
    (source / "nv.c").write_text('MODULE_LICENSE("Dual MIT/GPL");\n')
    (source / "nv-p2p.h").write_text(header)


def test_a_package_from_its_check_to_its_removal(package: Path, tmp_path: Path):
    kernel = stock("6.12")
    header = (nv_p2p("550") / "nv-p2p.h").read_text()
    other = re.sub(r"(struct nvidia_p2p_page_table\s*{)", r"\1 uint32_t more;", header)
    assert other != header
    with tempfile.TemporaryDirectory(prefix="peerdma-") as scratch:
        debian = Debian(Path(scratch, "debian"), kernel, package.parent)
        debian.run(f"{' '.join(LINTIAN)} /packages/{PACKAGE} /packages/{HEADERS}")
        before = debian.files()

        shutil.copy(EXAMPLE, package.parent)
        debian.run(f"dpkg -i --force-depends /packages/{HEADERS}")
        debian.run(f"gcc -std=gnu99 -Werror -pthread /packages/{EXAMPLE.name} -o /tmp/example")
        debian.run("rm /tmp/example && dpkg --purge libpeerdma-dev")

        provide(debian.folder, "535.1", other)
        debian.run(f"dpkg -i /packages/{PACKAGE}")
        assert "x86_64: installed" in debian.run("dkms status peerdma")
        debian.run(f"udevadm verify {RULES}")
        (former,) = debian.modules.glob("peerdma_nvp2p.ko*")
        shutil.copy(former, tmp_path)

        # NVIDIA's driver is updated, to that of the stand-in: what docs/driver.md says of that.
        provide(debian.folder, "550.1", header)
        debian.run("dpkg-reconfigure peerdma-dkms")
        files = {former.name: tmp_path / former.name}
        with Guest("identity", load=False, kernel=kernel, files=files) as guest:
            is_loaded(guest, debian, f"/run/guest/{former.name}")

        debian.run("dpkg -r peerdma-dkms")
        shutil.rmtree(debian.folder / "usr/src/nvidia-550.1")
        assert debian.files() ^ before == {"/var/lib/dkms/mok.key", "/var/lib/dkms/mok.pub"}


def is_loaded(guest: Guest, debian: Debian, former: str) -> None:
    """The modules as DKMS has installed them drive the board, and the rule gives it its group."""
    for command in (
        f"mount --rbind /dev {debian.folder}/dev && mount --rbind /sys {debian.folder}/sys",
        f"mount --rbind /proc {debian.folder}/proc && mount -t tmpfs run {debian.folder}/run",
        debian.chroot("/usr/lib/systemd/systemd-udevd --daemon"),
    ):
        guest.check_run(command)
    guest.load("simgpu")
    guest.check_run(debian.chroot("modprobe peerdma && udevadm settle"))
    stat = debian.chroot("stat -Lc '%A %U %G' /dev/picoevb0")
    assert guest.check_run(stat) == "crw-rw---- root video\n"
    guest.python(_TRANSFERS)

    since = guest.mark()
    guest.check_run(debian.chroot("modprobe -r peerdma_nvp2p"))
    assert guest.run(f"insmod {former}")[0] != 0
    guest.wait_for("peerdma_nvp2p: disagrees about version of symbol nvidia_p2p_", since)
