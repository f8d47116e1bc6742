# SPDX-License-Identifier: BSD-2-Clause
"""The table of functional coverage: every bin that a campaign has to see."""

from __future__ import annotations

from sim.benches.pauses import PAUSES

from .coverage import Exclusion, Group
from .plan import FUNCTION_RESET, RESETTING

__all__ = ["BLOCKS", "GROUPS", "LACKING_NUISANCES", "LATE_PORT"]

WAYS = ("h2c", "c2h")
MEMORIES = ("low", "high", "gpu")
TARGETS = ("ram", "stream")
PHASES = tuple(map(str, range(8)))
SIZES = ("0", "1", "2-3", "4-7", "8-63", "64", "65-511", "512", "513-4095", "4096", "4097+")
INTERRUPTS = ("intx", "msi", "msix")
#: Jobs of launch queues.
KINDS = ("h2c", "c2h", "copy", "packet")
DURING = ("idle", "h2c", "c2h", "both")

#: Faults by what they need: a read of ours that is answered, or a descriptor that is wrong.
READ_FAULTS = (
    "unsupported request",
    "completer abort",
    "retry status",
    "poisoned",
    "lost",
    "late",
    "wrong count",
    "wrong address",
    "too long",
)
#: What may become of a read for launch queues, and how a slot may not be a queue's.
TICKET_FAULTS = ("unsupported request", "completer abort", "retry status", "poisoned", "lost")
SLOT_FAULTS = ("not valid", "another queue's")
#: And of a descriptor that is in a slot.
HEAD_FAULTS = ("magic",)
#: What they are of.
TICKET_PLACES = ("list", "data", "flush", "slot", "head")
FAULTS = (*READ_FAULTS, "magic", "spoilt push", "decode")
#: The receive port in front of a core with overcommit pauses for longer than its contract allows.
LATE_PORT = "late port"
DISTURBANCES = (
    "abort",
    "soft reset",
    "hot reset",
    "link loss",
    "bus master off",
    LATE_PORT,
    FUNCTION_RESET,
)
#: What ends a launch queue.
ENDS = (
    "disarmed",
    "failed read",
    "soft reset",
    "hot reset",
    "link loss",
    "bus master off",
    FUNCTION_RESET,
)
#: What a core is connected to: a PCIe block behind its adapter, or the model at the seam.
BLOCKS = ("series7", "seam", *RESETTING)
#: Nuisances that cocotbext-pcie's models of PCIe blocks do not pass on to a core.
LACKING_NUISANCES = ("locked read", "atomic", "poisoned write")
CREDITS = ("plenty", "few", "none")
#: Descriptors at the beginning of a list that are pushed.
PUSHED = ("0", "1", "2", "3", "4")

_NO_SECOND = Exclusion(
    "a core with one channel each way has no second one", {"channels": ("1",), "number": ("1",)}
)
_NO_CONTRACT = "only a core of 64 bits behind the 7-series block overcommits here"
_NO_FUNCTION = "only UltraScale blocks tell the core of a reset of its function"
_NO_DATA = "a descriptor of length 0 moves nothing"

