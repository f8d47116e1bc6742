# SPDX-License-Identifier: BSD-2-Clause
"""A passive judge of every TLP that crosses a device's link, in both directions.

Rules are those of the PCI Express Base Specification 2.1, chapter 2; each message names its
section. The judge keeps the requests that are outstanding on either side and nothing else, and
takes limits (MPS, MRRS, RCB, tags) from the device's configuration space.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpAt, TlpAttr, TlpType

__all__ = ["TlpChecker", "TlpError"]

MEMORY_READS = {TlpType.MEM_READ, TlpType.MEM_READ_64}
LOCKED_READS = {TlpType.MEM_READ_LOCKED, TlpType.MEM_READ_LOCKED_64}
MEMORY_WRITES = {TlpType.MEM_WRITE, TlpType.MEM_WRITE_64}
#: An endpoint may split its completions at 128-byte boundaries only (2.3.1.1).
ENDPOINT_RCB = 128

#: First-dword byte enables without a hole up to the end of the dword, and last-dword ones.
_FIRST_BE = {0b1111, 0b1110, 0b1100, 0b1000}
_LAST_BE = {0b0001, 0b0011, 0b0111, 0b1111}


class TlpError(AssertionError):
    """A TLP breaks the base specification; the message has the rule and the TLP."""


@dataclass
class _Pending:
    """A non-posted request that is not answered in full: next byte wanted, bytes wanted."""

    request: Tlp
    address: int
    remaining: int

    @classmethod
    def of(cls, request: Tlp) -> _Pending:
        if request.fmt_type not in MEMORY_READS:
            return cls(request, 0, 0)
        if request.first_be == 0:  # zero-length read: one byte, whatever it is (2.2.5)
            return cls(request, request.address, 1)
        return cls(
            request,
            request.address + request.get_first_be_offset(),
            request.get_be_byte_count(),
        )


class TlpChecker:
    """Judges the TLPs of the device whose configuration space is `function`.

    `upstream` and `downstream` take each TLP in the order in which it crosses the transaction
    interface and raise `TlpError` for one that must not be there.
    """

    def __init__(self, function):
        self._function = function
        self._reads: dict[int, _Pending] = {}
        self._served: dict[tuple[int, int], _Pending] = {}
        self._planted: Counter[bytes] = Counter()
        #: tags of reads of which the block has lost a completion
        self._lost: set[int] = set()

    def plant(self, tlp: Tlp) -> None:
        """A TLP like this one is on its way to the device, and wrong on purpose."""
        self._planted[bytes(tlp.pack())] += 1

    @property
    def outstanding_tags(self) -> set[int]:
        """Tags of the device's reads that are not answered in full."""
        return set(self._reads)

    @property
    def unanswered(self) -> list[Tlp]:
        """Requests to the device that it has not answered in full."""
        return [pending.request for pending in self._served.values()]

    def forget(self) -> None:
        """The link went down: nothing of before will be answered."""
        self._reads.clear()
        self._served.clear()
        self._planted.clear()
        self._lost.clear()

    def abandon(self, tag: int) -> None:
        """The read with this tag will never be answered; the device may use the tag again."""
        del self._reads[tag]

    def lose(self, tlp: Tlp) -> None:
        """The block has lost this completion: what else comes for its read does not fit, until the
        device uses the tag again."""
        if self._reads.pop(tlp.tag, None):
            self._lost.add(tlp.tag)

    def upstream(self, tlp: Tlp, *, bus_master: bool) -> None:
        """Judge a TLP of the device; `bus_master` says whether it may send requests."""
        self._framing(tlp)
        if tlp.is_completion():
            _require(
                tlp.completer_id == self._function.pcie_id, "2.2.9 completer ID is not ours", tlp
            )
            self._completion(tlp, self._served, _server_key(tlp), ENDPOINT_RCB)
            return
        _require(
            tlp.fmt_type in MEMORY_READS | MEMORY_WRITES, "only memory requests are expected", tlp
        )
        _require(bus_master, "7.5.1.1 request while Bus Master Enable is 0", tlp)
        _require(
            tlp.requester_id == self._function.pcie_id, "2.2.6.2 requester ID is not ours", tlp
        )
        self._memory_request(tlp)
        if tlp.fmt_type in MEMORY_READS:
            self._read_request(tlp)

    def downstream(self, tlp: Tlp) -> None:
        """Judge a TLP to the device."""
        if self._planted:
            raw = bytes(tlp.pack())
            if self._planted[raw] > 0:
                self._planted[raw] -= 1
                return
        self._framing(tlp)
        if tlp.is_completion():
            if tlp.tag in self._lost:
                return
            rcb = 128 if self._function.pcie_cap.read_completion_boundary else 64
            self._completion(tlp, self._reads, tlp.tag, rcb)
            return
        if tlp.fmt_type in MEMORY_READS | MEMORY_WRITES:
            self._memory_request(tlp)
        if tlp.is_nonposted():
            key = _server_key(tlp)
            _require(key not in self._served, "2.2.6.2 tag of an outstanding request", tlp)
            self._served[key] = _Pending.of(tlp)

    def _framing(self, tlp: Tlp) -> None:
        payload = len(tlp.data)
        if tlp.has_data():
            _require(payload == 4 * tlp.length, "2.2.2 payload differs from Length", tlp)
            _require(payload <= self._max_payload, "2.2.2 payload exceeds Max_Payload_Size", tlp)
        else:
            _require(payload == 0, "2.2.1 payload on a TLP whose format has none", tlp)
        _require(not tlp.td, "2.7 ECRC announced, none expected", tlp)
        _require(not (tlp.th or tlp.ln or tlp.ph), "2.2.7 reserved header bit set", tlp)
        _require(tlp.at == TlpAt.DEFAULT, "2.2.4.1 address type is not untranslated", tlp)

    @property
    def _max_payload(self) -> int:
        return 128 << self._function.pcie_cap.max_payload_size

    def _memory_request(self, tlp: Tlp) -> None:
        four_dw = tlp.fmt_type in {TlpType.MEM_READ_64, TlpType.MEM_WRITE_64}
        _require(
            four_dw == (tlp.address >= 1 << 32), "2.2.4.1 4DW header if and only if >= 4 GiB", tlp
        )
        _require(tlp.address % 4096 + 4 * tlp.length <= 4096, "2.2.7 request crosses 4 KiB", tlp)
        if tlp.length == 1:
            _require(tlp.last_be == 0, "2.2.5 last byte enables of a 1-dword request", tlp)
            return
        _require(
            tlp.first_be != 0 and tlp.last_be != 0, "2.2.5 empty byte enables, several dwords", tlp
        )
        if not (tlp.length == 2 and tlp.address % 8 == 0):
            _require(
                tlp.first_be in _FIRST_BE and tlp.last_be in _LAST_BE,
                "2.2.5 byte enables with a hole",
                tlp,
            )

    def _read_request(self, tlp: Tlp) -> None:
        capability = self._function.pcie_cap
        _require(
            4 * tlp.length <= 128 << capability.max_read_request_size,
            "2.2.7 read exceeds Max_Read_Request_Size",
            tlp,
        )
        _require(
            tlp.tag < (256 if capability.extended_tag_field_enable else 32),
            "2.2.6.2 tag needs Extended Tag Field Enable",
            tlp,
        )
        _require(tlp.tag not in self._reads, "2.2.6.2 tag of an outstanding request", tlp)
        _require(
            capability.enable_relaxed_ordering or not tlp.attr & TlpAttr.RO,
            "2.2.6.4 relaxed ordering is not enabled",
            tlp,
        )
        self._lost.discard(tlp.tag)
        self._reads[tlp.tag] = _Pending.of(tlp)

    def _completion(self, tlp: Tlp, table: dict, key, rcb: int) -> None:
        pending = table.get(key)
        if pending is None:
            raise TlpError(f"2.3.2 completion that nobody waits for: {_show(tlp)}")
        request = pending.request
        _require(
            (tlp.tc, tlp.attr) == (request.tc, request.attr),
            "2.2.9 traffic class or attributes differ from the request's",
            tlp,
        )
        locked = tlp.fmt_type in (TlpType.CPL_LOCKED, TlpType.CPL_LOCKED_DATA)
        _require(
            locked == (request.fmt_type in LOCKED_READS),
            "2.2.9 locked reads, and no others, have locked completions",
            tlp,
        )
        if tlp.status != CplStatus.SC:
            _require(not tlp.has_data(), "2.2.9 failed completion with data", tlp)
            del table[key]
            return
        if request.fmt_type not in MEMORY_READS:
            del table[key]
            return
        _require(tlp.has_data(), "2.2.9 successful read completion without data", tlp)
        _require(
            tlp.byte_count == pending.remaining,
            f"2.2.9 byte count, {pending.remaining} bytes are due",
            tlp,
        )
        _require(
            tlp.lower_address == pending.address % 128,
            f"2.2.9 lower address, {pending.address % 128:#x} is due",
            tlp,
        )
        end = pending.address // 4 * 4 + 4 * tlp.length
        if end >= pending.address + pending.remaining:
            _require(
                end - (pending.address + pending.remaining) < 4,
                "2.3.1.1 completion is longer than the request",
                tlp,
            )
            del table[key]
            return
        _require(end % rcb == 0, f"2.3.1.1 split off the {rcb}-byte boundary", tlp)
        pending.remaining -= end - pending.address
        pending.address = end


def _server_key(tlp: Tlp) -> tuple[int, int]:
    """What identifies a request to the device: who asked, and the tag."""
    return int(tlp.requester_id), tlp.tag


def _require(condition: bool, rule: str, tlp: Tlp) -> None:
    if not condition:
        raise TlpError(f"{rule}: {_show(tlp)}")


def _show(tlp: Tlp) -> str:
    if tlp.is_completion():
        return (
            f"{tlp.fmt_type.name} {tlp.status.name} from {tlp.completer_id} to {tlp.requester_id}"
            f" tag {tlp.tag}, byte count {tlp.byte_count}, lower address {tlp.lower_address:#x},"
            f" {tlp.length} dwords, attributes {tlp.attr!s}"
        )
    return (
        f"{tlp.fmt_type.name} from {tlp.requester_id} tag {tlp.tag}, address {tlp.address:#x},"
        f" {tlp.length} dwords, byte enables {tlp.first_be:04b}/{tlp.last_be:04b},"
        f" attributes {tlp.attr!s}"
    )
