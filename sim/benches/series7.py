# SPDX-License-Identifier: BSD-2-Clause
"""The 7-series PCIe hard block (PCIE_2_1, UG477) for cocotb: a PCIe device whose user is the DUT.

`Series7Device` is a `cocotbext.pcie` device on its link side and drives the core's TRN,
configuration and interrupt ports (`hw/pcie/series7/ports.py`) on the other. It has the reference
configuration's buffers and credits, and it judges every TLP in both directions. What comes from the
link waits in a `ReceiveBuffer`.

Ports change at the falling clock edge and are sampled after they have settled, before the rising
one: what is sampled is what the core's registers see, in any simulator.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import cocotb
from cocotb.clock import Clock
from cocotb.queue import Queue
from cocotb.triggers import Event, FallingEdge, ReadOnly
from cocotbext.pcie.core import Device
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType

from hw.pcie.series7.block import SERIES7
from hw.pcie.series7.parameters import PARAMETERS
from hw.pcie.series7.ports import TRN_PORTS

from .checker import MEMORY_WRITES, TlpChecker, TlpError
from .configuration import configuration_space, reset_configuration
from .messages import interrupt_message
from .receive_buffer import ReceiveBuffer
from .transmit_buffers import TransmitBuffers

__all__ = ["BUS_MASTER_GRACE", "CLOCK_NS", "PORT_LAG", "RX_CREDITS", "Series7Device"]

#: Period of the user clock: 125 MHz.
CLOCK_NS = 8
#: `ReceiveBuffer.lag` by the contract of the receive port, over a link of one lane.
PORT_LAG = SERIES7.port_lag(1_000_000 // CLOCK_NS)
#: Receive credits of the block; those for completions are infinite.
RX_CREDITS = {
    kind: PARAMETERS[f"VC0_TOTAL_CREDITS_{kind.upper()}"] for kind in ("ph", "pd", "nph", "npd")
}
#: Clock cycles after Bus Master Enable fell in which the core may still start a request, without
#: those in which the block takes nothing or a completion: what is offered has to stay.
BUS_MASTER_GRACE = 16
#: Type of a completion.
_COMPLETION = 0x0A
#: Clock cycles between updates of the credits that are shown.
CREDIT_CYCLES = 8
#: Value of trnfcsel for which this model shows credits: transmit credits available.
FC_TRANSMIT_AVAILABLE = 4

_CONFIG = {TlpType.CFG_READ_0, TlpType.CFG_WRITE_0, TlpType.CFG_READ_1, TlpType.CFG_WRITE_1}


class Series7Device(Device):
    """One function behind the hard block, which drives the core's clock, too.

    Parameters
    ----------
    dut
        The core in reset, with the ports of `hw.pcie.series7.ports.TRN_PORTS` and `clk`.
    rng : random.Random
        Source of every random choice of the model.
    lanes : int
        Width of the Gen2 link.
    stall : float
        Probability, per cycle, that the block does not take a transmit beat, and that it has no
        receive beat to offer. May be changed at any time.

    Attributes
    ----------
    clock_ns : int
        Period of the user clock.
    function : Endpoint
        The configuration space.
    received : ReceiveBuffer
    checker : TlpChecker
        Judge of both directions; a violation fails the running test.
    buffers : TransmitBuffers
    discard : callable
        Called with each memory write of the core: whether the block discards it.
    hold_transmit, hold_receive : bool
        The block takes no transmit beat, or has no receive beat, while this is True.
    pauses : Counter of str
        How often each of `sim.benches.pauses.PAUSES` has happened. May be cleared.
    timeouts, unexpected : int
        Completion timeouts and unexpected completions that the core reported.
    on_tlp : list of callable
        Each is called with ("up" or "down", TLP) as a TLP crosses the transaction ports.
    """

    def __init__(self, dut, rng: random.Random, *, lanes: int = 1, stall: float = 0.0):
        self.clock_ns = CLOCK_NS
        Clock(dut.clk, CLOCK_NS, "ns").start()
        super().__init__()
        link = self.upstream_port
        link.max_link_speed, link.max_link_width = 2, lanes
        for name, credits in RX_CREDITS.items():
            kind = type(getattr(link.fc_state[0], name))
            setattr(link.fc_state[0], name, kind(credits))
        self.function = self.append_function(configuration_space(lanes))
        self.checker = TlpChecker(self.function)
        self.stall = stall
        self.hold_transmit = self.hold_receive = False
        self.pauses: Counter[str] = Counter()
        #: tag of the last completion, if its read has more to come
        self._open_tag: int | None = None
        #: what the block has taken goes out on the link while this is set
        self.link_ready = Event()
        self.link_ready.set()
        self.timeouts = self.unexpected = 0
        self.buffers = TransmitBuffers()
        self.discard: Callable[[Tlp], bool] = lambda tlp: False
        self.on_tlp: list[Callable[[str, Tlp], None]] = []

        self._dut, self._rng = dut, rng
        self._ports = {name: getattr(dut, name) for name in self._port_names()}
        self._driven: dict[str, int] = {}
        # Transmit: the TLP in progress, TLPs taken but not sent, and what sends them in order.
        self._tx_raw: bytearray | None = None
        self._tx_bus_master = self._completing = False
        self._tx: Queue = Queue()
        self.received = self._receive_buffer()
        #: a beat for the core is offered; it was in the cycle before, and not taken
        self._offered = self._untaken = False
        #: cycles until the block says that it discarded a TLP
        self._discarded: list[int] = []
        self._cycle = 0
        self._configured = True
        #: cycles left of `BUS_MASTER_GRACE`; None while Bus Master Enable is set
        self._bus_master_grace: int | None = 0
        self._interrupt_delay: int | None = None
        self._interrupt_ready = self._link_down = False

        self._begin()
        for task in (self._run(), self._transmit()):
            cocotb.start_soon(task)

    def abandon(self, tag: int) -> None:
        """A read of the core will never be answered; the core may use its tag again."""
        self.checker.abandon(tag)

    async def leave_reset(self) -> None:
        """End the reset in which the core is made."""
        self._dut.rst.value = 0

    def expect_no_errors(self) -> None:
        """Fail for what the core has reported."""
        assert (self.timeouts, self.unexpected) == (0, 0), (
            f"{self.timeouts} completion timeouts, {self.unexpected} unexpected completions"
        )

    def take_timeouts(self) -> int | None:
        """How many completion timeouts the core has reported since; they are no errors then."""
        found, self.timeouts = self.timeouts, 0
        return found

    async def hot_reset(self, lost: Awaitable[None]) -> None:
        """Hot reset, or the link going down: `rst` until `lost` says that the host sends no more.

        What is under way in either direction is lost, and the configuration space is as after
        power-up, but for the numbers of bus and device. Nobody may wait for a completion of the
        core.
        """
        self._link_down = True
        self._go_idle()
        self._offered = self._untaken = False
        self._dut.rst.value = 1
        for tlp in self.received.clear():
            tlp.release_fc()
        self._tx_raw = self._interrupt_delay = None
        self.buffers.reset()
        self._discarded.clear()
        while not self._tx.empty():
            self._tx.get_nowait()
        self.checker.forget()
        reset_configuration(self.function)
        await lost
        await FallingEdge(self._dut.clk)
        self._dut.rst.value = 0
        self._link_down, self._configured = False, True

    # From the link --------------------------------------------------------------------------

    async def upstream_recv(self, tlp: Tlp) -> None:
        """Answer what the block answers itself and queue the rest for the core."""
        if self._link_down:
            tlp.release_fc()
        elif tlp.fmt_type in _CONFIG:
            await super().upstream_recv(tlp)
            self._configured = True
        elif tlp.is_completion():
            if tlp.requester_id == self.function.pcie_id:
                if not self.received.put(tlp):
                    self.checker.lose(tlp)
                    tlp.release_fc()
            else:
                tlp.release_fc()
        elif (bar := self._bar_hit(tlp)) is not None:
            self.received.put(tlp, 1 << bar)
        else:
            tlp.release_fc()
            if tlp.is_nonposted():
                await self.upstream_send(
                    Tlp.create_ur_completion_for_tlp(tlp, self.function.pcie_id)
                )

    def _bar_hit(self, tlp: Tlp) -> int | None:
        if not self.function.memory_space_enable:
            return None
        match = self.function.match_bar(tlp.address)
        return None if match is None else match[0]

    # To the link ----------------------------------------------------------------------------

    async def _transmit(self) -> None:
        while True:
            send, buffers = await self._tx.get()
            await self.link_ready.wait()
            await send()
            self.buffers.sent(buffers)

    def _queue(self, send: Callable[[], Awaitable[None]], buffers: int) -> None:
        self._tx.put_nowait((send, buffers))

    # Cycle by cycle -------------------------------------------------------------------------

    @staticmethod
    def _port_names() -> list[str]:
        """The core's ports."""
        return [port.name for port in TRN_PORTS]

    def _receive_buffer(self) -> ReceiveBuffer:
        return ReceiveBuffer(self._rng)

    def _begin(self) -> None:
        """Drive all inputs of the core as before anything happens."""
        for port in TRN_PORTS:
            if port.direction == "i":
                self._set(port.name, 0)
        self._set("cfginterruptrdyn", 1)

    def _go_idle(self) -> None:
        """The link is down: offer nothing, and take nothing."""
        for port in ("trnlnkup", "trnrsrcrdy", "trntdstrdy"):
            self._set(port, 0)

    def _set(self, name: str, value: int) -> None:
        if self._driven.get(name) != value:
            self._driven[name] = value
            self._ports[name].value = value

    def _get(self, name: str) -> int:
        return int(self._ports[name].value)

    async def _run(self) -> None:
        while self._dut.rst.value:
            await FallingEdge(self._dut.clk)
        await self.upstream_port.fc_state[0].initialized.wait()
        while True:
            await FallingEdge(self._dut.clk)
            self._cycle += 1
            if self._link_down:
                continue
            if self._configured:
                self._configured = False
                self._drive_configuration()
            if self._cycle % CREDIT_CYCLES == 0:
                self._drive_credits()
            self._drive_receive()
            self._drive_interrupt()
            self._drive_transmit()
            await ReadOnly()
            self._sample_receive()
            self._sample_transmit()
            self._sample_interrupt()
            self._sample_errors()

    def _stalls(self) -> bool:
        return self.stall > 0 and self._rng.random() < self.stall

    def _drive_configuration(self) -> None:
        if self.function.bus_master_enable:
            self._bus_master_grace = None
        elif self._bus_master_grace is None:
            self._bus_master_grace = BUS_MASTER_GRACE
        for name, value in self._configuration():
            self._set(name, int(value))

    def _configuration(self) -> tuple[tuple[str, int], ...]:
        """What is shown of the configuration space, by port."""
        function, capability = self.function, self.function.pcie_cap
        return (
            ("trnlnkup", 1),
            ("cfgcommandbusmasterenable", function.bus_master_enable),
            ("cfgcommandinterruptdisable", function.interrupt_disable),
            ("cfgdevcontrolmaxpayload", capability.max_payload_size),
            ("cfgdevcontrolmaxreadreq", capability.max_read_request_size),
            ("cfgdevcontrolexttagen", capability.extended_tag_field_enable),
            ("cfgdevcontrolenablero", capability.enable_relaxed_ordering),
            ("cfglinkcontrolrcb", capability.read_completion_boundary),
            ("cfglinkstatuscurrentspeed", capability.current_link_speed),
            ("cfglinkstatusnegotiatedwidth", capability.negotiated_link_width),
            ("cfgmsgdata", int(function.pcie_id)),
            ("cfginterruptmsienable", function.msi_cap.msi_enable),
            ("cfginterruptmmenable", function.msi_cap.msi_multiple_message_enable),
            ("cfginterruptmsixenable", function.msix_cap.msix_enable),
            ("cfginterruptmsixfm", function.msix_cap.msix_function_mask),
        )

    def _drive_credits(self) -> None:
        credits = self.upstream_port.fc_state[0]
        for kind, header, payload in (
            ("p", credits.ph, credits.pd),
            ("np", credits.nph, credits.npd),
            ("cpl", credits.cplh, credits.cpld),
        ):
            for suffix, state, width in (("h", header, 8), ("d", payload, 12)):
                infinite = (1 << width) - 1
                available = state.tx_credits_available
                self._set(
                    f"trnfc{kind}{suffix}",
                    infinite if state.tx_is_infinite() else min(available, infinite - 1),
                )

    # Receive: from the block to the core ----------------------------------------------------

    def _drive_receive(self) -> None:
        beat = self.received.beat(self._np_ok())
        # What was not taken stays.
        pauses = not self._untaken and (self.hold_receive or self._stalls())
        pauses = pauses and self.received.may_pause()
        self._offered = beat is not None and not pauses
        if beat is not None and pauses:
            self.pauses["in received"] += self.received.inside
            self.pauses["long receive"] += self.hold_receive
        self._offer(beat if self._offered else None)

    def _np_ok(self) -> bool:
        """Whether the core lets non-posted requests come."""
        return bool(self._get("trnrnpok"))

    def _offer(self, beat: dict[str, int] | None) -> None:
        """Offer a beat to the core in this cycle, or none."""
        self._set("trnrsrcrdy", int(beat is not None))
        for name, value in (beat or {}).items():
            self._set(name, value)

    def _core_takes(self) -> bool:
        """Whether the core takes the beat that it is offered."""
        if not self._get("trnrdstrdy"):
            raise TlpError("the core does not take a receive beat; trnrdstrdy must stay 1")
        return True

    def _sample_receive(self) -> None:
        if not self._offered:
            return
        self._untaken = not self._core_takes()
        if self._untaken:
            return
        if tlp := self.received.taken():
            self._count_interleaved(tlp)
            self.checker.downstream(tlp)
            self._report("down", tlp)
            tlp.release_fc()

    def _count_interleaved(self, tlp: Tlp) -> None:
        if not tlp.is_completion():
            return
        self.pauses["interleaved"] += self._open_tag not in (None, tlp.tag)
        whole = 4 * tlp.length - tlp.lower_address % 4 >= tlp.byte_count
        self._open_tag = None if whole or tlp.status != CplStatus.SC else tlp.tag

    # Transmit: from the core to the block ---------------------------------------------------

    def _drive_transmit(self) -> None:
        self.buffers.cycle()
        room = (self.buffers.free or self._tx_raw is not None) and not self.hold_transmit
        takes = bool(room) and not self._stalls()
        self.pauses["in sent"] += self._tx_raw is not None and not takes
        self.pauses["long transmit"] += self.hold_transmit
        self._take(takes)

    def _take(self, takes: bool) -> None:
        """Show whether a beat of the core is taken in this cycle, and what room there is."""
        self._set("trntdstrdy", int(takes))
        self._set("trntbufav", self.buffers.shown)
        self._set("trnterrdrop", int(0 in self._discarded))
        self._discarded = [cycles - 1 for cycles in self._discarded if cycles]

    def _sample_transmit(self) -> None:
        if not self._driven["trntdstrdy"]:
            return
        valid = self._get("trntsrcrdy")
        first, last = self._get("trntsof"), self._get("trnteof")
        self._count_grace(bool(valid))
        if not valid:
            return
        if bool(first) != (self._tx_raw is None):
            raise TlpError("trntsof within a TLP" if first else "transmit beat before trntsof")
        if self._get("trntsrcdsc") or self._get("trnterrfwd") or self._get("trntecrcgen"):
            raise TlpError("trntsrcdsc, trnterrfwd and trntecrcgen must stay 0")
        if first:
            if self._get("trnfcsel") != FC_TRANSMIT_AVAILABLE:
                raise TlpError("trnfcsel is not 4, so the core reads credits wrongly")
            self._begin_tlp(completion=self._get("trntd") >> 56 & 0x1F == _COMPLETION)
        self._tx_raw += self._get("trntd").to_bytes(8, "big")
        if last:
            if not self._get("trntrem"):
                del self._tx_raw[-4:]
            raw, self._tx_raw = bytes(self._tx_raw), None
            if self._accept(raw):
                self._discarded.append(self._rng.randrange(SERIES7.drop_lag))

    def _count_grace(self, valid: bool) -> None:
        """A cycle in which the block takes what the core offers, if that is `valid`."""
        if self._bus_master_grace and not (valid and self._completing):
            self._bus_master_grace -= 1

    def _begin_tlp(self, *, completion: bool) -> None:
        self._tx_raw = bytearray()
        self.buffers.take()
        self._tx_bus_master = self._bus_master_grace != 0
        self._completing = completion

    def _accept(self, raw: bytes) -> bool:
        """A whole TLP of the core; returns whether the block discards it."""
        try:
            tlp = Tlp.unpack(bytearray(raw))
        except Exception as error:  # the library raises nothing narrower
            raise TlpError(f"not a TLP ({error}): {raw.hex()}") from error
        if tlp.pack() != raw:
            raise TlpError(f"reserved header bits are set: {raw.hex()}")
        self.checker.upstream(tlp, bus_master=self._tx_bus_master)
        if tlp.fmt_type in MEMORY_WRITES and self.discard(tlp):
            self.buffers.give_back()
            return True
        self._report("up", tlp)
        self._queue(partial(self.upstream_send, tlp), 1)
        return False

    def _report(self, direction: str, tlp: Tlp) -> None:
        for listener in self.on_tlp:
            listener(direction, tlp)

    # Interrupts and errors ------------------------------------------------------------------

    def _drive_interrupt(self) -> None:
        self._interrupt_ready = self._interrupt_delay == 0
        if self._interrupt_delay:
            self._interrupt_delay -= 1
        self._take_interrupt(self._interrupt_ready)

    def _take_interrupt(self, ready: bool) -> None:
        """Show whether a request for an interrupt is taken in this cycle."""
        self._set("cfginterruptrdyn", int(not ready))

    def _requested(self) -> tuple[int, bool] | None:
        """Number of the message that the core asks for, and whether INTA is to be asserted."""
        if self._get("cfginterruptn"):
            return None
        return self._get("cfginterruptdi"), not self._get("cfginterruptassertn")

    def _sample_interrupt(self) -> None:
        request = self._requested()
        if not request:
            self._interrupt_delay = None
        elif self._interrupt_ready:
            self._interrupt_delay = None
            self._interrupt(*request)
        elif self._interrupt_delay is None:
            self._interrupt_delay = self._rng.randrange(8)

    def _interrupt(self, number: int, asserted: bool) -> None:
        """Queue the message that the core asked for behind the TLPs that it sent before."""
        function = self.function
        if function.msix_cap.msix_enable:
            raise TlpError("the block is asked for an interrupt while MSI-X is enabled")
        if function.msi_cap.msi_enable:
            if number >> function.msi_cap.msi_multiple_message_enable:
                raise TlpError(f"MSI message {number} was not granted")
            if function.bus_master_enable:
                self._queue(partial(function.msi_cap.issue_msi_interrupt, number), 0)
            return
        if number:
            raise TlpError(f"interrupt pin {number} requested; the function has INTA only")
        if asserted == function.interrupt_status:
            raise TlpError(f"INTA is already {'asserted' if asserted else 'deasserted'}")
        function.interrupt_status = asserted
        message = interrupt_message(asserted, function.pcie_id)
        self._queue(partial(self.upstream_send, message), 0)

    def _sample_errors(self) -> None:
        ports = "cfgtrnpendingn", "cfgerrcpltimeoutn", "cfgerrcplunexpectn"
        self._note_errors(*(not self._get(port) for port in ports))

    def _note_errors(self, pending: bool, timed_out: bool, unexpected: bool) -> None:
        capability = self.function.pcie_cap
        capability.transactions_pending = pending
        if timed_out:
            self.timeouts += 1
            capability.nonfatal_error_detected = True
        if unexpected:
            self.unexpected += 1
            capability.correctable_error_detected = True
