# SPDX-License-Identifier: BSD-2-Clause
"""What went wrong with a launch queue, or a ticket of it, as errors."""

from __future__ import annotations

from ..errors import BoardLost, Cancelled, PeerdmaError, PinError, Timeout, TransferError
from ..regs import ErrorKind, LaunchStatus
from ..uapi import Reason
from .queue_memory import QueueMemory

__all__ = ["failure", "require_good", "require_running"]

#: What is raised when a queue has ended, if it is no TransferError.
_KINDS: dict[Reason, type[PeerdmaError]] = {
    Reason.CANCELLED: PeerdmaError,
    Reason.UNPINNED: PinError,
    Reason.REVOKED: PinError,
    Reason.LOST: BoardLost,
}


def require_running(memory: QueueMemory) -> None:
    """Raises why a queue has ended, if it has."""
    ended = memory.ended
    if ended:
        kind = Timeout if memory.given_up else _KINDS.get(ended, TransferError)
        raise kind(f"the queue has ended: {memory.why()}")


def require_good(memory: QueueMemory) -> None:
    """Raises if a queue has ended, a ticket failed, or one was not submitted, as far as known."""
    require_running(memory)
    status = memory.first_error
    if status:
        raise TransferError(
            f"a ticket of the queue failed with {_status_name(status)}, and later ones are not "
            "started. queue.resume() starts tickets again",
            kind=status if status in set(ErrorKind) else None,
        )
    if missed := memory.missed():
        raise Timeout(
            f"{missed} copies of streams were not made, as there was no room in the queue in time, "
            "or were not done in time; the streams went on. Open a deeper queue, or allow more "
            "time; queue.resume() goes on with this one"
        )


def failure(memory: QueueMemory, ticket: int, found: int, status: int) -> TransferError:
    """The error of a ticket in whose place there is a record."""
    name = f"ticket {ticket}"
    if found != ticket:
        return TransferError(
            f"{name} may have failed: its record was written over by that of ticket {found}, "
            "and a ticket has failed. Wait for a ticket before so many others are submitted"
        )
    if status == LaunchStatus.FLUSHED and memory.ended and not memory.first_error:
        # By the kernel driver, at the end
        return Cancelled(f"{name} was not started: the queue has ended: {memory.why()}")
    undefined = "was aborted, and the content of its destination is undefined"
    # When a queue ends, that may be the first failure of a ticket, or there may be none.
    ends = memory.ended and memory.first_error in (0, LaunchStatus.ABORTED)
    if status == LaunchStatus.ABORTED and ends:
        return Cancelled(f"{name} {undefined}: the queue has ended: {memory.why()}")
    if status in (LaunchStatus.FLUSHED, LaunchStatus.ABORTED):
        what = "was not started" if status == LaunchStatus.FLUSHED else undefined
        return TransferError(
            f"{name} {what}, as an earlier one failed with "
            f"{_status_name(memory.first_error)}. queue.resume() starts tickets again"
        )
    if status == LaunchStatus.SLOT:
        return TransferError(
            f"{name} was not started: the pins of its plan were closed, or its entry names no "
            "plan of this queue"
        )
    return TransferError(
        f"{name} failed: {_status_name(status)}. Check that both memories are still there, "
        "then queue.resume()",
        kind=status,
    )


def _status_name(status: int) -> str:
    for kind in (LaunchStatus, ErrorKind):
        if status in set(kind):
            return kind(status).name.lower().replace("_", " ")
    return f"status {status}"
