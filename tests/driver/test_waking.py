# SPDX-License-Identifier: BSD-2-Clause
"""Nobody is woken with a board's lock held, or in a hard interrupt, but some threads of the driver.

Whoever is woken may have callbacks, as many as a program likes: of epoll instances, for example.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.driver.call_graph import Graph

DRIVER = Path(__file__).resolve().parents[2] / "driver"
#: What runs callbacks of others, or may: also by dropping the last reference.
_FORBIDDEN = re.compile(
    r"\b(_*wake_up\w*|complete_all|swake_up\w*|\w*eventfd_signal\w*|\w*fence_signal\w*|kill_fasync|"
    r"__?fput\w*|fput|eventfd_ctx_put|dma_buf_put|dma_fence_put|peerdma_job_put|peerdma_file_put|"
    r"tell_watchers)\("
)
#: Wakes threads of the driver: who waits for a surface.
_LEAVE = "peerdma_surface_leave"


def wakes(graph: Graph) -> list[str]:
    """What wakes somebody with the lock held, or in a hard interrupt: function and call."""
    parts = graph.locked()
    return sorted(
        f"{name}: {call}"
        for name, part in parts.items()
        for call in _FORBIDDEN.findall(part)
        if name != _LEAVE
    )


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph(DRIVER)


def test_nobody_is_woken_with_the_lock_held(graph: Graph):
    assert wakes(graph) == []


def test_what_has_the_lock_is_found(graph: Graph):
    """From interrupts, requests and work items, through calls to upper layers and headers."""
    found = graph.locked()
    expected = {
        "irq_engine_handler",
        "irq_board_handler",
        "job_deliver",
        "frame_ring_tell",
        "stop_poll",
    }
    expected |= {
        "peerdma_job_end",
        "peerdma_surface_leave",
        "peerdma_write",
        "launch_queue_end_slot",
    }
    expected |= {"peerdma_stop_bury", "submit_check"}
    assert expected <= found.keys()
    assert not {"tell_work", "peerdma_job_told", "job_release", "pages_put"} & found.keys()
    assert "usleep_range" not in "".join(found.values())


def test_few_threads_wait_for_a_surface(graph: Graph):
    """One that unpins it, which is the one that takes its handle, and a work item."""
    found = [
        name
        for name, body in graph.bodies().items()
        if re.search(r"\bwait_event\w*\(surface->idle,", body)
    ]
    assert sorted(found) == ["peerdma_release_unpin", "release_revoke_work"]


@pytest.mark.parametrize(
    ("file", "function", "call"),
    [
        ("job.c", "job_deliver", "compat_eventfd_signal(job->eventfd);"),
        ("job.c", "job_deliver", "peerdma_fence_signal(job, 0);"),
        ("job.c", "peerdma_job_end", "complete_all(&job->finished);"),
        ("frame_ring.c", "frame_ring_tell", "wake_up_all(&ring->job->file->wait);"),
        ("irq.c", "irq_board_handler", "wake_up_interruptible(&board->idle);"),
        ("dispatch.c", "peerdma_dispatch_free", "wake_up_all(&job->file->board->idle);"),
        ("launch_queue.c", "launch_queue_end_slot", "peerdma_job_put(job);"),
        ("stop.c", "peerdma_stop_bury", "wake_up_poll(&board->idle, 0);"),
        ("engine.h", "peerdma_file_put", "wake_up(&file->wait);"),
    ],
)
def test_a_planted_wake_is_found(tmp_path: Path, file: str, function: str, call: str):
    shutil.copytree(DRIVER, tmp_path / "driver")
    (source,) = (tmp_path / "driver").glob(f"*/{file}")
    text, planted = re.subn(
        rf"(^\w[\w *]*\b{function}\([^;{{}}]*\)\n{{\n)",
        rf"\1\t{call}\n",
        source.read_text(),
        flags=re.M,
    )
    assert planted == 1
    if function == "peerdma_file_put":
        # Of a header: what calls it has the lock.
        stop = tmp_path / "driver/engine/stop.c"
        before = "\t\tpeerdma_tell_file(file);\n"
        assert stop.read_text().count(before) == 1
        stop.write_text(stop.read_text().replace(before, before + "\t\tpeerdma_file_put(file);\n"))
    source.write_text(text)
    found = wakes(Graph(tmp_path / "driver"))
    assert f"{function}: {call.partition('(')[0]}" in found
