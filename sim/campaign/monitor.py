# SPDX-License-Identifier: BSD-2-Clause
"""What the core's ports show of how it is used: reads in flight, order, and what holds it up."""

from __future__ import annotations

from dataclasses import dataclass

from cocotbext.pcie.core.tlp import CplStatus, Tlp

from sim.benches.checker import MEMORY_READS
from sim.benches.host import Gpu

from .coverage import band
from .plan import Episode
from .rig import Rig
from .table import GROUPS

__all__ = ["Monitor", "Read"]

_READ = next(group.points for group in GROUPS if group.name == "read")
#: No tag of a read that is lost may come back before: four completion timeouts of 50 us each have
#: to pass since it timed out, and a driver hears of that at most two later.
QUARANTINE_NS = 100_000
#: Writes that the core has in the block on a link that acknowledges at once.
_USUAL_WRITES = 4
#: Data credits of a memory write of 128 bytes.
_SMALLEST = 8


@dataclass
class Read:
    """A read that waits for completions."""

    of: str
    number: int
    #: of the bytes that are still to come, and how many these are
    address: int
    left: int
    completions: int = 0

    def take(self, tlp: Tlp) -> bool:
        """Whether a completion with data is the next one of this read."""
        carried = min(self.left, 4 * tlp.length - tlp.lower_address % 4)
        fits = (tlp.byte_count, tlp.lower_address) == (self.left, self.address & 0x7F)
        self.completions += 1
        self.address += carried
        self.left -= carried
        # None has a dword more than what is left needs.
        return fits and 4 * tlp.length < tlp.lower_address % 4 + tlp.byte_count + 4


class Monitor:
    """Samples coverage of what crosses the ports."""

    def __init__(self, rig: Rig):
        self._rig = rig
        self._reads: dict[int, Read] = {}
        self._number = 0
        self._episode: Episode | None = None
        self._together = 0
        rig.device.on_tlp.append(self._listen)
        rig.on_reset.append(self.forget)

    def forget(self) -> None:
        """What was asked for before is lost."""
        self._reads.clear()

    def begin(self, episode: Episode) -> None:
        """The next TLPs are those of this episode."""
        self._episode = episode
        self._together = 0

    def end_good(self, episode: Episode) -> None:
        """All that was promised for the episode was kept."""
        if self._together:
            channels = self._rig.channels_each_way
            self._rig.seen.sample("together", channels=channels, running=self._together)

    def _listen(self, direction: str, tlp: Tlp) -> None:
        if self._episode is None:
            return
        if direction == "down":
            if tlp.is_completion():
                self._completion(tlp)
            return
        self._together = max(self._together, len(self._rig.running))
        self._pressure()
        if tlp.fmt_type in MEMORY_READS:
            self._read(tlp)

    def _read(self, tlp: Tlp) -> None:
        rig = self._rig
        if tlp.tag in rig.lost:
            since = rig.now_ns() - rig.lost.pop(tlp.tag)
            assert since > QUARANTINE_NS, f"tag {tlp.tag} is used {since} ns after it was lost"
        for tag in rig.lost:
            self._reads.pop(tag, None)
        function = rig.gpu.function
        base = (function.bar[1] << 32 | function.bar[0]) & ~0xF
        of = "gpu" if base <= tlp.address < base + Gpu.SIZE else "host"
        self._number += 1
        address = tlp.address + tlp.get_first_be_offset()
        self._reads[tlp.tag] = Read(of, self._number, address, tlp.get_be_byte_count())
        rig.seen.sample("read", **{"in flight": band(len(self._reads), _READ["in flight"])})

    def _completion(self, tlp: Tlp) -> None:
        read = self._reads.get(tlp.tag)
        if read is None:
            return
        good = tlp.status == CplStatus.SC and not tlp.ep and read.take(tlp)
        if good and read.left:
            return
        del self._reads[tlp.tag]
        if not good:
            return
        overtaken = any(other.number < read.number for other in self._reads.values())
        around = self._episode.surroundings
        longest = around.latency_ns[1]
        self._rig.seen.sample(
            "read",
            of=read.of,
            completions=band(read.completions, _READ["completions"]),
            order="overtaken" if overtaken else "in order",
            split=around.split,
            latency="none" if not longest else "some" if longest < 1000 else "long",
        )

    def _pressure(self) -> None:
        rig = self._rig
        way = rig.during
        if way == "idle":
            return
        device = rig.device
        credits = device.upstream_port.fc_state[0]
        data = credits.pd.tx_credits_available
        block = {}
        if rig.machine.ours:
            longest, buffers = device.received.gap[1], device.buffers
            block = {
                "idle": "none" if not longest else "one" if longest == 1 else "several",
                "buffers": _amount(buffers.free, buffers.count - _USUAL_WRITES),
            }
        rig.seen.sample(
            "pressure",
            way=way,
            stalls="none" if not device.stall else "light" if device.stall < 0.2 else "heavy",
            posted=_amount(min(credits.ph.tx_credits_available, data // _SMALLEST), 3),
            nonposted=_amount(credits.nph.tx_credits_available, 3),
            completion=_amount(credits.cplh.tx_credits_available, 3),
            **block,
        )


def _amount(left: int, few: int) -> str:
    return "none" if left <= 0 else "few" if left <= few else "plenty"
