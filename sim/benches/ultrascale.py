# SPDX-License-Identifier: BSD-2-Clause
"""The UltraScale and UltraScale+ PCIe blocks for cocotb: cocotbext-pcie's models, as they are.

They drive the core's clock and reset, too, and answer, count and drop what they do as their authors
read PG156 and PG213. Around them here is the configuration of the block, and a judge of every TLP
in both directions, as at `sim.benches.series7`. A completion for which a model's receive buffer has
no room is an error. What the models lack is our own: INTx, messages that fail and live credits in
`sim.benches.ultrascale_own`; resets, and reads that the block ends by itself, here.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial

import cocotb
from cocotb.triggers import ClockCycles, Event, FallingEdge, RisingEdge, Timer
from cocotbext.axi import AxiStreamBus
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpType
from cocotbext.pcie.xilinx.us import UltraScalePcieDevice, UltraScalePlusPcieDevice
from cocotbext.pcie.xilinx.us.tlp import ErrorCode, Tlp_us

from hw.pcie.adapters import ADAPTERS
from hw.pcie.series7.parameters import PARAMETERS, Identity
from hw.pcie.ultrascale.family import ULTRASCALE, ULTRASCALE_PLUS
from hw.pcie.ultrascale.sent import PATIENCE
from hw.pcie.ultrascale.straddle import STRADDLE_WIDTH
from peerdma import regs

from .checker import TlpChecker, TlpError
from .configuration import reset_configuration
from .messages import interrupt_message
from .model import ULTRASCALE_KHZ
from .ultrascale_own import FailingMessages, Inta, NonPostedHeaders, Zero

__all__ = ["FLR_CYCLES", "MODELLED", "ultrascale_device"]

#: Cycles of a reset of the function if the block does not give back the numbers of all writes, from
#: the last that it does.
FLR_CYCLES = PATIENCE + 300

#: Lanes of a Gen3 link whose rate is that of the streams, by their width.
_LANES = {64: 2, 128: 4, 256: 8}
#: Our names of the streams, and the model's.
_STREAMS = {"rq": "s_axis_rq", "rc": "m_axis_rc", "cq": "m_axis_cq", "cc": "s_axis_cc"}
#: Cycles without a beat after which there is no packet that has begun.
_NO_PACKET = 50
#: Ports of a model that it drives not, or not as a block does.
_OWN = {
    *("cfg_fc_nph", "cfg_interrupt_int", "cfg_interrupt_pending", "cfg_interrupt_sent"),
    *("cfg_interrupt_msi_fail", "cfg_flr_in_process", "cfg_flr_done", "user_lnk_up"),
}
_CONFIG = {TlpType.CFG_READ_0, TlpType.CFG_WRITE_0, TlpType.CFG_READ_1, TlpType.CFG_WRITE_1}


class _Credits:
    """`pcie_cq_np_req` for a model, which looks at it only while its queue of requests has room.

    The block counts a credit in each cycle (PG156, PG213); so here none is lost meanwhile.
    """

    def __init__(self, dut):
        self._port, self._clock = dut.pcie_cq_np_req, dut.clk
        self._given = 0
        cocotb.start_soon(self._count())

    def __len__(self) -> int:
        return len(self._port)

    async def _count(self) -> None:
        while True:
            await RisingEdge(self._clock)
            self._given += int(self._port.value)

    @property
    def value(self) -> bool:
        """Whether there is a credit that the model has not seen; it has, then."""
        found = self._given > 0
        self._given -= found
        return found


class _Judged:
    """Shows the TLPs at a model's link to a checker, and does what the model lacks."""

    #: period of the user clock
    clock_ns = 1_000_000 // ULTRASCALE_KHZ

    def watch(self, dut, rng: random.Random, stall: float) -> None:
        """Begin, once the model is made."""
        #: the configuration space
        self.function = self.functions[0]
        ids = Identity()
        self.function.vendor_id, self.function.device_id = ids.vendor, ids.device
        self.function.class_code = PARAMETERS["CLASS_CODE"]
        for bar, size in (regs.BAR_USER, regs.BAR_DMA):
            self.function.configure_bar(bar, size)
        # The models leave these to their user.
        capability = self.function.pcie_cap
        capability.current_link_speed = self.upstream_port.max_link_speed
        capability.negotiated_link_width = self.upstream_port.max_link_width
        self.checker = TlpChecker(self.function)
        self.on_tlp: list[Callable[[str, Tlp], None]] = []
        #: Range of the random time for which the block keeps a request that it has taken, while
        #: completions pass it. Only then it gives its sequence number back.
        self.late_ns = (0, 0)
        self._dut, self._rng = dut, rng
        #: whether there is a sequence number, of each port for them
        self._given_back = [
            getattr(dut, f"pcie_rq_seq_num_vld{suffix}") for suffix in self.family.sequence_ports
        ]
        self._down = False
        self.inta = Inta(dut, rng, self._send_inta, self._messages)
        self.non_posted = NonPostedHeaders(dut, rng)
        dut.cfg_flr_in_process.value = 0
        dut.user_lnk_up.value = 1
        # What is on its way into the core goes there while that is in reset, and is lost.
        self.rc_source.reset = self.cq_source.reset = None
        self.stall = stall
        #: the block takes nothing from the core, or gives it nothing
        self.hold_transmit = self.hold_receive = False
        #: what the block has taken goes out on the link while this is set
        self.link_ready = Event()
        self.link_ready.set()
        for streams, held in (
            ((self.rq_sink, self.cc_sink), lambda: self.hold_transmit),
            ((self.rc_source, self.cq_source), lambda: self.hold_receive),
        ):
            for stream in streams:
                # Each line would have all of a packet's bytes.
                stream.log.setLevel(logging.WARNING)
                stream.set_pause_generator(iter(partial(self._stalls, held), None))

    def _stalls(self, held: Callable[[], bool]) -> bool:
        return held() or (self.stall > 0 and self._rng.random() < self.stall)

    def abandon(self, tag: int) -> None:
        """As `sim.benches.series7.Series7Device.abandon`."""
        self.checker.abandon(tag)
        request, self.active_request[tag] = self.active_request[tag], None
        self.cpld_credit_count -= request.get_data_credits()
        self.cpld_credit_released.set()

    @property
    def overflowed(self) -> bool:
        """A completion was lost because the receive buffer had no room for it."""
        error = self.local_error
        return error if isinstance(error, bool) else not error.empty()

    async def _between_packets(self) -> None:
        """The model's sinks keep what they have of a packet over a reset."""
        dut, idle = self._dut, 0
        while idle < _NO_PACKET:
            await RisingEdge(dut.clk)
            answers, asks = dut.s_axis_cc_tvalid.value, dut.s_axis_rq_tvalid.value
            ends = asks and dut.s_axis_rq_tready.value and dut.s_axis_rq_tlast.value
            if ends and not answers:
                return
            idle = 0 if answers or asks else idle + 1

    async def _send_inta(self, asserted: bool) -> None:
        self.function.interrupt_status = asserted
        if not self.function.interrupt_disable and not self._down:
            await self.upstream_send(interrupt_message(asserted, self.function.pcie_id))

    def _messages(self) -> bool:
        return bool(self.function.msi_cap.msi_enable or self.function.msix_cap.msix_enable)

    def end_reads(self, error: ErrorCode) -> int:
        """End all reads of the core that are not answered, by completions that say why.

        Returns how many. Completions that come for them later have tags of no request.
        """
        requests = [each for each in self.active_request if each]
        for request in self._rng.sample(requests, len(requests)):
            # Fields other than the tag are invalid.
            tlp = Tlp_us()
            tlp.fmt_type, tlp.status = TlpType.CPL_LOCKED, CplStatus(self._rng.choice((0, 1, 2, 4)))
            tlp.tag, tlp.error_code, tlp.request_completed = request.tag, error, True
            tlp.byte_count, tlp.lower_address = self._rng.randrange(4096), self._rng.randrange(128)
            self.rc_queue.put_nowait(tlp)
            self.active_request[request.tag] = None
        self.cpld_credit_count = 0
        self.cpld_credit_released.set()
        return len(requests)

    async def function_reset(self, cycles: int, *, late: bool) -> None:
        """A reset of the function, which the core has to end after so many cycles at most.

        They are counted anew when the block gives a number back, as it does with what it has sent.
        The block ends reads before the core says that it is done, or after that if they are `late`.
        """
        capability = self.function.pcie_cap
        # These outlive it (6.6.2): what was asked for before still comes, in such payloads.
        kept = capability.max_payload_size, capability.read_completion_boundary
        reset_configuration(self.function)
        capability.max_payload_size, capability.read_completion_boundary = kept
        self._dut.cfg_flr_in_process.value = 1
        if not late:
            self.end_reads(ErrorCode.FLR)
        left = cycles
        while not self._dut.cfg_flr_done.value:
            if not left:
                raise TlpError(f"the function is not reset after {cycles} cycles")
            await RisingEdge(self._dut.clk)
            left = cycles if any(port.value for port in self._given_back) else left - 1
        await ClockCycles(self._dut.clk, self._rng.randint(1, 10))
        assert int(self._dut.cfg_flr_done.value) == 1, "cfg_flr_done, of function 0, until the end"
        self._dut.cfg_flr_in_process.value = 0
        await ClockCycles(self._dut.clk, 3)
        assert not self._dut.cfg_flr_done.value
        self.end_reads(ErrorCode.FLR)

    async def hot_reset(self, lost: Awaitable[None]) -> None:
        """As `sim.benches.series7.Series7Device.hot_reset`; between two packets of the core's."""
        await self._between_packets()
        self._down = True
        self._dut.rst.value = 1
        self._dut.user_lnk_up.value = 0
        reset_configuration(self.function)
        self.checker.forget()
        await lost
        # Until now the model has come upon reads that it had taken before.
        self.active_request[:] = [None] * len(self.active_request)
        self.cpld_credit_count = 0
        self.cpld_credit_released.set()
        for queue in (self.cq_queue, self.cq_np_queue, self.rc_queue, self.rq_seq_num):
            while not queue.empty():
                queue.get_nowait()
        self.cq_np_req_count = 0
        await RisingEdge(self._dut.clk)
        self._dut.rst.value = 0
        self._dut.user_lnk_up.value = 1
        self._down = False

    async def leave_reset(self) -> None:
        """Wait until the model ends the core's reset."""
        await FallingEdge(self._dut.rst)

    def expect_no_errors(self) -> None:
        """Fail for what the model has lost."""
        assert not self.overflowed, "the block's buffer of completions has overflowed"

    def take_timeouts(self) -> int | None:
        """None: these blocks have no port for those that the core finds."""
        return None

    def _report(self, direction: str, tlp: Tlp) -> None:
        for listener in self.on_tlp:
            listener(direction, tlp)

    async def upstream_recv(self, tlp: Tlp) -> None:
        """From the link."""
        if self._down:
            tlp.release_fc()
            return
        ours = tlp.is_completion() or self.function.match_bar(tlp.address) is not None
        if tlp.fmt_type not in _CONFIG and ours:
            self.checker.downstream(tlp)
            self._report("down", tlp)
        await super().upstream_recv(tlp)

    async def send(self, tlp: Tlp) -> None:
        """To the link, what the core sends. What the model answers itself does not go this way."""
        # What the model has taken is sent, even if the bit falls meanwhile.
        bus_master = self.function.bus_master_enable
        if any(self.late_ns) and not tlp.is_completion():
            await Timer(self._rng.randint(*self.late_ns), "ns")
        await self.link_ready.wait()
        if self._down:
            return
        self.checker.upstream(tlp, bus_master=bus_master)
        self._report("up", tlp)
        await super().send(tlp)


