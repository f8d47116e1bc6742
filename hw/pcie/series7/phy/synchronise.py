# SPDX-License-Identifier: BSD-2-Clause
"""Synchronisers for signals of another clock domain, and edge detection."""

from amaranth import *
from amaranth.lib.cdc import FFSynchronizer

__all__ = ["rose", "synchronised"]


def synchronised(m: Module, signal: Value, domain: str = "sync", *, init: int = 0) -> Signal:
    """`signal` through a two-stage synchroniser into `domain`."""
    inside = Signal(len(signal), init=init)
    m.submodules += FFSynchronizer(signal, inside, o_domain=domain, init=init)
    return inside


def rose(m: Module, signal: Value) -> Value:
    """1 in the first cycle of `signal`."""
    before = Signal()
    m.d.sync += before.eq(signal)
    return signal & ~before
