# SPDX-License-Identifier: BSD-2-Clause
"""Names that changed: the old ones work for one release, with a warning."""

from __future__ import annotations

import warnings

__all__ = ["deprecated"]


def deprecated(old: str, new: str, *, level: int = 3) -> None:
    """Warns of a use of `old`; `level` is that of `warnings.warn`, by default the caller's caller.

    Parameters
    ----------
    old, new : str
        What was written, and what to write instead.
    """
    text = f"{old} will be gone in the next release; write {new}"
    warnings.warn(text, DeprecationWarning, stacklevel=level)
