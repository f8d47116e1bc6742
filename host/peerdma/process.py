# SPDX-License-Identifier: BSD-2-Clause
"""What belongs to one process, and what interrupts may not break.

A child that was forked has copies of its parent's objects, without the threads that serve them, and
descriptors of the same files. It must neither use nor end what is its parent's: all that is held
against that is here. Objects that have descriptors or threads are `watched`; `disown` is called for
each of them in a child.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

__all__ = [
    "AtExit",
    "OneProcess",
    "Watched",
    "forked",
    "here",
    "keep",
    "own",
    "watched",
]


def forked(what: str = "board") -> str:
    """Why a child cannot use what its parent opened."""
    return f"this {what} was opened before fork(): open it in the child"


class Watched(Protocol):
    """Something of one process."""

    def disown(self) -> None:
        """Called in a child: gives back what it inherited, and touches nothing of the parent's."""
        ...


_watched: weakref.WeakSet[Watched] = weakref.WeakSet()
#: How many forks this process is away from the one that imported this.
_generation = 0


def watched(thing: Watched) -> None:
    """Has `disown` of an object called in each child that is forked from here on."""
    _watched.add(thing)


def _in_child() -> None:
    global _generation
    _generation += 1
    things = list(_watched)
    _watched.clear()
    for thing in things:
        # What goes wrong with one is no reason to leave another one's descriptors open.
        with contextlib.suppress(Exception):
            thing.disown()


os.register_at_fork(after_in_child=_in_child)


def here() -> int:
    """A number of this process, which a child does not have."""
    return _generation


class OneProcess:
    """Base of what cannot be handed to another process, nor copied."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"cannot pickle or copy a {type(self).__name__}: it belongs to the process that made "
            "it. Open the board in the other process, and share arrays with that"
        )


def own(call: Callable[..., Any]) -> Callable[..., None]:
    """A call that does nothing in a child, for finalizers: what they would free is the parent's."""
    began = here()

    def guarded(*arguments: Any) -> None:
        if here() == began:
            call(*arguments)

    return guarded


class AtExit:
    """Objects that have to be ended while there is an interpreter, by the process that made them.

    Parameters
    ----------
    end : callable
        Called with each.
    """

    def __init__(self, end: Callable[[Any], object]):
        self._end = end
        self._members: weakref.WeakSet[Any] = weakref.WeakSet()
        watched(self)
        atexit.register(self._end_all)

    def add(self, thing: Any) -> None:
        """Has it ended."""
        self._members.add(thing)

    def discard(self, thing: Any) -> None:
        """It has ended."""
        self._members.discard(thing)

    def disown(self) -> None:
        """See `Watched`."""
        self._members.clear()

    def _end_all(self) -> None:
        for thing in list(self._members):
            self._end(thing)


def keep(results: list[Any] | deque[Any], call: Callable[..., Any], *arguments: Any) -> None:
    """Appends what a call returns to a list or deque, before an interrupt can come in between.

    The interpreter runs signal handlers between its instructions. This is one of them.
    """
    results.extend(itertools.starmap(call, (arguments,)))
