# SPDX-License-Identifier: BSD-2-Clause
"""What a seed means: the machine, and episodes with all that happens in them, as plain data.

`draw` makes a plan of a seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "CORES",
    "EMPTYING",
    "EVERY_CORE",
    "FUNCTION_RESET",
    "OVERCOMMITTED",
    "RECEIVING",
    "RESETTING",
    "Batch",
    "Copying",
    "Core",
    "Disturbance",
    "Engine",
    "Episode",
    "Machine",
    "Piece",
    "Plan",
    "PlantedFault",
    "Queue",
    "Run",
    "Slot",
    "Source",
    "Surroundings",
    "TicketFault",
]


class Core(NamedTuple):
    """A core, by what `sim.benches.model.build` takes."""

    #: user block, by its name in `hw.stream.user_blocks`
    user: str
    #: each way
    channels: int
    #: what it is connected to
    pcie: str
    launch_queues: int = 0
    #: then the link has one lane
    overcommit: bool = False

    @property
    def receives(self) -> bool:
        """Its launch queues can take packets."""
        return self.user == "pattern" and self.launch_queues > 0

    @property
    def name(self) -> str:
        """Name of the compiled core."""
        queues = f"-launch{self.launch_queues}" if self.launch_queues else ""
        return f"{self.user}{self.channels}-{self.pcie}{queues}" + "-overcommit" * self.overcommit


#: Cores that a seed may have. Of sixteen seeds three have frames, six are of more than 64 bits, and
#: three have launch queues, as some of those with frames have (`RECEIVING`).
CORES = (
    *3 * (Core("pass", 1, "series7"), Core("pass", 2, "series7")),
    *2 * (Core("pattern", 2, "series7"),),
    Core("pass", 2, "seam-128"),
    Core("pass", 1, "seam-256"),
    Core("pattern", 1, "seam-256"),
    # Cores that benches have, too.
    Core("pass", 1, "ultrascale-128"),
    Core("pass", 1, "ultrascale_plus-256"),
    Core("pass", 1, "ultrascale_plus-128", launch_queues=2),
    # These have queues for the campaign only.
    Core("pass", 1, "series7", launch_queues=1),
    Core("pass", 2, "series7", launch_queues=2),
)
#: Only these blocks have it.
FUNCTION_RESET, RESETTING = "function reset", ("ultrascale", "ultrascale_plus")
#: Disturbances that empty all pairs.
EMPTYING = ("soft reset", "hot reset", "link loss", FUNCTION_RESET)
#: Half of the seeds with this core have one with overcommit.
OVERCOMMITTED = Core("pass", 1, "series7")
#: Half of the seeds with this core have launch queues, too.
RECEIVING = Core("pattern", 2, "series7")
#: All that are compiled.
EVERY_CORE = (
    *dict.fromkeys(CORES),
    OVERCOMMITTED._replace(overcommit=True),
    RECEIVING._replace(launch_queues=2),
)


@dataclass(frozen=True)
class Machine:
    """What stays as it is for the whole seed.

    The core, credits of the far end; and of a block that is a model of ours, lanes and the transmit
    side.
    """

    core: Core
    lanes: int
    posted: tuple[int, int]
    nonposted: int
    completion: tuple[int, int]
    #: from a TLP that the far end took to its credits back
    credit_ns: int
    buffers: int
    #: from a TLP sent to its buffer free again, and cycles by which that shows late
    ack_ns: int
    buffer_lag: int

    @property
    def block(self) -> str:
        """The kind of what it is connected to: a PCIe block, or "seam"."""
        return self.core.pcie.partition("-")[0]

    @property
    def width(self) -> int:
        """Bits of a beat."""
        return int(self.core.pcie.partition("-")[2] or 64)

    @property
    def ours(self) -> bool:
        """The model of the block is ours. It has transmit buffers and idle cycles, counts pauses,
        and the core reports errors to it; cocotbext-pcie's has and does nothing of this."""
        return self.block in ("series7", "seam")

    @property
    def resets(self) -> bool:
        """The block resets functions."""
        return self.block in RESETTING


@dataclass(frozen=True)
class Surroundings:
    """How the machine is set up for an episode."""

    mps: int
    mrrs: int
    rcb: int
    extended_tags: bool
    split: str
    #: before a read is answered, and between its completions
    latency_ns: tuple[int, int]
    gap_ns: tuple[int, int]
    stall: float
    #: idle cycles between TLPs from the PCIe block: least and most
    idle: tuple[int, int]
    #: `in_flight` of the register `reads`
    in_flight: int
    interrupts: str
    #: cycles that what comes over the link may wait for the port, if the core overcommits
    port_lag: int = 0


@dataclass(frozen=True)
class Piece:
    """What one descriptor moves; `card` is the address in card RAM, None for the stream."""

    size: int
    memory: str
    #: offset of the memory in its page
    offset: int
    card: int | None
    completed: bool = False


