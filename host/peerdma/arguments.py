# SPDX-License-Identifier: BSD-2-Clause
"""Checks of arguments, with errors that say what to write instead."""

from __future__ import annotations

import operator
from typing import Any

__all__ = ["integer", "wrong_type"]


def integer(value: Any, what: str) -> int:
    """The integer that `value` is, of Python or numpy; TypeError that says `what` it stands for."""
    try:
        return operator.index(value)
    except TypeError:
        raise wrong_type(f"{what} is a whole number", value) from None


def wrong_type(wanted: str, value: Any, instead: str = "") -> TypeError:
    """The error for an argument of the wrong type.

    Parameters
    ----------
    wanted : str
        A clause that says what the argument is, "a seed is a whole number".
    value
        What was given.
    instead : str, optional
        What to write instead.
    """
    plain = value is None or isinstance(value, (bool, int, float, complex, str, bytes))
    found = repr(value) if plain else f"one of type {type(value).__name__}"
    return TypeError(f"{wanted}, not {found}" + (f"; {instead}" if instead else ""))
