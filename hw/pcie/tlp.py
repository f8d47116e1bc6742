# SPDX-License-Identifier: BSD-2-Clause
"""TLP headers (PCI Express Base Specification, Transaction Layer Packet Definition).

Each dword is a struct with its least significant field first; a TLP's byte 0 is in bits 31:24.
"""

from amaranth import *
from amaranth.lib import data, enum

__all__ = [
    "CompletionDword1",
    "CompletionDword2",
    "Dword0",
    "RequestDword1",
    "TlpType",
    "length_of",
    "swapped",
]


class TlpType(enum.Enum, shape=5):
    """Type field of the TLPs that are distinguished here."""

    MEMORY = 0b00000
    MEMORY_LOCKED = 0b00001
    COMPLETION = 0b01010
    COMPLETION_LOCKED = 0b01011


class Dword0(data.Struct):
    """First dword of every TLP, least significant field first."""

    length: 10
    address_type: 2
    #: relaxed ordering and no snoop
    attributes: 2
    poisoned: 1
    digest: 1
    hints: 1
    _reserved16: 1
    id_ordering: 1
    _reserved19: 1
    traffic_class: 3
    _reserved23: 1
    type: 5
    four_dwords: 1
    with_data: 1
    prefix: 1


class RequestDword1(data.Struct):
    """Second dword of a memory request."""

    first_be: 4
    last_be: 4
    tag: 8
    requester_id: 16


class CompletionDword1(data.Struct):
    """Second dword of a completion."""

    #: 0 means 4096
    byte_count: 12
    modified: 1
    status: 3
    completer_id: 16


class CompletionDword2(data.Struct):
    """Third dword of a completion."""

    lower_address: 7
    _reserved7: 1
    tag: 8
    requester_id: 16


def length_of(dword0):
    """The length field in dwords, 1 to 1024: zero stands for 1024."""
    return Cat(dword0.length, dword0.length == 0)


def swapped(dword):
    """A payload dword with its bytes reversed: memory has byte 0 in bits 7:0, a TLP in 31:24."""
    return Cat(dword[8 * byte : 8 * byte + 8] for byte in reversed(range(4)))
