# SPDX-License-Identifier: BSD-2-Clause
"""The 7-series block as a core without an adapter sees it: the seam (`hw/seam.py`), at any width.

`SeamDevice` is `Series7Device` in all that is on the other side of the ports: link, buffers,
credits, configuration space, and the judge of every TLP. Here are beats and headers of the seam.
"""

from __future__ import annotations

from collections import deque

from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpAttr, TlpTc, TlpType
from cocotbext.pcie.core.utils import PcieId

from hw.pcie.series7.block import SERIES7
from hw.seam import BUS_WIDTH, TargetKind
from sim.board.session import Seam
from sim.compile.attached import ports_of_seam

from .checker import TlpError
from .receive_buffer import ReceiveBuffer
from .series7 import Series7Device

__all__ = ["SeamBeats", "SeamDevice"]

_LOCKED_READS = {TlpType.MEM_READ_LOCKED, TlpType.MEM_READ_LOCKED_64}
#: Kinds of the host's requests that are neither messages nor refused.
_SERVED = {
    TlpType.MEM_READ: TargetKind.READ,
    TlpType.MEM_READ_64: TargetKind.READ,
    TlpType.MEM_WRITE: TargetKind.WRITE,
    TlpType.MEM_WRITE_64: TargetKind.WRITE,
}
_MESSAGE = 0b10
#: Non-posted header credits, as the seam has them: infinite ones are the highest number.
_INFINITE = 0xFF
#: Streams to the core.
_INBOUND = ("requester_completion", "target")
#: Streams of the core's TLPs, in the order in which they are served.
_OUTBOUND = ("completion", "requester")


class SeamBeats(ReceiveBuffer):
    """What has come over the link, in beats of the seam."""

    def __init__(self, rng, width: int):
        super().__init__(rng)
        self._width, self._lanes = width, width // 8

    def beats_of(self, tlp: Tlp, bars: int) -> list[dict[str, int]]:
        """The beats of a TLP, by port. Lanes behind its payload hold anything."""
        name = "requester_completion" if tlp.is_completion() else "target"
        header = self._completion(tlp) if tlp.is_completion() else self._target(tlp, bars)
        common = {f"{name}_payload_header_{field}": int(value) for field, value in header.items()}
        common |= {f"{other}_valid": int(other == name) for other in _INBOUND}
        data = bytes(tlp.data)
        words = [data[at : at + self._lanes] for at in range(0, len(data), self._lanes)] or [b""]
        return [
            common
            | {
                f"{name}_payload_data": int.from_bytes(
                    word + self._rng.randbytes(self._lanes - len(word)), "little"
                ),
                f"{name}_payload_first": int(number == 0),
                f"{name}_payload_last": int(number == len(words) - 1),
            }
            for number, word in enumerate(words)
        ]

    @staticmethod
    def _completion(tlp: Tlp) -> dict[str, int]:
        return {
            "status": tlp.status,
            "byte_count": tlp.byte_count & 0xFFF or 4096,
            "lower_address": tlp.lower_address,
            "dwords": len(tlp.data) // 4,
            "tag": tlp.tag,
            "requester_id": tlp.requester_id,
            "traffic_class": tlp.tc,
            "attributes": tlp.attr,
            "poisoned": tlp.ep,
            "locked": tlp.fmt_type in (TlpType.CPL_LOCKED, TlpType.CPL_LOCKED_DATA),
        }

    @staticmethod
    def _target(tlp: Tlp, bars: int) -> dict[str, int]:
        other = TargetKind.MESSAGE if tlp.type >> 3 == _MESSAGE else TargetKind.OTHER
        return {
            "kind": _SERVED.get(tlp.fmt_type, other).value,
            "address": tlp.address & ~3,
            "dwords": tlp.length or 1024,
            "first_be": tlp.first_be,
            "last_be": tlp.last_be,
            "bar": bars.bit_length() - 1,
            "tag": tlp.tag,
            "requester_id": tlp.requester_id,
            "traffic_class": tlp.tc,
            "attributes": tlp.attr,
            "poisoned": tlp.ep,
            "locked": tlp.fmt_type in _LOCKED_READS,
        }

    def rest(self, last: dict[str, int]) -> int:
        """First beats are two cycles apart; a block as wide as the bus leaves one out after each
        request of the host."""
        completes = last["requester_completion_valid"]
        single = last[f"{'requester_completion' if completes else 'target'}_payload_first"]
        return int(bool(single) or (not completes and self._width == BUS_WIDTH))


