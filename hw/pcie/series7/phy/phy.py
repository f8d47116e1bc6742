# SPDX-License-Identifier: BSD-2-Clause
"""Transceiver, clocks and PCIe block together: from the pads to the transaction ports."""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from ...interface import PortsSignature
from ..parameters import Identity
from ..ports import TRN_PORTS
from .clocking import ClockTree, MmcmReset
from .eios import EiosFilter
from .gtp import GtpChannel, GtpCommon
from .pcie_block import PcieBlock
from .pipe import OobClock, Pipe
from .rate import RateChange
from .reset import ResetSequence, Watchdog
from .rx_width import RxWidth
from .synchronise import synchronised
from .tx_align import TxAlign

__all__ = ["Pads", "Phy"]


@dataclass(frozen=True)
class Pads:
    """Pads of the transceiver: a lane, and the reference clock of 100 MHz."""

    refclk_p: Value
    refclk_n: Value
    rx_p: Value
    rx_n: Value
    tx_p: Value
    tx_n: Value


class Phy(wiring.Component):
    """A Gen2 x1 endpoint up to the transaction ports of its PCIe block.

    Drives clock and reset of the domain `sync`, which the surrounding design has to define. Its
    clock is the user clock; it is in reset while the link is down and during a hot reset. The
    domains `pipe` and `drp` are defined here.

    Parameters
    ----------
    pads : Pads
    clock_khz : int
        Of the user clock: 62500 or 125000.
    identity : Identity

    Members
    -------
    trn : In(PortsSignature)
        The PCIe block's.
    perst_n : In(1)
        Asynchronous.
    clock_good, transceiver_good : Out(1)
        The MMCM is locked; the transceiver is up. Asynchronous, for LEDs.
    """

    def __init__(self, pads: Pads, clock_khz: int, identity: Identity = Identity()):
        self._pads, self._clock_khz, self._identity = pads, clock_khz, identity
        super().__init__(
            {
                "trn": In(PortsSignature(TRN_PORTS)),
                "perst_n": In(1),
                "clock_good": Out(1),
                "transceiver_good": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        for name in ("pipe", "drp"):
            m.domains += ClockDomain(name)
        # The reference clock, which does not depend on the MMCM, and the user clock without its
        # reset, for the logic that makes resets.
        for name in ("watch", "user"):
            m.domains += ClockDomain(name, local=True, reset_less=True)
        pads = self._pads

        m.submodules.common = common = GtpCommon(pads.refclk_p, pads.refclk_n)
        m.submodules.channel = channel = GtpChannel(pads.rx_p, pads.rx_n, pads.tx_p, pads.tx_n)
        m.submodules.tree = tree = ClockTree(self._clock_khz)
        m.d.comb += [
            channel.clocks.eq(common.clocks),
            common.drp_clock.eq(ClockSignal("drp")),
            tree.tx_out_clock.eq(channel.tx_out_clock),
            ClockSignal("sync").eq(tree.sync_clock),
            ClockSignal("pipe").eq(tree.pipe_clock),
            ClockSignal("drp").eq(tree.drp_clock),
            ClockSignal("watch").eq(tree.reference_clock),
            ClockSignal("user").eq(tree.sync_clock),
        ]
        self._sequences(m, common, channel, tree)
        return m

    def _sequences(self, m, common, channel, tree):
        in_pipe = DomainRenamer("pipe")
        m.submodules.reset = reset = in_pipe(ResetSequence())
        m.submodules.rate = rate = in_pipe(RateChange())
        m.submodules.align = align = in_pipe(TxAlign())
        m.submodules.width = width = DomainRenamer("drp")(RxWidth())
        m.submodules.eios = eios = in_pipe(EiosFilter())
        m.submodules.pipe = pipe = in_pipe(Pipe())
        m.submodules.oob = oob = in_pipe(OobClock())
        m.submodules.block = block = PcieBlock(self._identity, self._clock_khz)

        # PERST#, a lost MMCM lock and a hung sequence all restart transceiver and PCIe block.
        in_watch = DomainRenamer("watch")
        m.submodules.mmcm_reset = mmcm_reset = in_watch(MmcmReset())
        m.submodules.watchdog = watchdog = in_watch(Watchdog())
        down = Signal()
        m.d.comb += down.eq(~self.perst_n | ~tree.locked | watchdog.expired)
        for domain in ("pipe", "drp"):
            m.submodules[f"{domain}_reset"] = ResetSynchronizer(down, domain=domain)
        up = Signal()
        m.d.comb += [
            mmcm_reset.locked.eq(tree.locked),
            tree.reset.eq(mmcm_reset.reset),
            up.eq(reset.ready & rate.idle),
            # While PERST# is asserted nothing is expected to make progress.
            watchdog.done.eq(synchronised(m, up | ~self.perst_n, "watch")),
        ]

        m.d.comb += [
            common.pll_reset.eq(reset.pll_reset),
            channel.reset.eq(reset.gt_reset),
            channel.user_ready.eq(reset.user_ready),
            reset.pll_lock.eq(common.pll_lock),
            reset.rx_pma_reset_done.eq(channel.rx_pma_reset_done),
            reset.reset_done.eq(channel.tx_reset_done & channel.rx_reset_done),
            reset.phystatus.eq(channel.pipe.phystatus),
            reset.mmcm_locked.eq(tree.locked),
            rate.rate.eq(block.rate),
            rate.enable.eq(reset.ready),
            rate.rx_pma_reset_done.eq(channel.rx_pma_reset_done),
            rate.tx_rate_done.eq(channel.tx_rate_done),
            rate.rx_rate_done.eq(channel.rx_rate_done),
            rate.phystatus.eq(channel.pipe.phystatus),
            channel.rate.eq(rate.gt_rate),
            tree.fast.eq(rate.clock_select),
            oob.fast.eq(rate.clock_select),
            channel.oob_clock.eq(oob.clock),
            pipe.ready.eq(reset.ready),
            pipe.rate_idle.eq(rate.idle),
            pipe.rate_done.eq(rate.done),
        ]
        self._share(m, channel, width, align, (reset, rate))
        m.d.comb += eios.ltssm.eq(block.ltssm)
        wiring.connect(m, eios=eios.gt, channel=channel.pipe)
        wiring.connect(m, gt=pipe.gt, eios=eios.block)
        wiring.connect(m, block=block.pipe, pipe=pipe.block)
        self._block(m, block, reset.ready, tree)

    @staticmethod
    def _share(m, channel, width, align, users):
        """Reset sequence and rate change never run at the same time, so they share helpers."""
        reset, rate = users
        request = Signal()
        # Registered, for it crosses to another clock, which must not sample a glitch of the OR.
        m.d.pipe += request.eq(reset.width_request | rate.width_request)
        narrow = Signal()
        m.d.pipe += narrow.eq(Mux(reset.ready, rate.width_narrow, reset.width_narrow))
        m.d.comb += [
            width.request.eq(synchronised(m, request, "drp")),
            width.narrow.eq(narrow),
            align.request.eq(reset.align_request | rate.align_request),
        ]
        for user in users:
            m.d.comb += [user.width_done.eq(width.done), user.align_done.eq(align.done)]
        wiring.connect(m, width.drp, channel.drp)
        wiring.connect(m, align.phase, channel.phase)

    def _block(self, m, block, ready, tree):
        wiring.connect(m, block.trn, wiring.flipped(self.trn))
        up = Signal()
        m.d.pipe += up.eq(ready)
        m.d.comb += [
            block.sys_reset_n.eq(up),
            self.clock_good.eq(tree.locked),
            self.transceiver_good.eq(up),
        ]
        # Clocked by `user`: in `sync` they would be held by the reset that they make.
        held, bad = Signal(init=1), Signal(init=1)
        m.d.user += [
            bad.eq(~block.user_reset_n | ~block.trn.trnlnkup | block.hot_reset),
            held.eq(bad),
        ]
        m.d.comb += ResetSignal("sync").eq(held)
