# SPDX-License-Identifier: BSD-2-Clause
"""One trace on both models of an UltraScale block: does a core get and send the same with each?

    .venv/bin/python -m sim.benches.exercise ultrascale_plus-256

An exerciser (`sim.compile.exerciser`) is behind the adapter in the core's place. The native model
records what its host sends to the board; that is then played on cocotbext-pcie's model, packet by
packet. Both runs leave what crossed the seam, and a capture of the TLPs.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
from amaranth.lib import data
from cocotb.triggers import Event
from cocotbext.pcie.core.tlp import Tlp

from hw.endpoint import DEFAULT_ADAPTER
from hw.pcie.adapters import ADAPTERS
from hw.seam import CompletionHeader, SentToken, TargetHeader, TargetKind, beat
from peerdma import regs
from peerdma.trace.capture import Packet
from peerdma.trace.capture import read as read_capture
from sim.board.session import Conditions, Session, Streams
from sim.compile.exerciser import (
    INBOUND,
    REGISTERS_BYTES,
    STRADDLES,
    WINDOWS,
    Exercised,
    requests,
)
from sim.compile.model import compiled

from .host import Fault
from .model import ULTRASCALE_KHZ
from .runner import folder_of, run
from .tb import CAPTURE, TB, bench

__all__ = ["BLOCKS", "EXERCISED", "Run", "differences", "main", "record", "replay", "replayed"]

#: Those of `hw.pcie.adapters.ADAPTERS` that have such models.
BLOCKS = tuple(name for name in ADAPTERS if name != DEFAULT_ADAPTER.name)

#: Of the core of this module's bench, for `sim.benches.runner`.
EXERCISED = True
#: The capture that is played, in the bench's working directory.
_RECORDING = "recording.pcapng"
#: Addresses of the BARs, as the native model's session has them.
_BARS = {regs.BAR_USER[0]: 0x4000_0000, regs.BAR_DMA[0]: 0x4010_0000}
_ACCESSES = 60
_SEED = 1
_CONDITIONS = Conditions(
    clock_khz=ULTRASCALE_KHZ,
    speed=3,
    lanes=8,
    # Without a limit: completions wait in the block, where they share beats.
    link_mbps=0,
    rtt_ns=200,
    # Splits completions at any boundary, too.
    reorder=_SEED,
    failures=(("ur", 5), ("poison", 9), ("ca", 14), ("poison", 23)),
)


def record(block: str) -> Path:
    """Record the trace on the native model of one of `BLOCKS`; returns the folder for `Run`.

    Raises RuntimeError if the board breaks a rule of PCIe, BuildError.
    """
    model = compiled(block=Exercised(block), clock_khz=ULTRASCALE_KHZ)
    rng = random.Random(_SEED)
    streams = Streams(block, completion_headers=128, completion_credits=2048)
    memory = WINDOWS[0]
    folder = folder_of(f"exercise.record@{block}", _SEED)
    folder.mkdir(parents=True, exist_ok=True)
    # The model leaves its files in the working directory.
    home = os.getcwd()
    os.chdir(folder)
    try:
        conditions = replace(_CONDITIONS, streams=streams)
        with Session(model, conditions, len(memory), capture=Path(CAPTURE)) as session:
            session.memory[:] = np.frombuffer(rng.randbytes(len(memory)), np.uint8)
            for number in range(_ACCESSES):
                bar, nbytes = rng.choice(list(_BARS)), rng.choice((1, 2, 4, 4, 8, 8))
                # Few registers: what is read was written, in other pieces.
                offset = rng.randrange(64) + rng.choice((0, REGISTERS_BYTES - 72))
                if number and rng.random() < 0.5:
                    session.read(bar, offset, nbytes)
                else:
                    session.write(bar, offset, rng.randrange(1 << 8 * nbytes), nbytes)
            while session.run(10_000):
                pass
    finally:
        os.chdir(home)
    return folder


def replayed(block: str, recorded: Path) -> Path:
    """Play what `record` has left on cocotbext-pcie's model; returns the folder for `Run`.

    Raises RuntimeError if that fails, BuildError.
    """
    name = f"exercise.replay@{block}"
    folder = folder_of(name, _SEED)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(recorded / CAPTURE, folder / _RECORDING)
    if not run(name, _SEED):
        raise RuntimeError(f"{name} failed; its files are in {folder}")
    return folder


class Run:
    """What a run has left in a folder, with streams of `width` bits.

    Attributes
    ----------
    packets : dict of str to list
        Of each stream to the core, its packets: their fields, and the payload as bytes. And as
        bytes, what the board sent: "requests" and "completions", each in their order.
    straddles : int
        Beats of completions in which one begins behind the end of another.
    """

    def __init__(self, folder: Path, width: int):
        layouts = {
            "requester_completion": beat(CompletionHeader, width),
            "target": beat(TargetHeader, width),
            "sent": data.Layout.cast(SentToken),
        }
        self.packets = {
            name: _packets(layouts[name], (folder / file).read_text().split())
            for name, file in INBOUND.items()
        }
        self.packets |= {"requests": [], "completions": []}
        for packet in _tlps(folder / CAPTURE):
            if packet.up:
                answers = Tlp.unpack(packet.data).is_completion()
                self.packets["completions" if answers else "requests"].append(packet.data)
        straddles = folder / STRADDLES
        self.straddles = len(straddles.read_text().split()) if straddles.exists() else 0


def differences(native: Run, other: Run) -> Iterator[str]:
    """A line for each kind of packets that differ."""
    for name, ours in native.packets.items():
        pairs = enumerate(zip_longest(ours, other.packets[name]))
        if first := next((each for each in pairs if each[1][0] != each[1][1]), None):
            number, (one, two) = first
            yield f"{name}: packet {number} is {one} on the native model, and {two} on cocotb's"


def _packets(layout: data.Layout, lines: list[str]) -> list[tuple[dict[str, int], bytes]]:
    """Packets whose beats are these; what is in lanes behind the payload does not count."""
    found: list[tuple[dict[str, int], bytes]] = []
    for line in lines:
        fields = _fields(layout, int(line, 16))
        payload, first, last = (fields.pop(key, None) for key in ("data", "first", "last"))
        if payload is None:
            found.append((fields, b""))
            continue
        if first:
            packet = b""
        packet += payload.to_bytes(layout["data"].width // 8, "little")
        if last:
            has_data = fields.get("header.kind", TargetKind.WRITE.value) == TargetKind.WRITE.value
            found.append((fields, packet[: 4 * fields["header.dwords"] * has_data]))
    return found


def _fields(layout: data.Layout, value: int, path: str = "") -> dict[str, int]:
    found = {}
    for name, field in layout:
        part = value >> field.offset & ((1 << field.width) - 1)
        inner = field.shape
        if isinstance(inner, type) and issubclass(inner, data.Struct):
            found |= _fields(data.Layout.cast(inner), part, f"{path}{name}.")
        else:
            found[path + name] = part
    return found


def _tlps(capture: Path) -> list[Packet]:
    """TLPs at the link. One of the board with a note was there before, without it."""
    return [each for each in read_capture(capture).packets if not (each.up and each.notes)]


@bench(us=300)
async def replay(tb: TB):
    """What `record` has left goes to the board: a completion once the board has asked for it, and a
    request of the host when the board has sent as many completions as it had then."""
    recorded = _tlps(Path(_RECORDING))
    for window in WINDOWS:
        tb.host.map_memory(window.start, bytearray(len(window)))
    # The host's answers are in the recording.
    tb.host.inject(range(1 << 64), Fault.WITHHELD)
    for bar, address in _BARS.items():
        tb.device.function.bar[bar] = address
    asked, sent, came = set(), [], Event()

    def note(direction: str, tlp: Tlp) -> None:
        if direction == "up":
            sent.append(tlp.is_completion())
            if not tlp.is_completion() and not tlp.has_data():
                asked.add(tlp.tag)
            came.set()

    tb.device.on_tlp.append(note)
    answers = 0
    for packet in recorded:
        tlp = Tlp.unpack(packet.data)
        if packet.up:
            answers += tlp.is_completion()
            continue
        while tlp.tag not in asked if tlp.is_completion() else sum(sent) < answers:
            came.clear()
            await came.wait()
        await tb.device.upstream_recv(tlp)
    while len(sent) < len(requests()) + answers:
        came.clear()
        await came.wait()
    tb.host.drop_withheld()


def main(argv: list[str] | None = None) -> int:
    """Command line; returns 1 if something differs."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m sim.benches.exercise",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("block", metavar="BLOCK", choices=BLOCKS, help=", ".join(BLOCKS))
    block = parser.parse_args(argv).block
    width = ADAPTERS[block].block.width
    recorded = record(block)
    runs = Run(recorded, width), Run(replayed(block, recorded), width)
    found = list(differences(*runs))
    print(*found, sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
