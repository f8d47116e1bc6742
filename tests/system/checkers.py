# SPDX-License-Identifier: BSD-2-Clause
"""What the debug kernel finds: a module with a bug of each kind. Of ``make system-debug``."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.system import KernelComplaint
from sim.system.debug.guest import DebugGuest
from sim.system.debug.kernel import debug_kernel

PLANTED = Path(__file__).with_name("planted")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DebugGuest]:
    """A guest with a module that has a bug of each kind."""
    kernel = debug_kernel()
    folder = tmp_path_factory.mktemp("planted")
    for name in ("planted.c", "Makefile"):
        shutil.copy(PLANTED / name, folder)
    done = subprocess.run(
        ["make", *kernel.headers.options, f"M={folder}", "-C", kernel.headers.build, "modules"],
        env=kernel.headers.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    files = {"planted.ko": folder / "planted.ko"}
    with DebugGuest(files=files, load=False) as guest:
        yield guest


# In this order: some reports turn lockdep off.
@pytest.mark.parametrize(
    ("bug", "report"),
    [
        ("wrong-unmap", r"DMA-API: .*frees DMA memory with different size"),
        ("wide-shift", r"UBSAN: shift-out-of-bounds in .*planted"),
        ("leak", r"leaked memory:\n.*\(size 64\):\n +comm .insmod"),
        ("sleep-with-lock", r"BUG: sleeping function called from invalid context|scheduling while"),
        ("two-orders", r"WARNING: possible circular locking dependency detected"),
        ("use-after-free", r"BUG: KASAN: slab-use-after-free in .*planted"),
    ],
)
def test_the_kernel_finds(planted: DebugGuest, bug: str, report: str):
    def meet() -> None:
        planted.check_run(f"insmod /run/guest/planted.ko bug={bug} vendor=0x10ee device=0x7021")
        planted.check_leaks()

    with pytest.raises(KernelComplaint, match=report):
        meet()
    planted.check_run("rmmod planted")
