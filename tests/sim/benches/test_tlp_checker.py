# SPDX-License-Identifier: BSD-2-Clause
"""The benches' TLP checker: every rule lets good TLPs pass and catches a broken one."""

from __future__ import annotations

import pytest
from cocotbext.pcie.core import Endpoint
from cocotbext.pcie.core.tlp import CplStatus, Tlp, TlpAt, TlpAttr, TlpType
from cocotbext.pcie.core.utils import PcieId

from sim.benches.checker import TlpChecker, TlpError

US, ROOT = PcieId(3, 0, 0), PcieId(0, 0, 0)


@pytest.fixture
def checker() -> TlpChecker:
    function = Endpoint()
    function.pcie_id = US
    function.pcie_cap.max_payload_size = 0  # 128 bytes
    function.pcie_cap.max_read_request_size = 1  # 256 bytes
    return TlpChecker(function)


def read(address=0x1000, length=64, tag=1, requester=US, **fields) -> Tlp:
    tlp = Tlp()
    tlp.fmt_type = TlpType.MEM_READ_64 if address >> 32 else TlpType.MEM_READ
    tlp.requester_id, tlp.tag = requester, tag
    tlp.set_addr_be(address, length)
    return change(tlp, **fields)


def write(address=0x1000, length=64, requester=US, **fields) -> Tlp:
    tlp = Tlp()
    tlp.fmt_type = TlpType.MEM_WRITE_64 if address >> 32 else TlpType.MEM_WRITE
    tlp.requester_id = requester
    tlp.set_addr_be_data(address, bytes(length))
    return change(tlp, **fields)


def completion(request: Tlp, start=0, dwords=None, **fields) -> Tlp:
    """Completion of `request` from its dword `start` on."""
    dwords = request.length - start if dwords is None else dwords
    tlp = Tlp.create_completion_data_for_tlp(request, ROOT if request.requester_id == US else US)
    skip = request.get_first_be_offset()
    tlp.byte_count = request.get_be_byte_count() - max(0, 4 * start - skip)
    tlp.lower_address = (request.address + max(4 * start, skip)) & 0x7F
    tlp.set_data(bytes(4 * dwords))
    return change(tlp, **fields)


def change(tlp: Tlp, **fields) -> Tlp:
    for name, value in fields.items():
        setattr(tlp, name, value)
    return tlp


BROKEN_REQUESTS = {
    "3DW needed": (read(fmt_type=TlpType.MEM_READ_64), "4DW header"),
    "4DW needed": (read(1 << 32, fmt_type=TlpType.MEM_READ), "4DW header"),
    "4 KiB": (write(0x1FC0, 128), "crosses 4 KiB"),
    "payload": (write(length=132), "Max_Payload_Size"),
    "length field": (change(write(), length=15), "payload differs"),
    "read request size": (read(length=260), "Max_Read_Request_Size"),
    "last byte enables of one dword": (read(length=4, last_be=0xF), "1-dword"),
    "no last byte enables": (read(length=8, last_be=0), "empty byte enables"),
    "hole in first byte enables": (write(first_be=0b1011), "with a hole"),
    "hole in last byte enables": (write(last_be=0b1101), "with a hole"),
    "tag too large": (read(tag=32), "Extended Tag"),
    "requester": (read(requester=PcieId(4, 0, 0)), "requester ID"),
    "ECRC": (read(td=True), "ECRC"),
    "reserved bit": (read(ph=1), "reserved"),
    "address type": (read(at=TlpAt.TRANSLATED), "address type"),
    "relaxed ordering": (read(attr=TlpAttr.RO), "relaxed ordering"),
    "kind": (read(fmt_type=TlpType.IO_READ), "only memory requests"),
}


@pytest.mark.parametrize("case", BROKEN_REQUESTS)
def test_broken_request(checker, case):
    tlp, message = BROKEN_REQUESTS[case]
    checker._function.pcie_cap.enable_relaxed_ordering = False
    with pytest.raises(TlpError, match=message):
        checker.upstream(tlp, bus_master=True)


GOOD_REQUESTS = {
    "3DW": read(0xFFFF_FF00, 256, tag=31),
    "4DW": read(1 << 32, 256),
    "up to 4 KiB": write(0x1F80, 128),
    "bytes": write(0x1003, 1),
    "unaligned": write(0x1003, 100),
    "byte enables with holes, aligned pair": write(0x1000, 8, first_be=0b0101, last_be=0b1010),
    "nothing": read(0x1000, 4, first_be=0),
}


