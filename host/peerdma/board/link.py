# SPDX-License-Identifier: BSD-2-Clause
"""What a PCIe link can carry: the upper bound that measured rates are compared with.

Payload bytes per second, less the overhead of line code, skip ordered sets, framing, headers, and
the data link layer packets that acknowledge them. PCI Express Base Specification: encoding, ordered
sets, TLP and DLLP formats. Assumptions: one ACK per 4 TLPs, one credit update per 4 posted or
non-posted TLPs, completions as large as the max payload size unless told otherwise, no ECRC.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..regs import DESCRIPTOR

__all__ = ["Link"]

#: Bytes per second and lane, less line code and skip ordered sets, by PCIe generation.
_LANE_RATE = {
    1: 250e6 * (1 - 4 / 1538),
    2: 500e6 * (1 - 4 / 1538),
    3: 8e9 * 128 / 130 / 8 * (1 - 16.25 / 5920),
    4: 16e9 * 128 / 130 / 8 * (1 - 16.25 / 5920),
}
#: Start, sequence number, LCRC and end around a TLP.
_FRAMING = 8
#: One DLLP with its framing, shared by the 4 TLPs that it answers.
_DLLP = 8 / 4
_COMPLETION_HEADER = 12
#: Bytes of descriptors that the board reads at once.
_DESCRIPTOR_READ = 512


@dataclass(frozen=True)
class Link:
    """State of a board's PCIe link; sizes in bytes, `rcb` is the read completion boundary."""

    #: PCIe generation; 0 if the board does not answer any more
    speed: int
    #: lanes
    width: int
    max_payload: int
    max_read_request: int
    rcb: int

    def __str__(self) -> str:
        if not self.speed:
            return "no link: the board does not answer"
        return (
            f"PCIe Gen{self.speed} x{self.width}, max payload {self.max_payload} B, "
            f"max read request {self.max_read_request} B"
        )

    @property
    def raw_rate(self) -> float:
        """Bytes per second before packet overhead."""
        return _LANE_RATE[self.speed] * self.width

    def _request_header(self, wide: bool) -> int:
        return 16 if wide else 12

    def write_limit(self, wide: bool) -> float:
        """Payload bytes/s of memory writes upstream; `wide`: addresses from 4 GiB up."""
        overhead = self._request_header(wide) + _FRAMING
        return self.raw_rate * self.max_payload / (self.max_payload + overhead)

    def read_limit(self, wide: bool, completion: int | None = None) -> float:
        """Payload bytes/s of memory reads; `wide`: addresses from 4 GiB up.

        Of `completion` bytes each is what comes back, of max payload unless given.
        """
        request = self.max_read_request
        completions = request / (completion or self.max_payload)
        down = request + completions * (_COMPLETION_HEADER + _FRAMING) + 2 * _DLLP
        up = self._request_header(wide) + _FRAMING + completions * _DLLP
        return self.raw_rate * request / max(down, up)

    def copy_limit(self, wide: bool, completion: int | None = None) -> float:
        """Payload bytes/s, each way, of reading and writing at once; arguments as above."""
        request, pieces = self.max_read_request, self.max_read_request / self.max_payload
        completions = request / (completion or self.max_payload)
        header = self._request_header(wide) + _FRAMING
        up = request + pieces * header + header + completions * _DLLP
        down = request + completions * (_COMPLETION_HEADER + _FRAMING) + (1 + pieces) * 2 * _DLLP
        return self.raw_rate * request / max(up, down)

    def chain_limit(self, nbytes: int, *, reads: bool, writes: bool) -> float:
        """Payload bytes/s of a chain whose descriptors, of `nbytes` each, the board reads itself.

        All addresses are below 4 GiB.

        Parameters
        ----------
        nbytes : int
            A divisor or a multiple of the max payload size, of one read request at most.
        reads, writes : bool
            Whether data is read, and written; both for a copy, with a descriptor for each.
        """
        header, completion = self._request_header(False) + _FRAMING, _COMPLETION_HEADER + _FRAMING
        pieces = max(nbytes / self.max_payload, 1)
        # Of all that is read for one descriptor, and for its share of a read of descriptors.
        blocks = (reads + writes) * DESCRIPTOR.itemsize / _DESCRIPTOR_READ
        requests = reads + blocks
        completions = reads * pieces + blocks * max(_DESCRIPTOR_READ / self.max_payload, 1)
        written = writes * pieces
        up = writes * nbytes + (written + requests) * header + completions * _DLLP
        down = reads * nbytes + blocks * _DESCRIPTOR_READ + completions * completion
        down += (written + requests) * 2 * _DLLP
        return self.raw_rate * nbytes / max(up, down)