@dataclass(frozen=True)
class PlantedFault:
    """An error that a run has to end by."""

    kind: str
    place: str
    #: which descriptor
    index: int


@dataclass(frozen=True)
class Run:
    """One list of descriptors."""

    pieces: tuple[Piece, ...]
    #: how they lie in memory: descriptors of each contiguous block
    blocks: tuple[int, ...]
    #: the first block is not in memory: software pushes it into the board
    pushed: bool
    high: bool
    #: how software learns of the end: "status", "interrupt" or "writeback"
    notice: str
    writeback: str
    credits: bool
    delay_ns: int
    fault: PlantedFault | None = None

    @property
    def pushes(self) -> int:
        """Descriptors that are pushed."""
        return self.blocks[0] if self.pushed else 0

    @property
    def contents(self) -> str:
        """What is at the other end: "ram", "stream" or "both"."""
        kinds = {"stream" if piece.card is None else "ram" for piece in self.pieces}
        return "both" if len(kinds) == 2 else kinds.pop()

    @property
    def streamed(self) -> int:
        """Bytes through the stream."""
        return sum(piece.size for piece in self.pieces if piece.card is None)


@dataclass(frozen=True)
class Engine:
    """What one channel does in an episode: one run after the other."""

    c2h: bool
    number: int
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Disturbance:
    """Something that ends what is under way, so long after the episode began.

    An abort hits the engines of one pair only, or one of them. A late port pauses for `pause_ns`.
    """

    kind: str
    delay_ns: int
    victims: tuple[tuple[bool, int], ...] = ()
    pause_ns: int = 0


@dataclass(frozen=True)
class Slot:
    """A job that a launch queue can start."""

    #: "h2c", "c2h", "copy" or "packet"
    kind: str
    #: of the channel, or of the pair
    number: int
    #: of a copy, those of its H2C half, and those of the other one; of a packet, those for its
    #: bytes, and one for its record
    pieces: tuple[Piece, ...]
    out: tuple[Piece, ...]
    high: bool
    flush: bool
    #: where the done word is: "off", "host" or "gpu"
    done: str
    overlap: bool


@dataclass(frozen=True)
class Batch:
    """Tickets that are submitted together; the next batch comes when all of them have ended."""

    #: indices into the slots of the queue
    slots: tuple[int, ...]
    #: when the board is told: "merged", once; "singly", of each ticket; "early", before the entries
    how: str
    #: by doorbells of 64 bits
    wide: bool
    delay_ns: int


@dataclass(frozen=True)
class TicketFault:
    """An error of a queue in one of its batches.

    It hits each ticket of a slot, by its list, its data, its flush read, as that slot is not the
    queue's, or by a descriptor in it. Or a read for the queue fails, of its ring or shadow tail:
    that ends it.
    """

    kind: str
    #: "list", "data", "flush", "slot", "head", "ring" or "shadow"
    place: str
    batch: int
    #: index into the slots of the queue; of the ring, into the batch
    index: int
    #: the batch behind it comes before software resumes
    late: bool


@dataclass(frozen=True)
class Queue:
    """What a launch queue does in an episode."""

    number: int
    #: first ticket, and places of the rings
    first: int
    entries: int
    #: the tail is in memory
    polls: bool
    slots: tuple[Slot, ...]
    batches: tuple[Batch, ...]
    #: so long after the last batch begins software disarms it, if that has not ended
    cut_ns: int | None = None
    fault: TicketFault | None = None


@dataclass(frozen=True)
class Source:
    """The packets that a pattern source makes for tickets: on a pair from which software takes no
    bytes meanwhile."""

    #: of the pair
    number: int
    #: of each packet, and cycles from one to the next; 0: as soon as there is room
    words: int
    interval: int
    #: it rests: so long after it began, or has gone on, and for so long
    lulls: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Copying:
    """How software uses a pair that launched copies use, too: it leaves no bytes there.

    `steps` come one after the other: the next run of "h2c" or "c2h", or of both in a "copy", that
    of C2H first.
    """

    number: int
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Episode:
    """What happens at the same time."""

    surroundings: Surroundings
    engines: tuple[Engine, ...]
    disturbance: Disturbance | None
    #: register accesses, and nuisances
    accesses: int
    #: all stops for a while, one way: "", "transmit", "receive" or "link"
    hold: str
    queues: tuple[Queue, ...] = ()
    #: the other engines take what their pairs have at any time
    copying: tuple[Copying, ...] = ()
    sources: tuple[Source, ...] = ()
    #: what software sends into pairs before that, for nobody: launched copies drop it. Number of a
    #: pair that it does not stream through otherwise, and bytes
    stale: tuple[tuple[int, int], ...] = ()

    @property
    def streams(self) -> set[int]:
        """Pairs that software's runs stream through."""
        return {engine.number for engine in self.engines for run in engine.runs if run.streamed}


@dataclass(frozen=True)
class Plan:
    """All of a seed."""

    seed: int
    machine: Machine
    episodes: tuple[Episode, ...]
