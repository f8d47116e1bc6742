# SPDX-License-Identifier: BSD-2-Clause
"""Transceiver, clocks and PCIe block together: from the pads to the core's ports."""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.cdc import ResetSynchronizer
from amaranth.lib.wiring import In, Out

from ..ports import TrnSignature
from .clocking import ClockTree
from .gtp import GtpChannel, GtpCommon
from .pcie_block import Identity, PcieBlock
from .pipe import OobClock, Pipe
from .rate import RateChange
from .reset import Patience, ResetSequence
from .rx_width import RxWidth
from .synchronise import synchronised
from .tx_align import TxAlign

__all__ = ["Identity", "Pads", "Phy"]


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

    Drives the domain `sync`, which the design around it defines: the user clock, in reset while the
    link is down or the host resets it. Makes `pipe` and `drp` for itself.

    Parameters
    ----------
    pads : Pads
    clock_khz : int
        Of the user clock: 62500 or 125000.
    identity : Identity

    Members
    -------
    trn : In(TrnSignature)
        The PCIe block's.
    perst_n : In(1)
        Asynchronous.
    clock_good, transceiver_good : Out(1)
        The MMCM is locked; the transceiver is up. For LEDs: asynchronous.
    """

    def __init__(self, pads: Pads, clock_khz: int, identity: Identity = Identity()):
        self._pads, self._clock_khz, self._identity = pads, clock_khz, identity
        super().__init__(
            {
                "trn": In(TrnSignature()),
                "perst_n": In(1),
                "clock_good": Out(1),
                "transceiver_good": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        for name in ("pipe", "drp"):
            m.domains += ClockDomain(name)
        # The same clocks as drp's and sync's, without their resets: these find out about them.
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
            ClockSignal("watch").eq(tree.drp_clock),
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
        m.submodules.pipe = pipe = in_pipe(Pipe())
        m.submodules.oob = oob = in_pipe(OobClock())
        m.submodules.block = block = PcieBlock(self._identity, self._clock_khz)

        # Without a lock, with PERST#, and after a sequence that hung, all starts anew.
        m.submodules.patience = patience = DomainRenamer("watch")(Patience())
        down = Signal()
        m.d.comb += down.eq(~self.perst_n | ~tree.locked | patience.expired)
        for domain in ("pipe", "drp"):
            m.submodules[f"{domain}_reset"] = ResetSynchronizer(down, domain=domain)
        up = Signal()
        m.d.comb += [
            up.eq(reset.ready & rate.idle),
            # PERST# is no sequence that hangs.
            patience.done.eq(synchronised(m, up | ~self.perst_n, "watch")),
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
        wiring.connect(m, gt=pipe.gt, channel=channel.pipe)
        wiring.connect(m, block=block.pipe, pipe=pipe.block)
        self._block(m, block, reset.ready, tree)

    @staticmethod
    def _share(m, channel, width, align, users):
        """Reset and change of rate are never at work at once, so they share their helpers."""
        reset, rate = users
        request = Signal()
        # Out of flip-flops of two sequences: the helper's clock must not see the gate between.
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
        for name in ("en", "we", "addr", "di"):
            m.d.comb += getattr(channel, f"drp_{name}").eq(getattr(width, f"drp_{name}"))
        m.d.comb += [width.drp_do.eq(channel.drp_do), width.drp_rdy.eq(channel.drp_rdy)]
        for name in ("dlysreset", "phinit", "phalign", "dlyen"):
            m.d.comb += getattr(channel, name).eq(getattr(align, name))
        for name in ("dlysreset_done", "phinit_done", "phalign_done"):
            m.d.comb += getattr(align, name).eq(getattr(channel, name))

    def _block(self, m, block, ready, tree):
        wiring.connect(m, block.trn, wiring.flipped(self.trn))
        up = Signal()
        m.d.pipe += up.eq(ready)
        m.d.comb += [
            block.sys_reset_n.eq(up),
            self.clock_good.eq(tree.locked),
            self.transceiver_good.eq(up),
        ]
        # Registers of their own clock, not of the domain that they reset.
        held, bad = Signal(init=1), Signal(init=1)
        m.d.user += [
            bad.eq(~block.user_reset_n | ~block.trn.trnlnkup | block.hot_reset),
            held.eq(bad),
        ]
        m.d.comb += ResetSignal("sync").eq(held)
