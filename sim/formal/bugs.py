# SPDX-License-Identifier: BSD-2-Clause
"""Bugs that properties have to find: each property can fail."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["BUGS", "Bug"]


@dataclass(frozen=True)
class Bug:
    """One bug, and the property that it breaks."""

    prop: str
    #: the rule that is broken
    name: str
    #: path from the root of the checkout
    file: str
    #: source fragment, which is in the file exactly once, and what it becomes
    old: str
    new: str

    def plant(self, checkout: Path) -> None:
        """Put it into a copy of the checkout.

        Raises
        ------
        ValueError
            If the fragment is not in its file exactly once.
        """
        source = checkout / self.file
        text = source.read_text()
        if (count := text.count(self.old)) != 1:
            raise ValueError(
                f"{self.name}: {self.file} has the fragment {count} times, not once; follow the "
                f"edit of the gateware in sim/formal/bugs.py:\n{self.old}"
            )
        source.write_text(text.replace(self.old, self.new))


BUGS = [
    Bug(
        "pieces",
        "the first piece ends at a multiple of the limit",
        "hw/channel/splitter.py",
        "most.eq(limit - (span.pci_address & (limit - 1)))",
        "most.eq(limit)",
    ),
    Bug(
        "pieces",
        "no byte is left out",
        "hw/channel/splitter.py",
        "behind.eq(bytes_left - most)",
        "behind.eq(bytes_left - limit)",
    ),
    Bug(
        "tags",
        "a tag in quarantine is not free",
        "hw/read/tags.py",
        "free.eq(~(busy | self.quarantined))",
        "free.eq(~busy)",
    ),
    Bug(
        "tags",
        "a flush keeps missing completions in quarantine",
        "hw/read/tags.py",
        "lost = self.waiting & (every(self.flush) | (lookup & every(self.ended)))",
        "lost = self.waiting & (lookup & every(self.ended))",
    ),
    Bug(
        "order",
        "a job retires when it has ended",
        "hw/read/tags.py",
        "valids[1].eq(valids[0] & ~self.waiting.bit_select(stages[0].tag, 1) & ~duplicate)",
        "valids[1].eq(valids[0] & ~duplicate)",
    ),
    Bug(
        "order",
        "what is on its way is not retired again",
        "hw/read/tags.py",
        "for stage, valid in zip(stages[1:], valids[1:], strict=True)",
        "for stage, valid in zip(stages[1:3], valids[1:3], strict=True)",
    ),
    Bug(
        "arbiter",
        "a packet stays whole",
        "hw/write/arbiter.py",
        "done.eq(ready & out.payload.last)",
        "done.eq(ready)",
    ),
    Bug(
        "arbiter",
        "a dropped write waits for the tokens of others",
        "hw/write/arbiter.py",
        "ready.eq(valid & Mux(dropping, in_flight == 0, out.ready))",
        "ready.eq(valid & (dropping | out.ready))",
    ),
    Bug(
        "inbound",
        "a read is issued when its bytes have room",
        "hw/stream/ring.py",
        "reservation.ready.eq((reservation.length <= room) & ~taken)",
        "reservation.ready.eq(reservation.length <= room)",
    ),
    Bug(
        "inbound",
        "the rest of a word is not skipped",
        "hw/stream/ring.py",
        "entry.data.eq(read.data >> (skip << 3))",
        "entry.data.eq(read.data)",
    ),
    Bug(
        "outbound",
        "a payload is claimed when it is in the memory",
        "hw/stream/ring.py",
        "level.eq(written - claimed)",
        "level.eq(taken - claimed)",
    ),
    Bug(
        "outbound",
        "the room that was claimed is free again",
        "hw/stream/ring.py",
        "freed.eq(freed + claims.o.payload)",
        "freed.eq(freed + reservation.length)",
    ),
    Bug(
        "slots",
        "a read is issued when its descriptors have room",
        "hw/channel/fetch.py",
        "(used <= self._slots - FETCH_DESCRIPTORS)",
        "(used != self._slots)",
    ),
    Bug(
        "slots",
        "no read crosses 4 KiB",
        "hw/channel/fetch.py",
        "nearest = Mux(left < here, left, here)",
        "nearest = left",
    ),
    Bug(
        "queue",
        "what comes out is what went in",
        "hw/parts/queue.py",
        "inner.w_data.eq(self.i.payload)",
        "inner.w_data.eq(self.i.payload[0])",
    ),
    Bug(
        "reads",
        "reads are held back while there is room for those on their way",
        "hw/registers/completer.py",
        "queue.level < QUEUE_DEPTH - QUEUE_RESERVE",
        "queue.level < QUEUE_DEPTH - 2",
    ),
    Bug(
        "writes",
        "a word is read when its beat has room",
        "hw/write/writer.py",
        "beats.level + arrived < DEPTH",
        "beats.level <= DEPTH",
    ),
    Bug(
        "edges",
        "a message that is sent takes back no other",
        "hw/interrupts/edges.py",
        "(pending & ~Mux(self.sent, bit, 0))",
        "(pending & ~Mux(self.sent, -1, 0))",
    ),
    Bug(
        "edges",
        "a message that was dropped is sent again",
        "hw/interrupts/edges.py",
        "before.eq(request & ~Mux(self.lost, bit, 0))",
        "before.eq(request)",
    ),
    Bug(
        "masked",
        "unmasking the function lets messages go",
        "hw/interrupts/irq.py",
        " | (link.msix_mask != mask_before)",
        "",
    ),
    Bug(
        "masked",
        "a mask that was read before it changed does not count",
        "hw/interrupts/msix.py",
        "self.changed.eq(masking | late.any())",
        "self.changed.eq(masking)",
    ),
    Bug(
        "masked",
        "a pending bit stands until its message is sent",
        "hw/interrupts/irq.py",
        "table.clear.eq(~link.msix_enable | ",
        "table.clear.eq(~link.msix_enable | table.changed | ",
    ),
    Bug(
        "pending",
        "the pending bit of one vector is settled",
        "hw/interrupts/msix.py",
        "with m.If(self.clear):",
        "with m.If(self.clear | self.settle):",
    ),
    Bug(
        "pending",
        "the mask bit is in the upper dword",
        "hw/interrupts/msix.py",
        "masking.eq(odd & dwords[1])",
        "masking.eq(odd & dwords[0])",
    ),
    Bug(
        "records",
        "a masked message is not sent",
        "hw/write/record_writer.py",
        "with m.If(valid & ready & ~masked):",
        "with m.If(valid & ready):",
    ),
]