class _UltraScale(_Judged, UltraScalePcieDevice):
    family = ULTRASCALE


class _UltraScalePlus(_Judged, UltraScalePlusPcieDevice):
    family = ULTRASCALE_PLUS


_MODELS = {kind.family.name: kind for kind in (_UltraScale, _UltraScalePlus)}
#: Those of `hw.pcie.adapters.ADAPTERS` that a model is for.
MODELLED = tuple(name for name in ADAPTERS if name.rpartition("-")[0] in _MODELS)


def ultrascale_device(dut, name: str, rng: random.Random, *, stall: float = 0.0):
    """A model around the core, for one of `hw.pcie.adapters.ADAPTERS`; KeyError if none is for it.

    Parameters
    ----------
    dut
        The core, with `clk` and `rst`.
    name : str
        Key in `ADAPTERS`.
    rng : random.Random
    stall : float
        Probability, per cycle, of a pause at each of the four streams. May be changed at any time.
    """
    family, width = name.rsplit("-", 1)
    kind = _MODELS[family]
    ports = {
        port.name: getattr(dut, port.name)
        for port in ADAPTERS[name].ports
        if "_axis_" not in port.name and port.name not in _OWN
    }
    ports["pcie_cq_np_req"] = _Credits(dut)
    ports["cfg_interrupt_msi_int"] = messages = FailingMessages(dut, rng)
    ports |= {
        f"cfg_mgmt_{name}": Zero(width)
        for name, width in (("write", 1), ("write_data", 32), ("byte_enable", 4))
    }
    if kind is _UltraScalePlus:
        ports["cfg_mgmt_function_number"] = Zero(8)
    streams = {
        f"{ours}_bus": AxiStreamBus.from_prefix(dut, theirs) for ours, theirs in _STREAMS.items()
    }
    device = kind(
        pcie_generation=3,
        pcie_link_width=_LANES[int(width)],
        user_clk_frequency=1000.0 * ULTRASCALE_KHZ,
        rc_straddle=int(width) == STRADDLE_WIDTH,
        max_payload_size=128 << PARAMETERS["DEV_CAP_MAX_PAYLOAD_SUPPORTED"],
        pf0_msi_enable=True,
        pf0_msix_enable=True,
        pf0_msix_table_size=PARAMETERS["MSIX_CAP_TABLE_SIZE"],
        pf0_msix_table_bir=PARAMETERS["MSIX_CAP_TABLE_BIR"],
        pf0_msix_table_offset=8 * PARAMETERS["MSIX_CAP_TABLE_OFFSET"],
        pf0_msix_pba_bir=PARAMETERS["MSIX_CAP_PBA_BIR"],
        pf0_msix_pba_offset=8 * PARAMETERS["MSIX_CAP_PBA_OFFSET"],
        user_clk=dut.clk,
        user_reset=dut.rst,
        **ports,
        **streams,
    )
    device.messages = messages
    device.watch(dut, rng, stall)
    return device
