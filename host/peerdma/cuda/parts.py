# SPDX-License-Identifier: BSD-2-Clause
"""The parts of an array in a GPU's memory: by virtual memory management, it may have several.

PyTorch's expandable segments map one piece of memory after another into a range of addresses. Each
has an identity (BUFFER_ID), which is new when something else is mapped there. How long a range
CUDA reports, one piece or all that is reserved, differs by driver, and nothing relies on it.
"""

from __future__ import annotations

from ..errors import PinError
from ..memory.external import Part
from .driver import Driver

__all__ = ["parts_of", "whole_part"]

#: No piece of memory is mapped at other addresses than multiples of this.
_GRAIN = 4096


def parts_of(driver: Driver, address: int, nbytes: int, action: str) -> tuple[Part, ...]:
    """What bytes of a GPU's memory consist of, in order.

    Raises
    ------
    PinError
        "cannot `action`", if nothing is mapped in some place.
    """
    parts: list[Part] = []
    at, end = address, address + nbytes
    while at < end:
        identity = driver.identity(at)
        if parts and not identity:
            raise PinError(
                f"cannot {action}: nothing is mapped at {at:#x}, {end - at} bytes before its end. "
                "Its allocator has taken memory away from it: make the array again"
            )
        parts.append(Part(at, identity))
        at = _end(driver, at, end, identity)
    return tuple(parts)


def _end(driver: Driver, at: int, end: int, identity: int) -> int:
    """The first address after a part that begins at `at`, or `end`; a part is in one piece."""
    if driver.identity(end - 1) == identity:
        return end
    low, high = at // _GRAIN, (end - 1) // _GRAIN
    while high - low > 1:
        middle = (low + high) // 2
        if driver.identity(middle * _GRAIN) == identity:
            low = middle
        else:
            high = middle
    return high * _GRAIN


def whole_part(driver: Driver, address: int, grain: int) -> tuple[int, int]:
    """The first address of the part that an address is in, and the part's length in bytes.

    A part begins and ends at multiples of `grain`.
    """

    def identity(at: int) -> int:
        # Unlike `Driver.identity`, no error for tools that watch CUDA where nothing is mapped.
        return driver.pointer_attributes(at, "BUFFER_ID")[0]

    wanted = identity(address)
    first = address // grain

    def reach(step: int) -> int:
        """How many grains there are in a direction."""
        far = 1
        while identity((first + step * far) * grain) == wanted:
            far *= 2
        near = far // 2
        while far - near > 1:
            middle = (near + far) // 2
            if identity((first + step * middle) * grain) == wanted:
                near = middle
            else:
                far = middle
        return near

    before = reach(-1)
    return (first - before) * grain, (before + reach(1) + 1) * grain
