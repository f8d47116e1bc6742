# SPDX-License-Identifier: BSD-2-Clause
"""TLPs as cocotbext-pcie packs them are decoded to what it packed."""

import random

from cocotbext.pcie.core.tlp import Tlp as Packed
from cocotbext.pcie.core.tlp import TlpType
from cocotbext.pcie.core.utils import PcieId

from peerdma.trace.tlp import Kind, Tlp

KINDS = {
    TlpType.MEM_READ: Kind.READ,
    TlpType.MEM_READ_64: Kind.READ,
    TlpType.MEM_WRITE: Kind.WRITE,
    TlpType.MEM_WRITE_64: Kind.WRITE,
    TlpType.CPL: Kind.COMPLETION,
    TlpType.CPL_DATA: Kind.DATA,
}


def drawn(rng: random.Random, kind: TlpType) -> Packed:
    """A TLP of a kind, with anything in its fields."""
    tlp = Packed()
    tlp.fmt_type = kind
    tlp.requester_id = PcieId.from_int(rng.getrandbits(16))
    tlp.tag, tlp.tc, tlp.ep = rng.getrandbits(8), rng.getrandbits(3), rng.random() < 0.1
    tlp.length = rng.choice((1, 2, rng.randint(1, 1024)))
    if KINDS[kind] in (Kind.READ, Kind.WRITE):
        wide = kind in (TlpType.MEM_READ_64, TlpType.MEM_WRITE_64)
        tlp.address = rng.getrandbits(64 if wide else 32) & ~3
        tlp.first_be, tlp.last_be = rng.getrandbits(4), rng.getrandbits(4)
    else:
        tlp.completer_id = PcieId.from_int(rng.getrandbits(16))
        tlp.byte_count, tlp.lower_address = rng.randint(1, 4096), rng.getrandbits(7)
    if KINDS[kind] in (Kind.WRITE, Kind.DATA):
        tlp.data = bytearray(rng.randbytes(4 * tlp.length))
    return tlp


def test_every_kind(seed):
    rng = random.Random(seed)
    for _ in range(300):
        kind = rng.choice(list(KINDS))
        packed = drawn(rng, kind)
        tlp = Tlp.decode(bytes(packed.pack()))
        assert (tlp.kind, tlp.tag, tlp.traffic_class) == (KINDS[kind], packed.tag, packed.tc)
        assert tlp.requester == int(packed.requester_id) and tlp.poisoned == packed.ep
        assert tlp.payload == bytes(packed.data)
        if tlp.request:
            assert (tlp.address, tlp.length) == (packed.address, 4 * packed.length)
            assert (tlp.first_be, tlp.last_be) == (packed.first_be, packed.last_be)
        else:
            assert (tlp.byte_count, tlp.lower_address) == (packed.byte_count, packed.lower_address)
            assert tlp.length == len(packed.data)
        assert all(isinstance(value, str) for value in tlp.fields().values())


def test_any_bytes_are_decoded(seed):
    rng = random.Random(seed)
    for _ in range(2000):
        Tlp.decode(rng.randbytes(rng.randrange(40)))
