# SPDX-License-Identifier: BSD-2-Clause
"""Which addresses the driver takes for right: its `route.h`, compiled here, over made topologies.

A function's way up is written as it stands below its host bridge, ``"root/up/down.acs/gpu"``: a
port with ``.acs`` sends what peers ask of each other up to the host.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path

import pytest

ROUTE = Path(__file__).resolve().parents[2] / "driver/surfaces/route.h"
#: enum peerdma_target and enum peerdma_reach
TARGETS = ("nothing", "ram", "bar", "rest")
REACHES = ("nowhere", "raw", "host", "peer", "other")
#: PEERDMA_MOST_HOPS
MOST = 16


class Hop(ctypes.Structure):
    """struct peerdma_hop"""

    _fields_ = (("id", ctypes.c_ulong), ("redirects", ctypes.c_bool))


class Way(ctypes.Structure):
    """struct peerdma_way"""

    _fields_ = (("count", ctypes.c_uint), ("hops", Hop * MOST))


@pytest.fixture(scope="module")
def route(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The header's two decisions, as functions of a library."""
    folder = tmp_path_factory.mktemp("route")
    source = folder / "route.c"
    source.write_text(
        f'#include <stdbool.h>\n#include "{ROUTE}"\n'
        f'_Static_assert(PEERDMA_MOST_HOPS == {MOST}, "");\n'
        f'_Static_assert(PEERDMA_REACH_COUNT == {len(REACHES)}, "");\n'
        "bool direct(const struct peerdma_way *board, const struct peerdma_way *peer)\n"
        "{ return peerdma_direct(board, peer); }\n"
        "int reach(int target, bool untranslated, bool direct, bool owned)\n"
        "{ return peerdma_reach(target, untranslated, direct, owned); }\n"
    )
    library = folder / "route.so"
    flags = ("-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run(
        [os.environ.get("CC", "gcc"), *flags, str(source), "-o", str(library)], check=True
    )
    loaded = ctypes.CDLL(str(library))
    loaded.direct.restype = ctypes.c_bool
    loaded.direct.argtypes = [ctypes.POINTER(Way)] * 2
    loaded.reach.argtypes = [ctypes.c_int, *[ctypes.c_bool] * 3]
    return loaded


def way(text: str) -> Way:
    """A way up from its text."""
    names = text.split("/")[::-1] if text else []
    found = Way(count=len(names))
    for n, name in enumerate(names):
        plain = name.removesuffix(".acs")
        found.hops[n] = Hop(id=int.from_bytes(plain.encode(), "big"), redirects=plain != name)
    return found


@pytest.mark.parametrize(
    ("board", "peer", "direct"),
    [
        # Below one switch.
        ("rp/up/d1/fpga", "rp/up/d2/gpu", True),
        ("rp.acs/up/d1/fpga", "rp.acs/up/d2/gpu", True),
        ("rp/up/d1.acs/fpga", "rp/up/d2/gpu", False),
        ("rp/up/d1/fpga", "rp/up/d2.acs/gpu", False),
        ("rp/up/d1.acs/fpga", "rp/up/d2.acs/gpu", False),
        # A switch below a switch.
        ("rp/up/d1/fpga", "rp/up/d2/up2/d3/gpu", True),
        ("rp/up/d1/up2/d3/fpga", "rp/up/d1/up2/d4/gpu", True),
        ("rp/up/d1.acs/up2/d3/fpga", "rp/up/d1.acs/up2/d4/gpu", True),
        ("rp/up/d1.acs/up2/d3/fpga", "rp/up/d2/gpu", False),
        ("rp/up/d1/up2/d3.acs/fpga", "rp/up/d2/gpu", False),
        # Functions themselves may redirect, those of one device too.
        ("rp/up/d1/fpga.acs", "rp/up/d2/gpu", False),
        ("rp/up/d1/fpga", "rp/up/d2/gpu.acs", False),
        ("rp/f0", "rp/f1", True),
        ("rp.acs/f0", "rp.acs/f1", False),
        # Each below a root port of its own, or below another host bridge: through the host.
        ("r1/fpga", "r2/gpu", False),
        ("r1/up/d1/fpga", "r2/up2/d2/gpu", False),
        ("fpga", "gpu", False),
        # Deeper than is looked.
        ("", "rp/up/d2/gpu", False),
        ("rp/up/d1/fpga", "", False),
        # As deep as is looked.
        ("/".join(f"b{n}" for n in range(15)) + "/fpga", "b0/b1/gpu", True),
    ],
)
def test_whether_requests_get_there_without_the_host(route, board, peer, direct):
    assert route.direct(way(board), way(peer)) == direct
    # Nobody is the first; but for what a bridge that both have in common says of itself.
    assert route.direct(way(peer), way(board)) == direct


@pytest.mark.parametrize(
    ("target", "untranslated", "direct", "owned", "reach"),
    [
        # An address that the IOMMU translates, or none does.
        ("ram", False, False, False, "host"),
        ("bar", False, False, True, "peer"),
        ("bar", False, True, True, "peer"),
        ("bar", False, False, False, "other"),
        ("bar", False, True, False, "other"),
        ("rest", False, False, False, "other"),
        # One that it does not know: right only where it does not see it.
        ("bar", True, True, True, "peer"),
        ("bar", True, True, False, "other"),
        ("bar", True, False, True, "raw"),
        ("bar", True, False, False, "nowhere"),
        ("ram", True, False, False, "nowhere"),
        ("rest", True, False, False, "nowhere"),
    ],
)
def test_what_becomes_of_an_address(route, target, untranslated, direct, owned, reach):
    found = route.reach(TARGETS.index(target), untranslated, direct, owned)
    assert REACHES[found] == reach


def test_nothing_is_reached_where_nothing_is(route):
    for bits in range(8):
        assert route.reach(0, *(bool(bits >> n & 1) for n in range(3))) == 0


def test_a_peer_is_what_its_owner_gave_and_no_iommu_stops(route):
    """The one promise that PEERDMA_PIN_REQUIRE_PEER makes, of all that there is."""
    peers = [
        (TARGETS[target], untranslated, direct, owned)
        for target in range(len(TARGETS))
        for untranslated in (False, True)
        for direct in (False, True)
        for owned in (False, True)
        if REACHES[route.reach(target, untranslated, direct, owned)] == "peer"
    ]
    assert peers
    for target, untranslated, direct, owned in peers:
        assert target == "bar" and owned and (direct or not untranslated)
