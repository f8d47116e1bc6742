# SPDX-License-Identifier: BSD-2-Clause
"""Golden model of TLPs and of the 64-bit TRN beats that carry them, independent of the gateware.

Layouts: PCI Express Base Specification, Transaction Layer Packet Definition.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

#: Type field of the TLPs that the tests send.
MEMORY, LOCKED, IO, FETCH_ADD, MESSAGE = 0, 1, 2, 0b01100, 0b10100
COMPLETION, COMPLETION_LOCKED = 0b01010, 0b01011
COMPLETIONS = (COMPLETION, COMPLETION_LOCKED)


@dataclass
class Tlp:
    """One TLP; `data` is None without payload. Fields that a kind does not have stay at 0."""

    type: int
    data: bytes | None = None
    length: int = 0
    address: int = 0
    first_be: int = 0
    last_be: int = 0
    tag: int = 0
    requester_id: int = 0
    traffic_class: int = 0
    attributes: int = 0
    poisoned: int = 0
    completer_id: int = 0
    status: int = 0
    byte_count: int = 0
    lower_address: int = 0

    def dwords(self, digest: int | None = None) -> list[int]:
        """The whole TLP, byte 0 of each dword in bits 31:24, with a trailing digest if given."""
        payload = struct.unpack(f">{len(self.data or b'') // 4}I", self.data or b"")
        trailer = [] if digest is None else [digest]
        return [*self._header(digest is not None), *payload, *trailer]

    def _header(self, digest: bool) -> list[int]:
        four = self.type == MESSAGE or (self.type not in COMPLETIONS and self.address >> 32 != 0)
        first = (
            (self.data is not None) << 30
            | four << 29
            | self.type << 24
            | self.traffic_class << 20
            | (self.attributes >> 2) << 18
            | digest << 15
            | self.poisoned << 14
            | (self.attributes & 3) << 12
            | self.length & 0x3FF
        )
        if self.type in COMPLETIONS:
            return [
                first,
                self.completer_id << 16 | self.status << 13 | self.byte_count & 0xFFF,
                self.requester_id << 16 | self.tag << 8 | self.lower_address,
            ]
        second = self.requester_id << 16 | self.tag << 8 | self.last_be << 4 | self.first_be
        upper = [self.address >> 32] if four else []
        return [first, second, *upper, self.address & 0xFFFF_FFFF]

    @classmethod
    def parse(cls, dwords: list[int]) -> Tlp:
        """Inverse of `dwords`; fails on reserved bits and unless length and payload agree."""
        first, second, third = dwords[:3]
        assert not first & 0x808B_8C00, f"reserved or unused bits are set: {first:08x}"
        four, with_data = first >> 29 & 1, first >> 30 & 1
        tlp = cls(
            type=first >> 24 & 31,
            length=first & 0x3FF,
            traffic_class=first >> 20 & 7,
            attributes=first >> 16 & 4 | first >> 12 & 3,
            poisoned=first >> 14 & 1,
        )
        if with_data or tlp.type not in COMPLETIONS:
            tlp.length = tlp.length or 1024
        payload = dwords[3 + four :]
        assert len(payload) == (tlp.length if with_data else 0)
        if with_data:
            tlp.data = struct.pack(f">{len(payload)}I", *payload)
        if tlp.type in COMPLETIONS:
            assert not four
            tlp.completer_id, tlp.status = second >> 16, second >> 13 & 7
            tlp.byte_count = (second & 0xFFF) or 4096
            tlp.requester_id, tlp.tag = third >> 16, third >> 8 & 0xFF
            tlp.lower_address = third & 0x7F
        else:
            tlp.requester_id, tlp.tag = second >> 16, second >> 8 & 0xFF
            tlp.last_be, tlp.first_be = second >> 4 & 0xF, second & 0xF
            tlp.address = third << 32 | dwords[3] if four else third
            assert third or not four, "an address below 4 GiB takes the three-dword header"
        return tlp


def to_beats(dwords: list[int]) -> list[dict]:
    """TRN beats of a TLP: data, sof, eof, rem."""
    beats = []
    for at in range(0, len(dwords), 2):
        pair = dwords[at : at + 2]
        beats.append(
            {
                "data": pair[0] << 32 | (pair[1] if len(pair) == 2 else 0xDEAD_BEEF),
                "sof": at == 0,
                "eof": at + 2 >= len(dwords),
                "rem": len(pair) == 2,
            }
        )
    return beats


def from_beats(beats: list[dict]) -> list[list[int]]:
    """The TLPs that a sequence of beats carries; fails unless it is framed as it should be."""
    tlps, dwords, inside = [], [], False
    for beat in beats:
        assert beat["sof"] != inside, f"sof is {beat['sof']} {'in' if inside else 'outside'} a TLP"
        dwords.append(beat["data"] >> 32)
        if beat["rem"] or not beat["eof"]:
            dwords.append(beat["data"] & 0xFFFF_FFFF)
        inside = not beat["eof"]
        if not inside:
            tlps.append(dwords)
            dwords = []
    assert not inside, "the last TLP has no end"
    return tlps


def seam_beats(header: dict, data: bytes | None, width: int = 64) -> list[dict]:
    """A packet on the seam, as beats of `width` bits; one beat of nonsense if there is no data."""
    lanes = width // 8
    data = data or b"\x55" * lanes
    words = [data[at : at + lanes] for at in range(0, len(data), lanes)]
    return [
        {
            "header": header,
            "data": int.from_bytes(word.ljust(lanes, b"\xaa"), "little"),
            "first": number == 0,
            "last": number == len(words) - 1,
        }
        for number, word in enumerate(words)
    ]