class SeamDevice(Series7Device):
    """One function behind a block whose seam is the core's ports.

    Parameters
    ----------
    dut
        The core in reset, with the ports of `sim.compile.attached` and `clk`.
    rng, lanes, stall
        As of `Series7Device`.
    seam : Seam
        What the core was built for.
    """

    def __init__(self, dut, rng, seam: Seam, *, lanes: int = 1, stall: float = 0.0):
        self._seam, self._seam_ports = seam, ports_of_seam(seam)
        self._lanes = seam.width // 8
        #: the stream whose packet is under way, and its header
        self._stream: str | None = None
        self._header: dict[str, int] = {}
        #: streams that offered a first beat in the cycle before
        self._waiting: list[str] = []
        #: tokens of writes that have left: cycles until they are given back, and whether dropped
        self._tokens: deque[tuple[int, int, bool]] = deque()
        super().__init__(dut, rng, lanes=lanes, stall=stall)

    # The inputs of the core -----------------------------------------------------------------

    def _port_names(self) -> list[str]:
        return [port.name for port in self._seam_ports]

    def _receive_buffer(self) -> ReceiveBuffer:
        return SeamBeats(self._rng, self._seam.width)

    def _begin(self) -> None:
        for port in self._seam_ports:
            if port.direction == "i":
                self._set(port.name, 0)

    def _go_idle(self) -> None:
        self._begin()
        self._stream, self._waiting = None, []
        self._tokens.clear()

    def _configuration(self) -> tuple[tuple[str, int], ...]:
        function, capability = self.function, self.function.pcie_cap
        return (
            ("link_link_up", 1),
            ("link_bus_master", function.bus_master_enable),
            ("link_intx_disable", function.interrupt_disable),
            ("link_msi_enable", function.msi_cap.msi_enable),
            ("link_msi_granted", function.msi_cap.msi_multiple_message_enable),
            ("link_msix_enable", function.msix_cap.msix_enable),
            ("link_msix_mask", function.msix_cap.msix_function_mask),
            ("link_max_payload", capability.max_payload_size),
            ("link_max_read_request", capability.max_read_request_size),
            ("link_rcb", capability.read_completion_boundary),
            ("link_extended_tag", capability.extended_tag_field_enable),
            ("link_relaxed_ordering", capability.enable_relaxed_ordering),
            ("link_requester_id", function.pcie_id),
            ("link_speed", capability.current_link_speed),
            ("link_width", capability.negotiated_link_width),
        )

    def _drive_credits(self) -> None:
        state = self.upstream_port.fc_state[0].nph
        infinite = state.tx_is_infinite()
        left = _INFINITE if infinite else min(state.tx_credits_available, _INFINITE - 1)
        self._set("link_np_headers", left)

    # To the core ----------------------------------------------------------------------------

    def _np_ok(self) -> bool:
        return bool(self._get("target_np_ok"))

    def _offer(self, beat: dict[str, int] | None) -> None:
        for name, value in (beat or {f"{name}_valid": 0 for name in _INBOUND}).items():
            self._set(name, value)

    def _core_takes(self) -> bool:
        narrow = self._seam.width == BUS_WIDTH
        return narrow or not self._driven["target_valid"] or bool(self._get("target_ready"))

    # From the core --------------------------------------------------------------------------

    def _take(self, takes: bool) -> None:
        """A first beat is taken when it has been offered for a cycle; completions come first."""
        chosen = self._stream or next((one for one in _OUTBOUND if one in self._waiting), None)
        for name in _OUTBOUND:
            self._set(f"{name}_ready", int(takes and name == chosen))
        self._set("link_read_room", int(self.buffers.shown > 0))
        self._set("link_write_room", int(self.buffers.shown > 1))
        due = bool(self._tokens) and self._tokens[0][0] <= self._cycle
        self._set("sent_valid", int(due))
        if due:
            _, token, dropped = self._tokens.popleft()
            self._set("sent_payload_token", token)
            self._set("sent_payload_dropped", int(dropped))

    def _sample_transmit(self) -> None:
        valid = {name: bool(self._get(f"{name}_valid")) for name in _OUTBOUND}
        for name in self._waiting:
            if not valid[name]:
                raise TlpError(f"the core takes back a beat that it has offered: {name}")
        ready = next((name for name in _OUTBOUND if self._driven[f"{name}_ready"]), None)
        taken = ready if ready and valid[ready] else None
        if ready:
            self._count_grace(taken is not None)
        # A packet may stand still within, but what it offers stays.
        self._waiting = [name for name, offered in valid.items() if offered and name != taken]
        if taken:
            self._take_beat(taken)

    def _take_beat(self, name: str) -> None:
        first = self._get(f"{name}_payload_first")
        if bool(first) != (self._stream is None):
            raise TlpError("first within a packet" if first else "a beat before a packet's first")
        fields = self._fields(name)
        if first:
            self._stream, self._header = name, fields
            self._begin_tlp(completion=name == "completion")
        elif fields != self._header:
            raise TlpError(f"the header changes within a packet: {self._header}, then {fields}")
        self._tx_raw += self._get(f"{name}_payload_data").to_bytes(self._lanes, "little")
        if not self._get(f"{name}_payload_last"):
            return
        data, self._tx_raw, self._stream = bytes(self._tx_raw), None, None
        write = name == "requester" and fields["write"]
        nbytes = 4 * fields["dwords"] if write or name == "completion" else 0
        if len(data) != max(-(-nbytes // self._lanes), 1) * self._lanes:
            raise TlpError(f"{len(data)} bytes of beats for a payload of {nbytes}")
        make = self._request if name == "requester" else self._answer
        dropped = self._accept(bytes(make(fields, data[:nbytes]).pack()))
        if write:
            late = self._cycle + self._rng.randrange(1, SERIES7.drop_lag)
            self._tokens.append((late, fields["token"], dropped))

    def _fields(self, name: str) -> dict[str, int]:
        prefix = f"{name}_payload_header_"
        return {
            port.removeprefix(prefix): self._get(port)
            for port in self._ports
            if port.startswith(prefix)
        }

    def _request(self, header: dict[str, int], data: bytes) -> Tlp:
        tlp = Tlp()
        high = header["address"] >> 32 != 0
        if header["write"]:
            tlp.fmt_type = TlpType.MEM_WRITE_64 if high else TlpType.MEM_WRITE
        else:
            tlp.fmt_type = TlpType.MEM_READ_64 if high else TlpType.MEM_READ
            tlp.tag = header["tag"]
        tlp.attr = TlpAttr.RO if header["relaxed"] else TlpAttr(0)
        tlp.requester_id = self.function.pcie_id
        tlp.address, tlp.length = header["address"], header["dwords"] & 0x3FF
        tlp.first_be, tlp.last_be = header["first_be"], header["last_be"]
        tlp.data = bytearray(data)
        return tlp

    def _answer(self, header: dict[str, int], data: bytes) -> Tlp:
        tlp = Tlp()
        kinds = (
            (TlpType.CPL_DATA, TlpType.CPL_LOCKED_DATA)
            if data
            else (TlpType.CPL, TlpType.CPL_LOCKED)
        )
        tlp.fmt_type = kinds[header["locked"]]
        tlp.tc, tlp.attr = TlpTc(header["traffic_class"]), TlpAttr(header["attributes"])
        tlp.ep, tlp.status = bool(header["poisoned"]), CplStatus(header["status"])
        tlp.completer_id = self.function.pcie_id
        tlp.requester_id = PcieId.from_int(header["requester_id"])
        tlp.byte_count, tlp.lower_address = header["byte_count"], header["lower_address"]
        tlp.tag, tlp.length = header["tag"], header["dwords"] & 0x3FF
        tlp.data = bytearray(data)
        return tlp

    # Interrupts and errors ------------------------------------------------------------------

    def _take_interrupt(self, ready: bool) -> None:
        self._set("interrupt_ready", int(ready))

    def _requested(self) -> tuple[int, bool] | None:
        if not self._get("interrupt_valid"):
            return None
        msi = self._get("interrupt_payload_msi")
        number = self._get("interrupt_payload_vector") if msi else 0
        return number, bool(self._get("interrupt_payload_asserted"))

    def _sample_errors(self) -> None:
        names = "reads_pending", "timed_out", "unexpected"
        self._note_errors(*(bool(self._get(name)) for name in names))
