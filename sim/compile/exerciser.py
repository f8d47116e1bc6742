# SPDX-License-Identifier: BSD-2-Clause
"""The adapter of a PCIe block without the core: an exerciser on the other side of its seam.

What crosses the seam to it is written to files, as long as the model runs. So two models of the
block can be compared by what the core would have had of each.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from amaranth import (
    C,
    ClockSignal,
    Elaboratable,
    Instance,
    Module,
    Mux,
    ResetSignal,
    Signal,
    Value,
)
from amaranth.back import verilog
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import Out

from hw.endpoint import EXTRA_PORTS, MODULE_NAME, SIMULATION_PORTS
from hw.pcie.adapters import ADAPTERS
from hw.pcie.ultrascale.ports import RC_FLAGS
from hw.pcie.ultrascale.straddle import STRADDLE_WIDTH, StraddleFlags
from hw.registers.bus import READ_LATENCY
from hw.registers.completer import Completer
from hw.seam import CompletionStatus, RequestHeader, SeamSignature, beat
from sim.board.session import BASE

__all__ = [
    "INBOUND",
    "REGISTERS_BYTES",
    "STRADDLES",
    "WINDOWS",
    "Exercised",
    "Request",
    "requests",
    "verilog_of_exerciser",
]

#: Streams to the core. In the model's working directory, the file of each has a line per beat: its
#: payload in hexadecimal.
INBOUND = {name: f"{name}.txt" for name in ("requester_completion", "target", "sent")}
#: In this file is a line for each beat in which a completion begins behind the end of another one.
STRADDLES = "straddles.txt"

#: Bus addresses of requests: one in eight has a header of four dwords.
WINDOWS = range(BASE, BASE + 0x2_0000), range(0x12_0000_0000, 0x12_0002_0000)
_HIGH = 1 / 8
#: Bytes of the registers behind each BAR.
REGISTERS_BYTES = 512
#: Reads, each with a tag of its own that needs no extended tags, and writes.
_READS, _WRITES = 32, 32
_MOST_READ, _MOST_WRITTEN = 512, 128
#: Reads under way: their completions fit into the block's buffer however they are split.
_IN_FLIGHT = 8
_SEED = 2026


class Exercised(NamedTuple):
    """Which adapter; stands for a core where `sim.compile.generated` takes one."""

    #: key of `hw.pcie.adapters.ADAPTERS`, one of the UltraScale blocks
    adapter: str


@dataclass(frozen=True)
class Request:
    """A memory request of the exerciser: fields of `hw.seam.RequestHeader`, and payload."""

    header: dict[str, int]
    payload: bytes = b""


def requests() -> list[Request]:
    """What the exerciser asks for, in this order: reads and writes of all sizes and alignments."""
    rng = random.Random(_SEED)
    tags = rng.sample(range(_READS), _READS)
    kinds = rng.sample([True] * _WRITES + [False] * _READS, _READS + _WRITES)
    return [_request(rng, write, 0 if write else tags.pop()) for write in kinds]


def _request(rng: random.Random, write: bool, tag: int) -> Request:
    most = (_MOST_WRITTEN if write else _MOST_READ) // 4
    dwords = rng.choice((1, 1, 2, 3, rng.randint(1, most), rng.randint(1, most), most))
    window = WINDOWS[rng.random() < _HIGH]
    # None crosses a page.
    address = rng.choice(window[::4096]) + 4 * rng.randint(0, 1024 - dwords)
    first, last = rng.choice((0xF, 0xE, 0xC, 0x8)), rng.choice((0xF, 0x7, 0x3, 0x1))
    header = {
        "write": int(write),
        "address": address,
        "dwords": dwords,
        "first_be": first if dwords > 1 else rng.choice((0xF, 0x6, 0x8, 0x1)),
        "last_be": last if dwords > 1 else 0,
        "tag": tag,
        "relaxed": 0,
        "token": rng.randrange(256) if write else 0,
    }
    return Request(header, rng.randbytes(4 * dwords) if write else b"")


def verilog_of_exerciser(adapter: str, clock_khz: int) -> str:
    """Verilog for simulation, with the ports of a core behind this adapter."""
    top = _Exercised(adapter, clock_khz)
    recorder = Path(__file__).with_name("stream_recorder.sv").read_text()
    return verilog.convert(top, name=MODULE_NAME, ports=top.ports, emit_src=False) + recorder


class _Exerciser(wiring.Component):
    """Sends `requests` from the host's first write on, and has registers.

    The registers of both BARs are the same `REGISTERS_BYTES`, and hold what was written last.

    Members
    -------
    seam : Out(SeamSignature)
    """

    def __init__(self, block):
        self._width = block.width
        super().__init__({"seam": Out(SeamSignature(block))})

    def elaborate(self, platform):
        m = Module()
        seam = self.seam
        m.submodules.completer = completer = Completer(width=self._width)
        wiring.connect(m, wiring.flipped(seam.target), completer.target)
        wiring.connect(m, completer.completion, wiring.flipped(seam.completion))
        m.d.comb += seam.target_np_ok.eq(completer.target_np_ok)
        self._registers(m, completer.bus)

        layout = beat(RequestHeader, self._width)
        rows = [row for request in requests() for row in _rows(layout, request)]
        m.submodules.rows = store = memory.Memory(shape=layout, depth=len(rows), init=rows)
        at, row = Signal(range(len(rows) + 1)), store.read_port()
        started, offered, taken = Signal(), Signal(), Signal()
        ended, in_flight = Signal(), Signal(range(_IN_FLIGHT + 1))
        out, answer = seam.requester, seam.requester_completion
        header, found = out.payload.header, answer.payload.header
        may_start = Mux(header.write, seam.link.write_room, in_flight < _IN_FLIGHT)
        left = found.byte_count + found.lower_address[:2]
        failed = found.status != CompletionStatus.SC
        m.d.comb += [
            taken.eq(out.valid & out.ready),
            row.addr.eq(at + taken),
            out.payload.eq(row.data),
            out.valid.eq(
                (started & (at != len(rows)) & (may_start | ~out.payload.first)) | offered
            ),
            ended.eq(answer.valid & answer.payload.last & (failed | (left <= found.dwords * 4))),
            seam.reads_pending.eq(in_flight != 0),
        ]
        m.d.sync += [
            at.eq(at + taken),
            offered.eq(out.valid & ~out.ready),
            in_flight.eq(in_flight + (taken & ~header.write) - ended),
        ]
        with m.If(completer.bus.write.valid):
            m.d.sync += started.eq(1)
        for name, file in INBOUND.items():
            stream = getattr(seam, name)
            # What comes in reset is lost.
            taken_in = stream.valid & stream.ready & ~ResetSignal()
            m.submodules[name] = _recorder(file, taken_in, Value.cast(stream.payload))
        return m

    def _registers(self, m: Module, bus) -> None:
        depth = REGISTERS_BYTES // 8
        m.submodules.registers = store = memory.Memory(shape=64, depth=depth, init=[])
        write, read = store.write_port(granularity=8), store.read_port()
        late = read.data
        for _ in range(READ_LATENCY - 1):
            now, late = late, Signal(64)
            m.d.sync += late.eq(now)
        m.d.comb += [
            write.addr.eq(bus.write.address[: len(write.addr)]),
            write.data.eq(bus.write.data),
            write.en.eq(bus.write.enable & bus.write.valid.replicate(8)),
            read.addr.eq(bus.read.address[: len(read.addr)]),
            bus.read.data.eq(late),
        ]


def _rows(layout: data.StructLayout, request: Request) -> list[data.Const]:
    """The beats of a request."""
    lanes = layout["data"].shape // 8
    words = [request.payload[at : at + lanes] for at in range(0, len(request.payload), lanes)]
    words = words or [b""]
    return [
        layout.const(
            {
                "header": request.header,
                "data": int.from_bytes(word, "little"),
                "first": int(number == 0),
                "last": int(number == len(words) - 1),
            }
        )
        for number, word in enumerate(words)
    ]


def _recorder(file: str, taken: Value, payload: Value) -> Instance:
    return Instance(
        "stream_recorder",
        p_WIDTH=len(payload),
        p_FILE=file,
        i_clk=ClockSignal(),
        i_taken=taken,
        i_payload=payload,
    )


class _Exercised(Elaboratable):
    """The endpoint with an exerciser in place of the core."""

    def __init__(self, adapter: str, clock_khz: int):
        kind = ADAPTERS[adapter]
        self._adapter, self._exerciser = kind.make(clock_khz), _Exerciser(kind.block)
        self._pcie = getattr(self._adapter, kind.interface)
        self._straddles = kind.block.width == STRADDLE_WIDTH
        self._others = {
            port.name: Signal(port.width, name=port.name)
            for port in (*EXTRA_PORTS, *SIMULATION_PORTS)
            if port.name not in ("clk", "rst")
        }
        self._signals = {
            port.name: (Signal(port.width, name=port.name), port.direction == "i")
            for port in kind.ports
        }

    @property
    def ports(self) -> dict[str, tuple[Value, None]]:
        """Of the module, except clock and reset."""
        signals = {name: signal for name, (signal, _) in self._signals.items()}
        return {name: (signal, None) for name, signal in (self._others | signals).items()}

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.exerciser, m.submodules.adapter = self._exerciser, self._adapter
        wiring.connect(m, self._exerciser.seam, self._adapter.seam)
        for port in (*EXTRA_PORTS, *SIMULATION_PORTS):
            if port.direction == "o":
                m.d.comb += self._others[port.name].eq(0)
        for name, (signal, to_core) in self._signals.items():
            inner = getattr(self._pcie, name)
            m.d.comb += inner.eq(signal) if to_core else signal.eq(inner)
        if self._straddles:
            m.submodules.straddles = self._straddle_recorder(m)
        return m

    def _straddle_recorder(self, m: Module) -> Instance:
        pcie = self._pcie
        flags = data.View(StraddleFlags, pcie.m_axis_rc_tuser[RC_FLAGS])
        begins, ends = flags.begins[0] + flags.begins[1], flags.ends0 + flags.ends1
        taken = pcie.m_axis_rc_tvalid & pcie.m_axis_rc_tready
        # Completions that have begun and not ended in front of a beat: none or one.
        under_way = Signal()
        with m.If(taken):
            m.d.sync += under_way.eq(under_way + begins - ends)
        return _recorder(STRADDLES, taken & (under_way + begins > 1), C(1))
