# SPDX-License-Identifier: BSD-2-Clause
"""The block's receive buffer: TLPs from the link, beat by beat, at `trnr*` of the 7 series.

The block advertises infinite credits for completions in front of a finite buffer: it loses one for
which there is no room. Here that fails the test.
"""

from __future__ import annotations

import random
from collections import deque

from cocotbext.pcie.core.tlp import Tlp

from hw.pcie.series7.block import SERIES7

from .checker import TlpError

__all__ = ["ReceiveBuffer"]

#: Non-posted requests that may still arrive after trnrnpok fell.
NP_OVERRUN = 2
#: Bytes of a unit of data credit.
_CREDIT_BYTES = 16


def _data_credits(tlp: Tlp) -> int:
    return -(-len(tlp.data) // _CREDIT_BYTES)


class ReceiveBuffer:
    """What has come over the link and is not with the core yet.

    Parameters
    ----------
    rng : random.Random
    gap : tuple of int
        Least and most idle cycles between two TLPs. May be changed at any time.

    Attributes
    ----------
    inside : bool
        A TLP has begun that has not ended.
    """

    def __init__(self, rng: random.Random, gap: tuple[int, int] = (0, 0)):
        self.gap = gap
        self._rng = rng
        self._np_allowance = NP_OVERRUN
        #: TLPs with the BARs they hit, and the one in progress with the beats that are left of it
        self._waiting: deque[tuple[Tlp, int]] = deque()
        self._current: Tlp | None = None
        self._beats: deque[dict[str, int]] = deque()
        self.inside = False
        #: cycles until the next TLP may begin
        self._idle = 0
        #: completions in here, and units of credit that their payload takes
        self._headers = self._credits = 0

    def clear(self) -> list[Tlp]:
        """Forget everything; returns what was in here."""
        lost = [tlp for tlp, _ in self._waiting]
        if self._current:
            lost.append(self._current)
        self._waiting.clear()
        self._beats.clear()
        self._current = None
        self.inside = False
        self._idle = self._headers = self._credits = 0
        return lost

    def put(self, tlp: Tlp, bars: int = 0) -> None:
        """Store what came over the link; TlpError for a completion for which there is no room."""
        self._waiting.append((tlp, bars))
        if not tlp.is_completion():
            return
        self._headers += 1
        self._credits += _data_credits(tlp)
        if self._headers > SERIES7.completion_headers or self._credits > SERIES7.completion_credits:
            raise TlpError(
                f"completion buffer overflow: {self._headers} completions with {self._credits} "
                f"units of {_CREDIT_BYTES} bytes, but there is room for "
                f"{SERIES7.completion_headers} with {SERIES7.completion_credits}"
            )

    def beat(self, np_ok: bool) -> dict[str, int] | None:
        """The beat for this cycle, by port; None if there is none.

        `np_ok` is trnrnpok. Of a TLP that begins the oldest is chosen, but others may pass
        non-posted requests that are held back (PCI Express Base Specification, 2.4).
        """
        if np_ok:
            self._np_allowance = NP_OVERRUN
        if not self._beats:
            if self._idle:
                self._idle -= 1
                return None
            self._choose(np_ok)
        return self._beats[0] if self._beats else None

    def _choose(self, np_ok: bool) -> None:
        for index, (tlp, bars) in enumerate(self._waiting):
            if tlp.is_nonposted():
                if not self._np_allowance:
                    continue
                if not np_ok:
                    self._np_allowance -= 1
            del self._waiting[index]
            self._current = tlp
            self._beats.extend(self.beats_of(tlp, bars))
            return

    def beats_of(self, tlp: Tlp, bars: int) -> list[dict[str, int]]:
        """The beats of a TLP that hits these BARs, by port."""
        raw = tlp.pack()
        whole = len(raw) % 8 == 0
        if not whole:
            raw += self._rng.randbytes(4)
        return [
            {
                "trnrd": int.from_bytes(raw[start : start + 8], "big"),
                "trnrsof": int(start == 0),
                "trnreof": int(start + 8 >= len(raw)),
                "trnrrem": int(whole or start + 8 < len(raw)),
                "trnrbarhit": bars,
                "trnrerrfwd": int(tlp.ep),
            }
            for start in range(0, len(raw), 8)
        ]

    def rest(self, last: dict[str, int]) -> int:
        """Cycles without a beat that have to follow this last beat of a TLP."""
        return 0

    def taken(self) -> Tlp | None:
        """The core has taken the beat; returns the TLP that is whole with it, else None."""
        beat = self._beats.popleft()
        self.inside = bool(self._beats)
        if self.inside:
            return None
        tlp, self._current = self._current, None
        gap = self._rng.randint(*self.gap) if any(self.gap) else 0
        self._idle = max(gap, self.rest(beat))
        if tlp.is_completion():
            self._headers -= 1
            self._credits -= _data_credits(tlp)
        return tlp