@pytest.mark.parametrize("case", GOOD_REQUESTS)
def test_good_request(checker, case):
    checker.upstream(GOOD_REQUESTS[case], bus_master=True)


def test_no_requests_without_bus_master(checker):
    with pytest.raises(TlpError, match="Bus Master"):
        checker.upstream(write(), bus_master=False)


def test_tag_is_free_again_after_the_last_completion(checker):
    request = read(0x1010, 0x90)
    checker.upstream(request, bus_master=True)
    with pytest.raises(TlpError, match="outstanding"):
        checker.upstream(read(), bus_master=True)
    checker.downstream(completion(request, 0, 12))
    assert checker.outstanding_tags == {1}
    checker.downstream(completion(request, 12))
    assert checker.outstanding_tags == set()
    checker.upstream(read(), bus_master=True)


def test_a_read_whose_completion_is_lost_is_not_judged(checker):
    request = read(0x1010, 0x90)
    checker.upstream(request, bus_master=True)
    checker.lose(completion(request, 0, 12))
    assert checker.outstanding_tags == set()
    checker.downstream(completion(request, 12))
    checker.upstream(request, bus_master=True)
    with pytest.raises(TlpError, match="byte count"):
        checker.downstream(completion(request, 12))


#: Second completions of a 200-byte read from 0x1003, after a good first one up to 0x1040.
BROKEN_COMPLETIONS = {
    "byte count": ({"byte_count": 100}, "139 bytes are due"),
    "lower address": ({"lower_address": 0}, "0x40 is due"),
    "attributes": ({"attr": TlpAttr.NS}, "attributes differ"),
    "no data": ({"fmt_type": TlpType.CPL, "data": bytearray(), "length": 0}, "without data"),
    "failed, with data": ({"status": CplStatus.UR}, "with data"),
    "too long": ({"data": bytearray(148), "length": 37, "byte_count": 139}, "longer"),
    "nobody's": ({"tag": 9}, "nobody waits"),
}


@pytest.mark.parametrize("case", BROKEN_COMPLETIONS)
def test_broken_completion(checker, case):
    fields, message = BROKEN_COMPLETIONS[case]
    checker._function.pcie_cap.max_payload_size = 1
    request = read(0x1003, 200)
    checker.upstream(request, bus_master=True)
    checker.downstream(completion(request, 0, 16))
    with pytest.raises(TlpError, match=message):
        checker.downstream(completion(request, 16, **fields))


def test_our_completions_are_split_at_128(checker):
    request = read(0x1040, 200, requester=ROOT)
    checker.downstream(request)
    with pytest.raises(TlpError, match="128-byte boundary"):
        checker.upstream(completion(request, 0, 32), bus_master=False)
    checker.upstream(completion(request, 0, 16), bus_master=False)
    checker.upstream(completion(request, 16, 32), bus_master=False)
    assert checker.unanswered == [request]
    checker.upstream(completion(request, 48), bus_master=False)
    assert checker.unanswered == []


def test_split_off_the_boundary(checker):
    request = read(0x1000, 256)
    checker.upstream(request, bus_master=True)
    with pytest.raises(TlpError, match="64-byte boundary"):
        checker.downstream(completion(request, 0, 8))
    checker._function.pcie_cap.read_completion_boundary = True
    with pytest.raises(TlpError, match="128-byte boundary"):
        checker.downstream(completion(request, 0, 16))


@pytest.mark.parametrize("locked", [False, True])
def test_locked_reads_have_locked_completions(checker, locked):
    kind = TlpType.MEM_READ_LOCKED if locked else TlpType.MEM_READ
    request = read(requester=ROOT, fmt_type=kind)
    kinds = [TlpType.CPL, TlpType.CPL_LOCKED]
    answer = Tlp.create_ur_completion_for_tlp(request, US)
    checker.downstream(request)
    with pytest.raises(TlpError, match="locked completions"):
        checker.upstream(change(answer, fmt_type=kinds[not locked]), bus_master=False)
    checker.upstream(change(answer, fmt_type=kinds[locked]), bus_master=False)
    assert checker.unanswered == []


def test_completer_id(checker):
    request = read(requester=ROOT)
    checker.downstream(request)
    with pytest.raises(TlpError, match="completer ID"):
        checker.upstream(completion(request, completer_id=PcieId(4, 0, 0)), bus_master=True)
    assert checker.unanswered == [request]


def test_failure_ends_a_request(checker):
    request = read()
    checker.upstream(request, bus_master=True)
    checker.downstream(Tlp.create_ur_completion_for_tlp(request, ROOT))
    assert checker.outstanding_tags == set()
