# SPDX-License-Identifier: BSD-2-Clause
"""Syncs that are left out of a copy of the driver, or late: bounce buffers show each of them.

A driver that passes with bounce buffers, and makes the same calls without coherence
(test_arm64_not_coherent.py), leaves out none.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sim.system import Guest
from sim.system.board import ROOT
from sim.system.kernel import stock
from sim.system.modules import build

pytestmark = pytest.mark.system

_DECLARED = "unsigned int planted;\n"
_PARAMETER = f"{_DECLARED}module_param(planted, uint, 0644);\n"
#: By file: what takes the place of what. Bits of the parameter say which syncs are left out, 8 that
#: those of frames begin late.
_PLANTED = {
    "engine/dispatch.c": {
        "static unsigned int timeout_ms": f"{_PARAMETER}static unsigned int timeout_ms",
        "if (leg->surface->needs_sync)": (
            "if (leg->surface->needs_sync && !(planted & (engine->index == PEERDMA_C2H ? 2 : 1)))"
        ),
    },
    "jobs/job.c": {
        "static bool job_wants_sync": f"extern {_DECLARED}static bool job_wants_sync",
        "leg->surface->needs_sync);": "leg->surface->needs_sync && !(planted & 4));",
    },
    "engine/frame_ring.c": {
        "#include <linux/math64.h>": (
            f"#include <linux/delay.h>\n#include <linux/math64.h>\nextern {_DECLARED}"
        ),
        "\tu64 filled;\n\n\tspin_lock_irq": (
            "\tu64 filled;\n\n\tif (planted & 8)\n\t\tmsleep(1000);\n\tspin_lock_irq"
        ),
    },
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """A guest whose DMA goes through bounce buffers, with a driver that may leave syncs out."""
    kernel = stock("6.12")
    folder = tmp_path_factory.mktemp("driver") / "driver"
    shutil.copytree(ROOT / "driver", folder, ignore=shutil.ignore_patterns("*.o", "*.ko", ".*"))
    for name, changes in _PLANTED.items():
        text = Path(folder, name).read_text()
        for old, new in changes.items():
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        Path(folder, name).write_text(text)
    files = {"planted.ko": build(kernel, folder)["peerdma"]}
    boards = [["--user", "pattern"]]
    with Guest("bounce", kernel=kernel, load=False, files=files, further_boards=boards) as guest:
        guest.check_run("insmod /run/guest/planted.ko")
        yield guest


@pytest.mark.parametrize(
    ("bit", "check"),
    [
        (1, "test_a_copy_of_what_the_copy_before_it_writes()"),  # before the board reads
        (2, "test_what_is_cancelled_leaves_the_programs_bytes(3)"),  # before it writes
        (4, "test_copies_of_any_place_and_length()"),  # after that
    ],
)
def test_a_sync_that_is_left_out_is_found(planted: Guest, bit: int, check: str):
    """By the bytes, and by the calls."""
    planted.python(f"""
        from tests.system import test_driver_bounce as bounce
        from tests.system.picoevb import setting

        for check in (lambda: bounce.{check}, bounce.test_what_is_synchronized):
            check()
            with setting("peerdma", "planted", {bit}):
                try:
                    check()
                except AssertionError:
                    continue
            raise AssertionError("nothing was found")
    """)


def test_frames_are_told_once_though_their_sync_is_late(planted: Guest):
    """By then more are filled, for which it is asked again."""
    planted.python("""
        import select

        from tests.system.picoevb import Node, setting
        from tests.system.rings import SENSOR, SIZE, Ring, source

        with setting("peerdma", "planted", 8), source(SIZE, 9), Node(SENSOR) as node:
            ring = Ring(node, 3, seed=9)
            ring.wait(3)
            assert not select.select([node.fd], [], [], 3)[0]
            ring.stop()
    """)
