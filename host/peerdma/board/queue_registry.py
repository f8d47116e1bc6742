# SPDX-License-Identifier: BSD-2-Clause
"""The launch queues of a board."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from ..arguments import wrong_type
from ..errors import PeerdmaError
from .backend import Backend
from .job_runner import JobRunner
from .pin import Pin, PinTable
from .plan import Plan
from .queue import Queue
from .queue_memory import DEPTHS

__all__ = ["QueueRegistry"]


class QueueRegistry:
    """The launch queues of a board.

    Parameters
    ----------
    jobs : JobRunner
    backend : Backend
    pinning : PinTable
        Makes room for the memory of queues.
    """

    def __init__(self, jobs: JobRunner, backend: Backend, pinning: PinTable):
        self._jobs = jobs
        self._pinning = pinning
        self._backend = backend
        self._open: list[Queue] = []

    def open(self, plans: Sequence[Plan], depth: int, gpu: Any) -> Queue:
        """See `Board.queue`; the lock is held."""
        plans = list(plans)
        for plan in plans:
            if not isinstance(plan, Plan):
                raise wrong_type("a queue has plans", plan, "plan = board.prepare(src, dst)")
        if not plans:
            raise ValueError("a queue needs at least one plan: board.prepare(src, dst) makes one")
        if depth not in DEPTHS:
            raise ValueError(f"a queue is {', '.join(map(str, DEPTHS))} deep, not {depth}")
        self._jobs.require_startable(*plans)
        for plan in plans:
            if plan._jobs is not self._jobs:
                raise ValueError("a plan was prepared on another board")
            if not plan.nbytes:
                raise ValueError("a plan of no bytes cannot be launched")
        device = getattr(gpu, "device", None)
        if gpu is None:
            memories = [pin.memory for plan in plans for pin in plan.pins]
            found = (getattr(memory, "cuda_device", None) for memory in memories)
            device = next(filter(None, found), None)
        self._open = [queue for queue in self._open if not queue.closed]
        queue = self._pinning.with_room(
            lambda: Queue(self._jobs, self._backend, plans, depth, device), 0
        )
        self._open.append(queue)
        return queue

    def require_no_receive(self) -> None:
        """PeerdmaError if an open queue has plans that receive. The lock is held."""
        if any(plan.record for queue in self._open for plan in queue.plans):
            raise PeerdmaError(
                "a launch queue with plans of prepare_receive takes the frames: close it first"
            )

    def settle(self, pin: Pin) -> None:
        """No queue uses a pin any more. The lock is held."""
        for queue in self._open:
            queue.drop(pin)

    def close(self) -> None:
        """Ends all, with the lock held; the threads may still run."""
        for queue in self._open:
            # A board that is gone uses no memory.
            with contextlib.suppress(PeerdmaError):
                queue.end()

    def join(self) -> None:
        """Waits for the end of the threads after `close`, for seconds; without the lock."""
        for queue in self._open:
            queue.join()
