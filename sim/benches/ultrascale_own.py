# SPDX-License-Identifier: BSD-2-Clause
"""Small models of our own, of what cocotbext-pcie's models of the UltraScale blocks lack.

Each stands between a model and some of the core's ports: INTx, messages that fail, and live credits
for non-posted requests. They do as PG156 and PG213 say, where these say something.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from .checker import TlpError

__all__ = ["FailingMessages", "Inta", "NonPostedHeaders", "Zero"]

#: Value of `cfg_fc_sel` for which credits are what is available to the core; as many as they like.
_TRANSMIT_AVAILABLE, _INFINITE = 4, 0xFF
#: Where a request's type is in the first beat, and that of a read (`RequesterRequest`).
_TYPE, _READ = 75, 0


class Zero:
    """An input of a model that is none of the core's ports, and 0."""

    value = 0

    def __init__(self, width: int):
        self._width = width

    def __len__(self) -> int:
        return self._width


class Inta:
    """Sends a message for each change of INTA, and says so, both after a random time.

    The core may change INTA again only when it has been told, but for a reset, or if messages are
    enabled meanwhile, which is why it may deassert it then.

    Parameters
    ----------
    send : callable
        Sends a message: whether INTA is asserted.
    messages : callable
        Whether MSI or MSI-X are enabled.

    Attributes
    ----------
    late : (int, int)
        Range of the cycles until the message, and again of those until the core knows.
    """

    def __init__(
        self,
        dut,
        rng: random.Random,
        send: Callable[[bool], Awaitable[None]],
        messages: Callable[[], bool],
    ):
        self.late = (0, 20)
        self._dut, self._rng, self._send, self._messages = dut, rng, send, messages
        self._asserted = 0
        dut.cfg_interrupt_sent.value = 0
        cocotb.start_soon(self._run())

    def _pin(self) -> int:
        pins = int(self._dut.cfg_interrupt_int.value)
        if pins != int(self._dut.cfg_interrupt_pending.value) or pins > 1:
            raise TlpError(f"cfg_interrupt_int is {pins:#x}; the function has INTA only")
        return pins

    async def _run(self) -> None:
        while True:
            await RisingEdge(self._dut.clk)
            if self._dut.rst.value:
                self._asserted = 0
            if self._dut.rst.value or self._pin() == self._asserted:
                continue
            self._asserted = self._pin()
            await self._wait()
            await self._send(bool(self._asserted))
            await self._wait()
            self._dut.cfg_interrupt_sent.value = 1
            await RisingEdge(self._dut.clk)
            self._dut.cfg_interrupt_sent.value = 0

    async def _wait(self) -> None:
        """The pin stays, or what is to stop it has come."""
        for _ in range(self._rng.randint(*self.late)):
            await RisingEdge(self._dut.clk)
            stopped = self._messages() or self._dut.rst.value or self._dut.cfg_flr_in_process.value
            if self._pin() != self._asserted and not stopped:
                raise TlpError("INTA changes before cfg_interrupt_sent")


class FailingMessages:
    """`cfg_interrupt_msi_int` for a model, which never fails to send one: here it may.

    Attributes
    ----------
    share : float
        Of the requests that fail; unless it is 0, the first one does.
    failed : int
        How many did.
    """

    def __init__(self, dut, rng: random.Random):
        self.share, self.failed = 0.0, 0
        self._dut, self._rng = dut, rng
        dut.cfg_interrupt_msi_fail.value = 0

    def __len__(self) -> int:
        return len(self._dut.cfg_interrupt_msi_int)

    @property
    def value(self) -> int:
        """What the core asks for in this cycle, unless that fails."""
        asked = int(self._dut.cfg_interrupt_msi_int.value)
        fails = self.share and (not self.failed or self._rng.random() < self.share)
        if not asked or not fails:
            return asked
        self.failed += 1
        cocotb.start_soon(self._fail())
        return 0

    async def _fail(self) -> None:
        await ClockCycles(self._dut.clk, self._rng.randint(1, 20))
        self._dut.cfg_interrupt_msi_fail.value = 1
        await RisingEdge(self._dut.clk)
        self._dut.cfg_interrupt_msi_fail.value = 0


class NonPostedHeaders:
    """`cfg_fc_nph` at 128 and 256 bits: room of the link partner for reads, which it makes anew.

    A read that the core hands over without room for it is an error. It shows `lag` cycles late.

    Attributes
    ----------
    back : (int, int)
        Range of the cycles after which there is room again for a read.
    least : int
        The least room that there has been since `restrict`.
    """

    def __init__(self, dut, rng: random.Random):
        self.back = (0, 400)
        self.least = _INFINITE
        self._dut, self._rng = dut, rng
        self._limit, self._lag = _INFINITE, 0
        #: cycles from which on there is room again, one for each read
        self._taken: list[int] = []
        dut.cfg_fc_nph.value = _INFINITE
        cocotb.start_soon(self._run())

    def restrict(self, limit: int, lag: int = 0) -> None:
        """From now on there is room for so many reads."""
        self._limit, self._lag, self.least = limit, lag, _INFINITE

    async def _run(self) -> None:
        dut, cycle, first = self._dut, 0, True
        rooms: deque[int] = deque()
        while True:
            await RisingEdge(dut.clk)
            if self._limit == _INFINITE:
                continue
            cycle += 1
            self._taken = [due for due in self._taken if due > cycle]
            if dut.s_axis_rq_tvalid.value and dut.s_axis_rq_tready.value:
                last = bool(dut.s_axis_rq_tlast.value)
                if first and last and int(dut.s_axis_rq_tdata.value) >> _TYPE & 0xF == _READ:
                    self._take(cycle)
                first = last
            rooms.append(self._limit - len(self._taken))
            while len(rooms) > self._lag + 1:
                rooms.popleft()
            selected = int(dut.cfg_fc_sel.value) == _TRANSMIT_AVAILABLE
            dut.cfg_fc_nph.value = max(rooms[0], 0) if selected else self._limit

    def _take(self, cycle: int) -> None:
        self._taken.append(cycle + self._rng.randint(*self.back))
        self.least = min(self.least, self._limit - len(self._taken))
        if self.least < 0:
            raise TlpError("a read for which the link partner has no room")
