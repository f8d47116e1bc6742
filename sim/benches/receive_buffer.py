# SPDX-License-Identifier: BSD-2-Clause
"""The block's receive buffer: TLPs from the link, beat by beat, at `trnr*` of the 7 series.

The block advertises infinite credits for completions in front of a finite buffer: it loses one for
which there is no room. Here that fails the test, unless it is what the test is about.

The port pauses as it likes, or as `hw.seam.PortContract` allows.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

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


@dataclass
class _Arrival:
    """A TLP, the BARs that it hits, and the cycle in which it had come whole."""

    tlp: Tlp
    bars: int
    cycle: int

    @property
    def beats(self) -> int:
        """Those that pass the port."""
        return -(-self.tlp.get_size() * 8 // SERIES7.width)


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
    lag : int or None
        Cycles that a TLP may wait for the port, as `hw.seam.Block.port_lag` says: the port keeps to
        the contract of `SERIES7`, whatever pauses are asked of it, over a link that does so, too.
        None: it pauses as it is asked to. May be changed at any time.
    loses : bool
        A completion for which there is no room is lost; else it is an error. May be changed at any
        time.
    lost : list of Tlp
        What was. May be cleared.
    """

    def __init__(self, rng: random.Random, gap: tuple[int, int] = (0, 0)):
        self.gap = gap
        self._rng = rng
        self._np_allowance = NP_OVERRUN
        #: TLPs, and the one in progress with the beats that are left of it
        self._waiting: deque[_Arrival] = deque()
        self._current: _Arrival | None = None
        self._beats: deque[dict[str, int]] = deque()
        self.inside = False
        #: cycles until the next TLP may begin
        self._idle = 0
        #: completions in here, and units of credit that their payload takes
        self._headers = self._credits = 0
        self.lag: int | None = None
        self.loses = False
        self.lost: list[Tlp] = []
        self._cycle = 0
        #: whether a beat has passed in the last cycle, and how many cycles before had none
        self._passed = False
        self._quiet = 0

    def clear(self) -> list[Tlp]:
        """Forget everything; returns what was in here."""
        lost = [arrival.tlp for arrival in self._waiting]
        if self._current:
            lost.append(self._current.tlp)
        self._waiting.clear()
        self._beats.clear()
        self._current = None
        self.inside = False
        self._idle = self._headers = self._credits = 0
        return lost

    def put(self, tlp: Tlp, bars: int = 0) -> bool:
        """Store what came over the link; returns whether it has room.

        Raises
        ------
        TlpError
            If a completion has none, unless it `loses` those.
        """
        if tlp.is_completion():
            headers, credits = self._headers + 1, self._credits + _data_credits(tlp)
            if headers > SERIES7.completion_headers or credits > SERIES7.completion_credits:
                if self.loses:
                    self.lost.append(tlp)
                    return False
                raise TlpError(
                    f"completion buffer overflow: {headers} completions with {credits} "
                    f"units of {_CREDIT_BYTES} bytes, but there is room for "
                    f"{SERIES7.completion_headers} with {SERIES7.completion_credits}"
                )
            self._headers, self._credits = headers, credits
        self._waiting.append(_Arrival(tlp, bars, self._cycle))
        return True

    def beat(self, np_ok: bool) -> dict[str, int] | None:
        """The beat for this cycle, by port; None if there is none.

        `np_ok` is trnrnpok. Of a TLP that begins the oldest is chosen, but others may pass
        non-posted requests that are held back (PCI Express Base Specification, 2.4).
        """
        self._cycle += 1
        self._quiet = 0 if self._passed else self._quiet + 1
        self._passed = False
        if np_ok:
            self._np_allowance = NP_OVERRUN
        if not self._beats:
            if self._idle and self.may_pause():
                self._idle -= 1
                return None
            self._idle = 0
            self._choose(np_ok)
        return self._beats[0] if self._beats else None

    def may_pause(self) -> bool:
        """Whether the port may have no beat in this cycle.

        With `lag` it may if all that is in here, in the order in which it came, passes in time from
        the next cycle on; and between two TLPs for fewer cycles than mean that nothing is in here.
        Non-posted requests may have been held back: they have as long as they like.
        """
        if self.lag is None:
            return True
        if not self.inside and self._quiet >= SERIES7.port.idle - 1:
            return False
        end = self._cycle + len(self._beats)
        if self._current and not self._in_time(self._current, end):
            return False
        for arrival in self._waiting:
            end += arrival.beats
            if not self._in_time(arrival, end):
                return False
        return True

    def _in_time(self, arrival: _Arrival, end: int) -> bool:
        return arrival.tlp.is_nonposted() or end <= arrival.cycle + self.lag

    def _choose(self, np_ok: bool) -> None:
        for index, arrival in enumerate(self._waiting):
            if arrival.tlp.is_nonposted():
                if not self._np_allowance:
                    continue
                if not np_ok:
                    self._np_allowance -= 1
            del self._waiting[index]
            self._current = arrival
            self._beats.extend(self.beats_of(arrival.tlp, arrival.bars))
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
        self._passed = True
        self.inside = bool(self._beats)
        if self.inside:
            return None
        tlp, self._current = self._current.tlp, None
        gap = self._rng.randint(*self.gap) if any(self.gap) else 0
        self._idle = max(gap, self.rest(beat))
        if tlp.is_completion():
            self._headers -= 1
            self._credits -= _data_credits(tlp)
        return tlp
