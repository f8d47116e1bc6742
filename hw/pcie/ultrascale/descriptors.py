# SPDX-License-Identifier: BSD-2-Clause
"""Descriptors of the four streams (PG156, PG213).

Least significant field first, dword 0 in bits 31:0. Payload follows in memory order.
"""

from amaranth.lib import data, enum

__all__ = [
    "CompleterCompletion",
    "CompleterRequest",
    "CompletionError",
    "RequestType",
    "RequesterCompletion",
    "RequesterRequest",
]


class RequestType(enum.Enum, shape=4):
    """Request Type field of requests, in either direction, as far as they are distinguished."""

    MEMORY_READ = 0
    MEMORY_WRITE = 1
    LOCKED_READ = 7
    #: the first of those that are messages
    MESSAGE = 12


class CompletionError(enum.Enum, shape=4):
    """Error Code field of requester completions; other values are reserved."""

    NONE = 0
    POISONED = 1
    #: its status is not Successful Completion
    BAD_STATUS = 2
    #: it has no data, or more of them to come than were asked for
    INVALID_LENGTH = 3
    #: it differs from the request with its tag in requester ID, traffic class or attributes
    MISMATCH = 4
    #: it does not begin at the byte that is due
    INVALID_ADDRESS = 5
    #: it belongs to no request
    INVALID_TAG = 6
    #: the block ends the request by itself, and all other fields but the tag are invalid
    FUNCTION_RESET = 8
    TIMEOUT = 9


class RequesterRequest(data.Struct):
    """Descriptor of a request of ours."""

    address: 64
    dwords: 11
    type: RequestType
    poisoned: 1
    #: device and function; the block adds the bus number, unless the enable below is set
    requester_id: 16
    tag: 8
    completer_id: 16
    requester_id_enable: 1
    traffic_class: 3
    attributes: 3
    force_ecrc: 1


class RequesterCompletion(data.Struct):
    """Descriptor of a completion of a request of ours."""

    #: all bits of the offset in 4 KiB, which no TLP has
    lower_address: 12
    error: CompletionError
    byte_count: 13
    locked: 1
    #: it is the last one of its request
    completed: 1
    _reserved31: 1
    dwords: 11
    status: 3
    poisoned: 1
    _reserved47: 1
    requester_id: 16
    tag: 8
    completer_id: 16
    _reserved88: 1
    traffic_class: 3
    attributes: 3
    _reserved95: 1


class CompleterRequest(data.Struct):
    """Descriptor of a request of the host's; bits 1:0 of its address are the address type."""

    address: 64
    dwords: 11
    type: RequestType
    _reserved79: 1
    requester_id: 16
    tag: 8
    function: 8
    bar: 3
    aperture: 6
    traffic_class: 3
    attributes: 3
    _reserved127: 1


class CompleterCompletion(data.Struct):
    """Descriptor of a completion of a request of the host's."""

    lower_address: 7
    _reserved7: 1
    address_type: 2
    _reserved10: 6
    byte_count: 13
    locked: 1
    _reserved30: 2
    dwords: 11
    status: 3
    poisoned: 1
    _reserved47: 1
    requester_id: 16
    tag: 8
    completer_id: 16
    completer_id_enable: 1
    traffic_class: 3
    attributes: 3
    force_ecrc: 1