GROUPS = (
    # One for each descriptor of a run that ended well, and another one if something else had not.
    Group(
        "width",
        {
            "width": ("64", "128", "256"),
            "block": BLOCKS,
            "way": WAYS,
            "target": TARGETS,
            "card": tuple(map(str, range(32))),
            "after": (*FAULTS, *DISTURBANCES),
        },
        (
            ("width", "way", "target"),
            ("width", "way", "card"),
            ("width", "after"),
            ("block", "way", "target"),
            ("block", "after"),
        ),
        (
            Exclusion(_NO_CONTRACT, {"after": (LATE_PORT,), "width": ("128", "256")}),
            Exclusion(_NO_CONTRACT, {"after": (LATE_PORT,), "block": BLOCKS[1:]}),
            Exclusion(_NO_FUNCTION, {"after": (FUNCTION_RESET,), "width": ("64",)}),
            Exclusion(_NO_FUNCTION, {"after": (FUNCTION_RESET,), "block": BLOCKS[:2]}),
        ),
    ),
    # One sample for each descriptor of a run that ended well.
    Group(
        "descriptor",
        {
            "way": WAYS,
            "memory": MEMORIES,
            "target": TARGETS,
            "size": SIZES,
            "pci": PHASES,
            "card": PHASES,
            "page": ("inside", "to its end", "across"),
        },
        (
            ("way", "memory", "target"),
            ("way", "target", "size"),
            ("way", "pci", "card"),
            ("way", "memory", "page"),
            ("way", "pci", "target"),
        ),
    ),
    # One for each run that ended well.
    Group(
        "run",
        {
            "way": WAYS,
            "channels": ("1", "2"),
            "number": ("0", "1"),
            "layout": ("one", "block", "singles", "blocks"),
            "count": ("1", "2-4", "5-16", "17-63", "64+"),
            "contents": ("ram", "stream", "both"),
            "notice": ("status", "interrupt", "writeback"),
            "interrupts": INTERRUPTS,
            "writeback": ("off", "host", "gpu"),
            "credits": ("off", "on"),
            "descriptors": ("low", "high"),
            "pushed": PUSHED,
        },
        (
            ("channels", "way", "number"),
            ("way", "layout", "descriptors"),
            ("way", "pushed"),
            ("layout", "pushed"),
            ("pushed", "credits"),
            ("way", "count"),
            ("way", "contents"),
            ("way", "notice", "interrupts"),
            ("way", "writeback"),
            ("way", "credits"),
        ),
        (
            _NO_SECOND,
            Exclusion(
                "these are blocks of one descriptor",
                {"layout": ("one", "singles"), "pushed": PUSHED[2:]},
            ),
            Exclusion("this block has more than one", {"layout": ("block",), "pushed": ("1",)}),
        ),
    ),
    # One for each run that ended well and moved data.
    Group(
        "limits",
        {
            "way": WAYS,
            "mps": ("128", "256", "512"),
            "mrrs": ("128", "256", "512", "4096"),
            "rcb": ("64", "128"),
            "lanes": ("1", "2", "4"),
            "extended tags": ("off", "on"),
        },
        (("way", "mps", "mrrs", "rcb"), ("way", "lanes"), ("way", "extended tags")),
    ),
    # One for each read that was answered in full.
    Group(
        "read",
        {
            "of": ("host", "gpu"),
            "completions": ("1", "2", "3-4", "5+"),
            "order": ("in order", "overtaken"),
            "split": ("LARGEST", "EVERY_RCB", "RANDOM"),
            "latency": ("none", "some", "long"),
            "in flight": ("1", "2-7", "8-15", "16+"),
        },
        (("of", "completions"), ("of", "split", "latency"), ("latency", "order")),
        (
            Exclusion(
                "no read crosses a multiple of 512 bytes, and an endpoint splits at 128 (2.3.1.1)",
                {"of": ("gpu",), "completions": ("5+",)},
            ),
        ),
    ),
    # What the core has to wait for; one for each TLP of its own. With few buffers writes wait, with
    # none reads do, too.
    Group(
        "pressure",
        {
            "way": ("h2c", "c2h", "both"),
            "stalls": ("none", "light", "heavy"),
            "idle": ("none", "one", "several"),
            "buffers": ("plenty", "few", "none"),
            "posted": CREDITS,
            "nonposted": CREDITS,
            "completion": CREDITS,
        },
        (
            ("way", "stalls"),
            ("way", "idle"),
            ("way", "buffers"),
            ("way", "posted"),
            ("way", "nonposted"),
        ),
    ),
    # One for each pair that moved bytes both ways, in an episode that ended well. The user stream
    # holds H2C up when it has sent more than the ring holds long before C2H begins, and C2H when
    # that begins before anything has come.
    Group(
        "stream",
        {
            "before": ("empty", "left over"),
            "after": ("empty", "left over"),
            "pressure": ("h2c waits for room", "c2h waits for bytes", "neither"),
        },
        (("before", "pressure"),),
        (
            Exclusion(
                "what was left over is there when C2H begins",
                {"before": ("left over",), "pressure": ("c2h waits for bytes",)},
            ),
        ),
    ),
    # One for each run that took bytes of a source, and ended well.
    Group(
        "frames",
        {"records": ("off", "on"), "size": ("4-31", "32-511", "512+")},
        (("records", "size"),),
    ),
    # One for each ticket that ended well, after its data was checked. Beside it software has, or is
    # in line for, the same channels or others.
    Group(
        "ticket",
        {
            "kind": KINDS,
            "told": ("doorbell", "doorbell of 64 bits", "shadow tail"),
            "how": ("merged", "singly", "early"),
            "list": ("slot", "memory"),
            "flush": ("off", "on"),
            "done": ("off", "host", "gpu"),
            "overlap": ("off", "on"),
            "tickets": ("1", "2-3", "4+"),
            "beside": ("nothing", "others", "the same", "a copy"),
        },
        (
            ("kind", "told"),
            ("told", "how"),
            ("kind", "list"),
            ("kind", "flush", "done"),
            ("kind", "overlap", "tickets"),
            ("kind", "beside"),
        ),
        (
            Exclusion(
                "the entry comes before a doorbell that has it, too",
                {"told": ("doorbell of 64 bits",), "how": ("early",)},
            ),
        ),
    ),
    # One for each ticket of those that took a packet: how much room there was for it, in how many
    # parts, and how packets came.
    Group(
        "packet",
        {
            "room": ("less", "all of it", "more"),
            "parts": ("1", "2+"),
            "source": ("at once", "paced", "with lulls"),
        },
        (("room", "parts"), ("room", "source")),
    ),
    # One for each ticket that was submitted when its queue was ended, after memory was checked.
    Group(
        "ended ticket",
        {"by": ENDS, "kind": KINDS, "record": ("none", "good", "aborted")},
        (("by", "kind"), ("kind", "record")),
        (
            Exclusion(
                "no core behind an UltraScale block has a source here",
                {"by": (FUNCTION_RESET,), "kind": ("packet",)},
            ),
        ),
    ),
    # One for each batch of which a ticket has failed, after memory was checked; and software has
    # resumed at once, or when the next batch had been flushed, too.
    Group(
        "failed ticket",
        {
            "kind": (*TICKET_FAULTS, *SLOT_FAULTS, *HEAD_FAULTS),
            "place": TICKET_PLACES,
            "of": KINDS,
            "resumed": ("at once", "later"),
        },
        (("kind", "place"), ("place", "of"), ("place", "resumed")),
        (
            Exclusion(
                "that is of slots",
                {"kind": SLOT_FAULTS, "place": ("list", "data", "flush", "head")},
            ),
            Exclusion("that is of reads", {"kind": TICKET_FAULTS, "place": ("slot", "head")}),
            Exclusion(
                "that is of descriptors in slots",
                {"kind": HEAD_FAULTS, "place": ("list", "data", "flush", "slot")},
            ),
            Exclusion("its data is not read", {"place": ("data",), "of": ("c2h", "packet")}),
            Exclusion(
                "what a packet begins with is not in memory, and it is right",
                {"place": ("list", "head"), "of": ("packet",)},
            ),
        ),
    ),
    # One for each ticket behind one that failed, of the latter's kind.
    Group(
        "behind",
        {
            "place": TICKET_PLACES,
            "record": ("good", "failed", "aborted", "flushed"),
            "of": KINDS,
        },
        (("place", "record"), ("record", "of")),
        (
            Exclusion(
                "none is started behind a run that fails",
                {"place": ("list", "data", "slot", "head"), "record": ("good", "failed")},
            ),
            Exclusion("no run has failed", {"place": ("flush", "slot"), "record": ("aborted",)}),
            Exclusion("packets do not overlap", {"record": ("aborted",), "of": ("packet",)}),
        ),
    ),
    # One for each batch with copies that ended well: how many of them were under way at once, and
    # how many have the bit.
    Group(
        "copies",
        {"at once": ("1", "2", "3+"), "overlap": ("none", "some", "all")},
        (("at once", "overlap"),),
        (
            Exclusion(
                "only such with the bit are under way at once",
                {"at once": ("2", "3+"), "overlap": ("none",)},
            ),
        ),
    ),
    # One for each batch in which a read for the queue was to fail: it has ended, or had all entries
    # without that.
    Group(
        "failed read",
        {"kind": TICKET_FAULTS, "place": ("ring", "shadow"), "queue": ("ended", "goes on")},
        (("kind", "place"), ("place", "queue")),
        (
            Exclusion(
                "the shadow tail is read again and again",
                {"place": ("shadow",), "queue": ("goes on",)},
            ),
        ),
    ),
    # One for each channel that ran at the same time as others, in an episode that ended well.
    Group(
        "together",
        {"channels": ("1", "2"), "running": ("1", "2", "3", "4")},
        (("channels", "running"),),
        (
            Exclusion(
                "a core with one channel each way has two in all",
                {"channels": ("1",), "running": ("3", "4")},
            ),
        ),
    ),
    # One for each run that ended by the error that was planted, after status and memory were
    # checked.
    Group(
        "fault",
        {
            "kind": FAULTS,
            "place": ("descriptor", "data"),
            "way": WAYS,
            "target": TARGETS,
            "memory": MEMORIES,
            "descriptor": ("fetched", "pushed"),
            "at": ("only", "first", "middle", "last"),
        },
        (
            ("kind", "place", "way"),
            ("place", "way", "at"),
            ("kind", "target"),
            ("kind", "memory"),
            ("kind", "place", "descriptor"),
        ),
        (
            Exclusion(
                "the magic is a field of the descriptor", {"kind": ("magic",), "place": ("data",)}
            ),
            Exclusion(
                "what is pushed are descriptors", {"kind": ("spoilt push",), "place": ("data",)}
            ),
            Exclusion(
                "what is pushed is not fetched",
                {"kind": ("spoilt push",), "descriptor": ("fetched",)},
            ),
            Exclusion(
                "what is pushed is not read",
                {"kind": READ_FAULTS, "place": ("descriptor",), "descriptor": ("pushed",)},
            ),
            Exclusion(
                "the card address is that of data", {"kind": ("decode",), "place": ("descriptor",)}
            ),
            Exclusion(
                "C2H data is written, and writes have no completion",
                {"kind": READ_FAULTS, "place": ("data",), "way": ("c2h",)},
            ),
            Exclusion(
                "an address that does not decode is no stream",
                {"kind": ("decode",), "target": ("stream",)},
            ),
        ),
    ),
    # One for each channel that was at it, after memory was checked.
    Group(
        "disturbance",
        {
            "kind": DISTURBANCES,
            "way": WAYS,
            "contents": ("ram", "stream", "both"),
            "moment": ("before", "fetching", "moving", "after"),
            "stream": ("flushed by the core", "flushed by software"),
            "list": ("fetched", "pushed", "both"),
        },
        (("kind", "way", "contents"), ("kind", "moment"), ("kind", "list")),
        (
            Exclusion(
                "what a late port has not ended is sampled as it was then",
                {"kind": (LATE_PORT,), "moment": ("after",)},
            ),
        ),
    ),
    # One for each copy through a pair, and of frames, directly after something went wrong there:
    # nothing of before is in it.
    Group(
        "clean",
        {"after": (*FAULTS, *DISTURBANCES), "user": ("pass", "pattern")},
        (("after", "user"),),
        (
            Exclusion(
                "a core with a source does not overcommit here",
                {"after": (LATE_PORT,), "user": ("pattern",)},
            ),
            Exclusion(
                "no core behind an UltraScale block has a source here",
                {"after": (FUNCTION_RESET,), "user": ("pattern",)},
            ),
        ),
    ),
    # One for each episode of a core with overcommit: whether that is on when it begins and when it
    # ends, and what the receive port did.
    Group(
        "overcommit",
        {
            "before": ("on", "off"),
            "port": ("not late", "late", "lost completions"),
            "after": ("on", "off"),
        },
        (("before", "port", "after"),),
        (
            Exclusion(
                "without overcommit there is room for all",
                {"before": ("off",), "port": ("lost completions",)},
            ),
            Exclusion(
                "a lost read turns it off", {"port": ("lost completions",), "after": ("on",)}
            ),
            Exclusion(
                "only a reset of the link turns it on again",
                {"before": ("off",), "port": ("late",), "after": ("on",)},
            ),
        ),
    ),
    # One for each that happened in an episode.
    Group("pause", {"kind": PAUSES}, (("kind",),)),
    # One for each run that ended well directly after something else did not.
    Group(
        "recovery",
        {"after": (*FAULTS, *DISTURBANCES), "way": WAYS, "contents": TARGETS},
        (("after", "way"), ("after", "contents")),
    ),
    # One for each access whose result was checked.
    Group(
        "register",
        {
            "access": ("ro", "rw", "rc", "rw1c", "w1s", "w1c", "wo", "add", "table", "pba", "none"),
            "bar": ("user", "dma"),
            "from": ("host", "gpu"),
            "during": DURING,
            "bytes": ("1", "2", "4", "8", "long"),
            "operation": ("read", "write"),
        },
        (("access", "bar"), ("access", "during"), ("bytes", "operation"), ("from", "bar")),
        (
            Exclusion(
                "the user BAR has no registers of this kind",
                {
                    "access": ("rc", "rw1c", "w1s", "w1c", "wo", "add", "table", "pba"),
                    "bar": ("user",),
                },
            ),
        ),
    ),
    # One for each that was answered, or dropped, as it must be.
    Group(
        "nuisance",
        {
            "kind": (
                "unexpected completion",
                "poisoned write",
                "locked read",
                "atomic",
                "zero-length read",
                "push while busy",
                "transmit held",
                "receive held",
                "link held",
                "halt",
            ),
            "during": DURING,
        },
        (("kind", "during"),),
        (Exclusion("a channel is busy", {"kind": ("push while busy",), "during": ("idle",)}),),
    ),
    # One for each message, or level, that was waited for and came.
    Group(
        "interrupt",
        {
            "kind": INTERRUPTS,
            "source": ("h2c", "c2h", "user"),
            "path": ("at once", "vector masked", "function masked"),
        },
        (("kind", "source", "path"),),
        (
            Exclusion(
                "only MSI-X has masks here",
                {"kind": ("intx", "msi"), "path": ("vector masked", "function masked")},
            ),
        ),
    ),
)
