# SPDX-License-Identifier: BSD-2-Clause
"""Transaction layer packets from their bytes (PCI Express Base Specification, chapter 2.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Kind", "Tlp"]

_FOUR_DWORDS, _HAS_DATA = 0x20, 0x40
_MEMORY, _COMPLETION, _MESSAGE = 0x00, 0x0A, 0x10
_ATTRIBUTES = {1: "no snoop", 2: "relaxed ordering"}
_STATUS = {0: "successful", 1: "Unsupported Request", 2: "retry", 4: "Completer Abort"}


class Kind:
    """Names of kinds, as the specification has them."""

    READ, WRITE, COMPLETION, DATA, MESSAGE, OTHER = "MRd", "MWr", "Cpl", "CplD", "Msg", "TLP"


@dataclass(frozen=True)
class Tlp:
    """A decoded TLP. What its kind does not have is 0.

    Attributes
    ----------
    kind : str
        One of `Kind`.
    length : int
        Bytes of its payload, or that a read asks for, in whole dwords.
    address : int
        Of the first dword of a memory request.
    first_be, last_be : int
        Byte enables of a memory request.
    tag, requester : int
        Of the request or, in a completion, of the request that is answered.
    status, byte_count, lower_address : int
        Of a completion.
    code : int
        Of a message.
    attributes, traffic_class : int
    poisoned : bool
    payload : bytes
    """

    kind: str
    length: int = 0
    address: int = 0
    first_be: int = 0
    last_be: int = 0
    tag: int = 0
    requester: int = 0
    status: int = 0
    byte_count: int = 0
    lower_address: int = 0
    code: int = 0
    attributes: int = 0
    traffic_class: int = 0
    poisoned: bool = False
    payload: bytes = b""

    @classmethod
    def decode(cls, data: bytes) -> Tlp:
        """The TLP that begins with `data[0]`; of kind `OTHER` if it is none that boards use."""
        if len(data) < 12:
            return cls(Kind.OTHER)
        words = [int.from_bytes(data[at : at + 4], "big") for at in range(0, min(len(data), 16), 4)]
        form = words[0] >> 24
        kind, dwords = form & 0x1F, words[0] & 0x3FF or 1024
        payload = data[16 if form & _FOUR_DWORDS else 12 :] if form & _HAS_DATA else b""
        common = cls(
            Kind.OTHER,
            length=4 * dwords,
            attributes=words[0] >> 12 & 3,
            traffic_class=words[0] >> 20 & 7,
            poisoned=bool(words[0] >> 14 & 1),
            payload=payload,
        )
        if kind == _COMPLETION:
            return replace(
                common,
                kind=Kind.DATA if payload else Kind.COMPLETION,
                length=len(payload),
                status=words[1] >> 13 & 7,
                byte_count=words[1] & 0xFFF or 4096,
                requester=words[2] >> 16,
                tag=words[2] >> 8 & 0xFF,
                lower_address=words[2] & 0x7F,
            )
        common = replace(common, requester=words[1] >> 16, tag=words[1] >> 8 & 0xFF)
        if kind == _MEMORY and not (form & _FOUR_DWORDS and len(words) < 4):
            address = words[2] << 32 | words[3] if form & _FOUR_DWORDS else words[2]
            return replace(
                common,
                kind=Kind.WRITE if payload else Kind.READ,
                address=address & ~3,
                first_be=words[1] & 15,
                last_be=words[1] >> 4 & 15,
            )
        if kind & 0x18 == _MESSAGE:
            return replace(common, kind=Kind.MESSAGE, length=0, code=words[1] & 0xFF)
        return cls(Kind.OTHER)

    @property
    def request(self) -> bool:
        """Whether it reads or writes memory."""
        return self.kind in (Kind.READ, Kind.WRITE)

    def fields(self) -> dict[str, str]:
        """What its header says, for people."""
        found: dict[str, str] = {}
        if self.request:
            found |= {"address": f"{self.address:#x}", "length": f"{self.length} bytes"}
            found["byte enables"] = f"first {self.first_be:#x}, last {self.last_be:#x}"
        elif self.kind in (Kind.DATA, Kind.COMPLETION):
            found["status"] = _STATUS.get(self.status, f"{self.status}")
            found |= {"length": f"{self.length} bytes", "byte count left": f"{self.byte_count}"}
            found["lower address"] = f"{self.lower_address:#04x}"
        elif self.kind == Kind.MESSAGE:
            found["code"] = f"{self.code:#04x}"
        if self.kind not in (Kind.MESSAGE, Kind.OTHER):
            found |= {"tag": f"{self.tag}", "requester": f"{self.requester:04x}"}
        if self.attributes:
            names = (name for bit, name in _ATTRIBUTES.items() if self.attributes & bit)
            found["attributes"] = ", ".join(names)
        if self.traffic_class:
            found["traffic class"] = f"{self.traffic_class}"
        if self.poisoned:
            found["poisoned"] = "yes"
        return found
