# SPDX-License-Identifier: BSD-2-Clause
"""Bugs that properties have to find: each property can fail."""

from ..copies import Edit

__all__ = ["BUGS"]


def _edits(file: str, *rows: tuple[str, str, str]) -> list[Edit]:
    return [Edit(name, file, old, new) for name, old, new in rows]


#: The bugs that break each property. An edit's name is the rule that is broken.
BUGS: dict[str, list[Edit]] = {
    "window": _edits(
        "hw/read/read_window.py",
        (
            "the window ends with all the room",
            "counts & ~all_room & (time",
            "counts & (time",
        ),
    ),
    "shares": _edits(
        "hw/parts/byte_shares.py",
        (
            "who has had its share waits for who has not",
            "self.allowed.eq(~spent | ~waits.replicate(self._count))",
            "self.allowed.eq(-1)",
        ),
        (
            "nobody waits for one that is not there",
            "(self.requests & ~self.served & left).any()",
            "left.any()",
        ),
        (
            "what was too much is taken off",
            "Mux(begins, deficit, units)",
            "Mux(begins, 0, units)",
        ),
    ),
    "frames": [
        Edit(
            "nothing comes between a frame and the end of its record",
            "hw/stream/frames.py",
            "self.i.ready.eq(crc.i.ready & ~recording)",
            "self.i.ready.eq(crc.i.ready)",
        ),
        Edit(
            "numbers count the frames without records, too",
            "hw/stream/frames.py",
            "done.eq(sink.last & ~self.enable)",
            "done.eq(0)",
        ),
    ],
    "frames-128": _edits(
        "hw/stream/frames.py",
        (
            "the words of two follow each other",
            "if len(words) == 4 else word + 1",
            "if len(words) == 4 else 1",
        ),
    ),
    "frames-256": _edits(
        "hw/stream/frames.py",
        (
            "the one word of a record is no data of the frame",
            "if len(words) == 4 else word + 1",
            "if len(words) == 4 else word",
        ),
    ),
    "grants": [
        Edit(
            "a channel has one owner at a time",
            "hw/channel/grant.py",
            "owner.request & ~has & ~softwares",
            "owner.request & ~softwares",
        ),
        Edit(
            "software has the channel after the other owner's turn",
            "hw/channel/grant.py",
            "turn.eq(turn + 1)",
            "turn.eq(turn)",
        ),
        Edit(
            "software has the channel after one run of the other owner that has had its turn",
            "hw/channel/grant.py",
            "m.d.sync += host_first.eq(1)",
            "m.d.sync += host_first.eq(0)",
        ),
        Edit(
            "the other owner has the channel after one run of software's",
            "hw/channel/grant.py",
            "waits & host_first & ~keeps",
            "waits",
        ),
        Edit(
            "a run has ended when nothing of it can touch memory",
            "hw/channel/grant.py",
            "with m.If(parts.quiet):",
            "with m.If(1):",
        ),
        Edit(
            "a run of software's that is over breaks nothing of the owner's",
            "hw/channel/grant.py",
            "host.stream.breaks & ~self.owned & ~served",
            "host.stream.breaks & ~served",
        ),
        Edit(
            "nor behind an H2C run of the owner's for which the pair was flushed",
            "hw/channel/grant.py",
            "served.eq(broke | served)",
            "served.eq(served)",
        ),
        Edit(
            "an aborted run of the owner breaks its pair",
            "hw/channel/grant.py",
            "parts.streamed & ~good",
            "parts.streamed & (outcome != Outcome.OK)",
        ),
        Edit(
            "a list begins when the one before is fetched",
            "hw/channel/grant.py",
            "parts.stream.start_ok & ~parts.fetching & ~runs.all()",
            "parts.stream.start_ok & ~runs.all()",
        ),
        Edit(
            "software's run waits for no run that begins when the owner's turn is over",
            "hw/channel/grant.py",
            "ready & ~owes & ~(waits & ~lasts)",
            "ready & ~owes",
        ),
        Edit(
            "a run that was promised is under way",
            "hw/channel/grant.py",
            "runs.eq(runs + 1), owes.eq(~owner.start)",
            "runs.eq(runs + owner.start), owes.eq(~owner.start)",
        ),
        Edit(
            "a run that was promised waits for no turn",
            "hw/channel/grant.py",
            "owner.ready.eq(owed | (",
            "owner.ready.eq((owed & ~(waits & ~lasts)) | (",
        ),
        Edit(
            "none begins behind a failure, though promised",
            "hw/channel/grant.py",
            "owed = owes & ~parts.fetching & (parts.failure == Outcome.OK)",
            "owed = owes & ~parts.fetching",
        ),
        Edit(
            "one is promised at a time, and counts once",
            "hw/channel/grant.py",
            "owner.ready & ~owes & (owner.start | owner.reserve)",
            "owner.ready & (owner.start | owner.reserve)",
        ),
        Edit(
            "one is promised when the channel is ready",
            "hw/channel/grant.py",
            "owner.ready & ~owes & (owner.start | owner.reserve)",
            "~owes & ((owner.ready & owner.start) | owner.reserve)",
        ),
        Edit(
            "a promise is kept once",
            "hw/channel/grant.py",
            "m.d.sync += owes.eq(0)",
            "m.d.sync += owes.eq(owes)",
        ),
        Edit(
            "a promise ends with all runs",
            "hw/channel/grant.py",
            "[flush.eq(0), owes.eq(0), runs",
            "[flush.eq(0), runs",
        ),
        Edit(
            "a run of software's rests when nothing of it is left",
            "hw/channel/grant.py",
            "with m.Elif(parts.quiet & self.empty):",
            "with m.Elif(parts.quiet):",
        ),
        Edit(
            "one that has used the stream does not rest",
            "hw/channel/grant.py",
            "with m.If(self.streams):",
            "with m.If(0):",
        ),
        Edit(
            "an abort of a run that rests is none of the owner's",
            "hw/channel/grant.py",
            "(host.flush & ~rests) | flush",
            "host.flush | flush",
        ),
        Edit(
            "a run goes on when its pair is clean",
            "hw/channel/grant.py",
            "rests & going & hosts & parts.stream.start_ok",
            "rests & going & hosts",
        ),
    ],
    "ends": [
        Edit(
            "an abort breaks the pair",
            "hw/channel/run.py",
            "self.stream.breaks.eq(self.streamed)]",
            "self.stream.breaks.eq(0)]",
        ),
        Edit(
            "an error breaks the pair until software has seen it",
            "hw/channel/run.py",
            'm.next = "Failed"',
            'm.next = "Stopped"',
        ),
        Edit(
            "a run that is given up before its turn breaks the pair",
            "hw/channel/run.py",
            "with m.Elif(self.fall):",
            "with m.Elif(0):",
        ),
    ],
    "leftovers": [
        Edit(
            "a break lasts until the flush",
            "hw/stream/pair.py",
            "was_broken.eq(broken & ~path.flush)",
            "was_broken.eq(0)",
        ),
        Edit(
            "both sides break a pair",
            "hw/stream/pair.py",
            "self.flush | h2c.breaks | c2h.breaks",
            "self.flush | c2h.breaks",
        ),
    ],
    "doorbells": [
        Edit(
            "tails count cyclically",
            "hw/launch/tails.py",
            "(none | ~new[-1])",
            "(none | (word.tail[:TAIL_BITS] > tail))",
        ),
        Edit(
            "a first ticket is not compared with a former tail",
            "hw/launch/tails.py",
            "m.d.sync += level[queue].eq(1)",
            "m.d.sync += level[queue].eq(level[queue])",
        ),
        Edit(
            "a tail is within its ring",
            "hw/launch/tails.py",
            "(used[8:-1].any() | (used[LEAST_BITS:8] & ~mask[LEAST_BITS:]).any())",
            "used[8:-1].any()",
        ),
        Edit(
            "a doorbell is of its queue's generation",
            "hw/launch/tails.py",
            "settings.armed & (word.generation == settings.generation)",
            "settings.armed",
        ),
    ],
    "tickets": [
        *_edits(
            "hw/launch/entries.py",
            ("an entry is of its ticket", "& (word[:16] == ticket)", ""),
            (
                "a doorbell's entry is of its ticket",
                "& (self.last == following[:TAIL_BITS])",
                "",
            ),
            (
                "an entry is of one queue",
                "m.d.sync += each.eq(self.first)",
                "m.d.sync += each.eq(each)",
            ),
        ),
        *_edits(
            "hw/launch/sequencer.py",
            ("a ticket was rung", "with m.Elif(going & ~here.waits):", "with m.Elif(0):"),
            (
                "a slot is of its queue",
                "control.valid & (control.queue == self.queue)",
                "control.valid",
            ),
            ("a channel is of one queue", "(runs.taken & channels).any()", "0"),
            (
                "a packet's ticket waits without a channel",
                "with m.Elif(taken | absent):",
                "with m.Elif(taken):",
            ),
            (
                "a record waits for the end of all runs",
                "runs.ended & ~(here.kept.flushes & self.under_way)",
                "~(here.kept.flushes & self.under_way)",
            ),
            (
                "a record waits for the flush read",
                "ends.eq(ending.at_work & ~flushing & turn)",
                "ends.eq(ending.at_work & turn)",
            ),
            (
                "a ticket ends when the one before has ended",
                "                & ~ending.at_work\n                & ~leaves",
                "                & ~leaves",
            ),
            (
                "a queue writes its own done word",
                "(~second | (completer == now))",
                "1",
            ),
            (
                "a place is within the ring",
                "Mux(completion.active, here.oldest, self.next) & here.settings.mask",
                "Mux(completion.active, here.oldest, self.next)",
            ),
        ),
        *_edits(
            "hw/launch/start.py",
            (
                "a job is started once",
                "self.start.eq(at_once & ~began & last)",
                "self.start.eq(at_once & last)",
            ),
            (
                "a packet's second descriptor is that of the slot behind",
                "behind = half | following[-1]",
                "behind = half",
            ),
            (
                "a packet's run begins with both descriptors",
                "last = ~self.receives | number[-1]",
                "last = Const(1)",
            ),
        ),
        Edit(
            "a done word waits for its record",
            "hw/launch/completion.py",
            "with m.If(under_way & self.records.done):",
            "with m.If(under_way & (self.records.done | follows)):",
        ),
        *_edits(
            "hw/launch/work.py",
            (
                "a done word that is to come is shown",
                "state.recorded.eq(ending.recorded)",
                "state.recorded.eq(0)",
            ),
            (
                "a ticket that ends is counted",
                "state.ending.eq(ending.at_work)",
                "state.ending.eq(ending.recorded)",
            ),
            (
                "a record has its own ticket's number",
                "here.kept.eq(get.data)",
                "here.kept.eq(shown.data)",
            ),
        ),
    ],
    "copies": [
        *_edits(
            "hw/launch/start.py",
            (
                "a copy's pair is flushed before it begins",
                "at_once = ~self.pair | self.follows",
                "at_once = Const(1)",
            ),
            (
                "no pair is flushed while copies run",
                "flush = self.pair & ~half & self.granted & ~self.follows",
                "flush = self.pair & ~half & self.granted",
            ),
            (
                "a copy behind others has its C2H channel when H2C begins",
                "with m.If(self.start & self.pair & self.follows & ~half):",
                "with m.If(0):",
            ),
            (
                "C2H is promised when H2C begins, and not before",
                "with m.If(self.start & self.pair & self.follows & ~half):",
                "with m.If(self.push & self.pair & self.follows & ~half):",
            ),
            (
                "a copy behind others begins when both channels are ready",
                "Mux(self.follows, self.ready | began,",
                "Mux(self.follows, (self.grants & self.target).any() | began,",
            ),
            (
                "half a copy is aborted",
                "m.d.comb += [self.stop.eq(half), self.done.eq(1)]",
                "m.d.comb += [self.stop.eq(0), self.done.eq(1)]",
            ),
        ),
        *_edits(
            "hw/launch/sequencer.py",
            (
                "tickets run beside others on the same channels",
                "beside = (channels == runs.used) & overlaps",
                "beside = (channels & runs.used).any() & overlaps",
            ),
            (
                "all tickets that run beside others allow it",
                "beside = (channels == runs.used) & overlaps & known.overlaps",
                "beside = (channels == runs.used) & known.overlaps",
            ),
        ),
        *_edits(
            "hw/launch/runs.py",
            (
                "the half of a copy that failed on the other channel is aborted",
                "reached = owners[one].runs <= owners[other].runs",
                "reached = owners[one].runs < owners[other].runs",
            ),
            (
                "a ticket whose run failed is not said to have ended well",
                "good[number].eq(self.running > owner.runs)",
                "good[number].eq(self.running >= owner.runs)",
            ),
            (
                "a copy before one that failed is not aborted",
                "(both & failed[other] & reached)",
                "(both & failed[other])",
            ),
        ),
    ],
    "pieces": [
        Edit(
            "the first piece ends at a multiple of the limit",
            "hw/channel/splitter.py",
            "most.eq(limit - (span.pci_address & (limit - 1)))",
            "most.eq(limit)",
        ),
        Edit(
            "no byte is left out",
            "hw/channel/splitter.py",
            "behind.eq(bytes_left - most)",
            "behind.eq(bytes_left - limit)",
        ),
    ],
    "tags": [
        Edit(
            "a tag in quarantine is not free",
            "hw/read/tags.py",
            "free.eq(~(busy | self.quarantined))",
            "free.eq(~busy)",
        ),
        Edit(
            "a flush keeps missing completions in quarantine",
            "hw/read/tags.py",
            "lost = self.waiting & every(self.flush)",
            "lost = 0",
        ),
    ],
    "abutting-tags": _edits(
        "hw/read/tags.py",
        (
            "what is completed is in no quarantine, even if it ends in that cycle",
            "quarantines = kept & ~completed, quarantines & ~completed",
            "quarantines = kept & ~completed, quarantines",
        ),
        (
            "a last beat closes its own tag",
            "completed = one_hot(self.completed.p,",
            "completed = one_hot(self.lookup_tag,",
        ),
    ),
    "extended-tags": [
        Edit(
            "a tag that had been found is not offered when it may not be used any more",
            "hw/read/tags.py",
            "found & (extended | (self.free.p < FIVE_BIT_TAGS))",
            "found",
        ),
    ],
    "order": [
        Edit(
            "a job retires when it has ended",
            "hw/read/tags.py",
            "self.retires.eq(self.head.valid & ~self.waiting.bit_select(stages[0].tag, 1))",
            "self.retires.eq(self.head.valid)",
        ),
        Edit(
            "what is on its way is not retired again",
            "hw/read/tags.py",
            "for stage, valid in zip(stages[1:], valids[1:], strict=True)",
            "for stage, valid in zip(stages[1:2], valids[1:2], strict=True)",
        ),
    ],
    "space": [
        Edit(
            "a read is charged for each block that it touches",
            "hw/read/completion_space.py",
            "last[6:] + 1 - offset[6]",
            "last[6:] + 1",
        ),
        Edit(
            "what was given back is not given back again",
            "hw/read/completion_space.py",
            "charge.left - taken_off)",
            "charge.left)",
        ),
        Edit(
            "a read that has timed out keeps its charge",
            "hw/read/completion_space.py",
            "with m.If(self.closed):",
            "with m.If(self.closed | self.late):",
        ),
        Edit(
            "there is room for the largest read",
            "hw/read/completion_space.py",
            "self.room.eq(following <= capacity - most)",
            "self.room.eq(following < capacity)",
        ),
    ],
    "abutting-space": [
        Edit(
            "what was given back is not given back again",
            "hw/read/completion_space.py",
            "Mux(self.closed, charge.left, Mux(self.begins, ended, 0))",
            "Mux(self.closed, charge.left, 0)",
        ),
        Edit(
            "a last beat gives back what its completion counts as",
            "hw/read/completion_space.py",
            "counts = Mux(self.closed, charge.left.any(), itself)",
            "counts = itself",
        ),
        Edit(
            "a completion counts until its last beat, whatever became of its read",
            "hw/read/completion_space.py",
            "begun & (self.begins | self.arrives)",
            "begun & (self.begins | self.arrives) & ~self.closed",
        ),
    ],
    "overcommitted-space": _edits(
        "hw/read/completion_space.py",
        (
            "nothing is asked for beyond the room once there is no overcommit",
            "Mux(self.overcommit, self.most_under_way, capacity)",
            "self.most_under_way",
        ),
        (
            "no more than twice as much is under way",
            "Mux(self.overcommit, self.most_under_way, capacity)",
            "Mux(self.overcommit, self.most_under_way + 4, capacity)",
        ),
    ),
    "lag": _edits(
        "hw/pcie/series7/port_lag.py",
        (
            "a pause within a TLP says nothing",
            "with m.Elif(~inside & ~empty):",
            "with m.Elif(~empty):",
        ),
        (
            "requests that may be from before do not count",
            "counts = ~Mux(first, held_back, uncounted)",
            "counts = 1",
        ),
        (
            "a last beat may have one dword",
            "_MOST_PASSED - 4",
            "_MOST_PASSED",
        ),
        (
            "the link brings what it can",
            "+ passed - self._rate",
            "+ passed - self._rate + 1",
        ),
        (
            "it is behind only if something waits",
            "(ahead > most)",
            "(ahead > most - LARGEST_TLP)",
        ),
    ),
    "fits": _edits(
        "hw/seam.py",
        (
            "completions may have no data",
            "COMPLETION_HEADER_BITS // 8 + FRAMING_BYTES",
            "COMPLETION_HEADER_BITS // 8 + FRAMING_BYTES + 16",
        ),
        (
            "one has begun to come, and one had before",
            "(self.completion_headers - 2)",
            "self.completion_headers",
        ),
    ),
    "entries-256": _edits(
        "hw/launch/entries.py",
        (
            "an entry counts if those before it do",
            "runs = list(accumulate(in_order, and_))",
            "runs = in_order",
        ),
        (
            "there is room for what is read",
            "~rung[bits + 1 :].all() & has_room(self.next, self.ticket)",
            "1",
        ),
        (
            "entries behind the last column are in the next row",
            "write.addr.eq(Cat((row + in_next)[",
            "write.addr.eq(Cat(row[",
        ),
        (
            "as many are fetched as have come",
            "following + sum(more)",
            "following",
        ),
    ),
    "arbiter": [
        Edit(
            "a packet stays whole",
            "hw/write/arbiter.py",
            "done.eq(ready & out.payload.last)",
            "done.eq(ready)",
        ),
        Edit(
            "a dropped write waits for the tokens of others",
            "hw/write/arbiter.py",
            "ready.eq(valid & Mux(dropping, locked & (in_flight == 0), out.ready))",
            "ready.eq(valid & Mux(dropping, locked, out.ready))",
        ),
        Edit(
            "what is dropped was offered a cycle before",
            "hw/write/arbiter.py",
            "locked & (in_flight == 0)",
            "(in_flight == 0)",
        ),
    ],
    "inbound": [
        Edit(
            "a read is issued when its bytes have room",
            "hw/stream/space.py",
            "reservation.ready.eq((reservation.length <= room) & ~taken)",
            "reservation.ready.eq(reservation.length <= room)",
        ),
        Edit(
            "a beat has as many bytes as it leaves behind",
            "hw/stream/ring.py",
            "count.eq(Mux(full, lanes, here))",
            "count.eq(lanes)",
        ),
    ],
    "inbound-256": _edits(
        "hw/stream/ring.py",
        (
            "a beat has as many bytes as it took from the memory",
            "entry.count.eq(counts[-1])",
            "entry.count.eq(counts[1])",
        ),
    ),
    "outbound": [
        Edit(
            "a payload is claimed when it is in the memory",
            "hw/stream/space.py",
            "level.eq(self.written - claimed)",
            "level.eq(self.written - self.freed)",
        ),
        Edit(
            "the room that was claimed is free again",
            "hw/stream/space.py",
            "self.freed.eq(self.freed + claims.o.payload)",
            "self.freed.eq(self.freed + reservation.length)",
        ),
    ],
    "outbound-256": _edits(
        "hw/stream/ring.py",
        (
            "a payload is claimed when the rotator has given it to the memory",
            "space.written.eq(written)",
            "space.written.eq(taken)",
        ),
    ),
    "packet-ends": [
        *_edits(
            "hw/stream/ring.py",
            (
                "no payload is reserved while it is not known where its packet ends",
                "with m.If(ends.passed):",
                "with m.If(0):",
            ),
            (
                "no byte of a record is dropped",
                "Mux(ends.known & (ends.rest < space.level), ends.rest, space.level)",
                "space.level",
            ),
        ),
        *_edits(
            "hw/stream/packets.py",
            (
                "a record ends no packet",
                "ends_one = self.records & ~of_record",
                "ends_one = self.records",
            ),
        ),
    ],
    "copy": [
        Edit(
            "a payload is claimed when all of it has arrived",
            "hw/stream/space.py",
            "level.eq(self.written - claimed)",
            "level.eq(self.written - self.freed)",
        ),
        Edit(
            "room is free again when the payload has been sent",
            "hw/stream/ring.py",
            "filling.freed.eq(emptying.freed)",
            "filling.freed.eq(emptying.reservation.place.offset)",
        ),
    ],
    "slots": [
        Edit(
            "a read is issued when its descriptors have room",
            "hw/channel/fetch.py",
            "(self._unused <= self._slots - FETCH_DESCRIPTORS)",
            "(self._unused != self._slots)",
        ),
        Edit(
            "no read crosses 4 KiB",
            "hw/channel/plan.py",
            "nearest = Mux(left < here, left, here)",
            "nearest = left",
        ),
        Edit(
            "nothing behind a read that failed is handed on",
            "hw/channel/lists.py",
            "self.mark.valid & ~failed.bit_select(client, 1)",
            "self.mark.valid",
        ),
    ],
    "stored-64": _edits(
        "hw/channel/slots.py",
        (
            "dwords that are not enabled stay",
            "write.en.eq(self.placement.valid & (even | odd))",
            "write.en.eq(self.placement.valid)",
        ),
    ),
    "stored-128": _edits(
        "hw/channel/slots.py",
        (
            "of the words of a beat that one is read which was asked for",
            "m.d.sync += which.eq(self.word)",
            "m.d.comb += which.eq(self.word)",
        ),
    ),
    "stored-256": _edits(
        "hw/channel/slots.py",
        (
            "each bank has a row of its own",
            "row = Mux(odd, placed.rows[1], placed.rows[0])",
            "row = Mux(even, placed.rows[1], placed.rows[0])",
        ),
    ),
    "pushes": [
        Edit(
            "the next dword is the one behind the last",
            "hw/channel/push.py",
            "follows = (dwords[1:] == at) & (dwords[0] == ~low)",
            "follows = dwords[1:] == at",
        ),
        Edit(
            "nothing is written while the channel has a run",
            "hw/channel/push.py",
            "accepted.eq(self.open & (first | follows))",
            "accepted.eq(first | follows)",
        ),
        Edit(
            "a dword out of order spoils what was pushed",
            "hw/channel/push.py",
            "Mux(accepted, Cat(~high, at + high), ~0)",
            "Cat(~high, at + high)",
        ),
    ],
    "put": [
        Edit(
            "what is behind a word is in the other bank",
            "hw/memory/rotators.py",
            "return bank ^ (shift > lane)",
            "return bank",
        ),
    ],
    "put-256": _edits(
        "hw/memory/rotators.py",
        (
            "what is discarded leaves no step",
            "valid.eq(was_valid & ~self.discard)",
            "valid.eq(was_valid & ~(self.discard & (stage == 1)))",
        ),
    ),
    "get": [
        Edit(
            "behind an odd word comes the even one of the next row",
            "hw/memory/rotators.py",
            "return (row + bank)[: len(row)]",
            "return row",
        ),
    ],
    "get-256": _edits(
        "hw/memory/rotators.py",
        (
            "a beat is turned by its own address",
            "shift.eq(was),",
            "shift.eq(lane),",
        ),
    ),
    "axis": [
        Edit(
            "a beat that is offered waits",
            "hw/stream/axi_stream.py",
            "self.i.ready.eq(~out.tvalid | out.tready)",
            "self.i.ready.eq(1)",
        ),
        Edit(
            "nothing leaves in reset",
            "hw/stream/user_blocks/axis.py",
            "outwards.i.valid.eq(self.i.valid & on)",
            "outwards.i.valid.eq(self.i.valid)",
        ),
    ],
    "axis-256": _edits(
        "hw/stream/axi_stream.py",
        (
            "no lane of a wide beat is left out",
            "out.tkeep.eq((1 << beat.count) - 1)",
            "out.tkeep.eq(((1 << beat.count) - 1)[:8])",
        ),
    ),
    "queue": [
        Edit(
            "what comes out is what went in",
            "hw/parts/queue.py",
            "inner.w_data.eq(self.i.payload)",
            "inner.w_data.eq(self.i.payload[0])",
        ),
    ],
    "reads": [
        Edit(
            "reads are held back while there is room for those on their way",
            "hw/registers/completer.py",
            "queue.level < QUEUE_DEPTH - QUEUE_RESERVE",
            "queue.level < QUEUE_DEPTH - 2",
        ),
    ],
    "reads-256": _edits(
        "hw/registers/widths.py",
        (
            "a request behind another is seen once",
            "self.o.valid.eq(self.i.valid & ~pausing & (writes | wide.first))",
            "self.o.valid.eq(self.i.valid & (writes | wide.first))",
        ),
    ),
    "writes": [
        Edit(
            "a word is read when its beat has room",
            "hw/write/writer.py",
            "held != DEPTH",
            "beats.level <= DEPTH",
        ),
    ],
    "writes-256": _edits(
        "hw/write/writer.py",
        (
            "a word goes in when it comes",
            "beats.i.valid.eq(coming[-1])",
            "beats.i.valid.eq(coming[0])",
        ),
    ),
    "edges": [
        Edit(
            "a message that is sent takes back no other",
            "hw/interrupts/edges.py",
            "(pending & ~Mux(self.sent, bit, 0))",
            "(pending & ~Mux(self.sent, -1, 0))",
        ),
        Edit(
            "a message that was dropped is sent again",
            "hw/interrupts/edges.py",
            " | Mux(self.lost, bit, 0)",
            "",
        ),
    ],
    "masked": [
        Edit(
            "unmasking the function lets messages go",
            "hw/interrupts/irq.py",
            " | (link.msix_mask != mask_before)",
            "",
        ),
        Edit(
            "a mask that was read before it changed does not count",
            "hw/interrupts/msix.py",
            "self.changed.eq(masking | late.any())",
            "self.changed.eq(masking)",
        ),
        Edit(
            "a pending bit stands until its message is sent",
            "hw/interrupts/irq.py",
            "table.clear.eq(~link.msix_enable | ",
            "table.clear.eq(~link.msix_enable | table.changed | ",
        ),
    ],
    "pending": [
        Edit(
            "the pending bit of one vector is settled",
            "hw/interrupts/msix.py",
            "with m.If(self.clear):",
            "with m.If(self.clear | self.settle):",
        ),
        Edit(
            "the mask bit is in the upper dword",
            "hw/interrupts/msix.py",
            "masking.eq(odd & dwords[1])",
            "masking.eq(odd & dwords[0])",
        ),
    ],
    "records": [
        Edit(
            "a masked message is not sent",
            "hw/write/record_writer.py",
            "with m.If(valid & ready & ~masked):",
            "with m.If(valid & ready):",
        ),
    ],
    "straddled": _edits(
        "hw/pcie/ultrascale/straddle.py",
        (
            "the end of a packet in front of another's beginning leaves",
            "hard.eq(follows & spills & ~second)",
            "hard.eq(follows & spills & ~second & ~busy)",
        ),
        (
            "a second packet that ends in its beat leaves",
            "flush.eq(flags.ends1 & ~discontinued)",
            "flush.eq(0)",
        ),
        (
            "payload of a packet of lane 4 begins in lane 7",
            "Mux(busy & odd, bits[32 * _ODD :], bits[32 * _EVEN :])",
            "bits[32 * _EVEN :]",
        ),
        ("first beats are two cycles apart", " & ~(single & out.first)", ""),
    ),
    "requests-64": _edits(
        "hw/pcie/ultrascale/strip.py",
        ("a packet without payload leaves", "(opens | ~out.last)", "~out.last"),
    ),
    "requests-128": _edits(
        "hw/pcie/ultrascale/insert.py",
        (
            "data of a first beat counts from its second cycle on",
            "settled.eq(self.i.valid",
            "settled.eq(1 | self.i.valid",
        ),
    ),
    "requests-256": _edits(
        "hw/pcie/ultrascale/insert.py",
        (
            "dwords for which there is no room leave in another beat",
            "fits = empty | (last_dwords <= room)",
            "fits = empty | (last_dwords != 0)",
        ),
    ),
    "completions-64": _edits(
        "hw/pcie/ultrascale/strip.py",
        (
            "the end of a packet that does not complete a beat follows",
            "flush | (beat.last & ~beat.keep[rest])",
            "flush | beat.last",
        ),
    ),
    "completions-128": _edits(
        "hw/pcie/ultrascale/strip.py",
        (
            "a packet's end waits while the next one begins",
            "Mux(flush | ~(opens | drops), moves, 1)",
            "Mux(~(opens | drops), moves, 1)",
        ),
    ),
    "completions-256": _edits(
        "hw/pcie/ultrascale/insert.py",
        ("what is left is what had no room", "left.eq(last_dwords - room)", "left.eq(last_dwords)"),
    ),
    "stripped-requests-64": _edits(
        "hw/pcie/ultrascale/strip.py",
        ("a packet without payload leaves", "(opens | ~out.last)", "~out.last"),
    ),
    "stripped-requests-128": _edits(
        "hw/pcie/ultrascale/strip.py",
        ("first beats are two cycles apart", " & ~(single & out.first)", ""),
    ),
    "stripped-requests-256": _edits(
        "hw/pcie/ultrascale/strip.py",
        (
            "a packet's end waits while the next one begins",
            "Mux(flush | ~(opens | drops), moves, 1)",
            "Mux(~(opens | drops), moves, 1)",
        ),
    ),
    "stripped-completions-64": _edits(
        "hw/pcie/ultrascale/strip.py",
        (
            "the end of a packet that does not complete a beat follows",
            "flush | (beat.last & ~beat.keep[rest])",
            "flush | beat.last",
        ),
    ),
    "stripped-completions-128": _edits(
        "hw/pcie/ultrascale/strip.py",
        ("only a packet's first beat is its first", "started.eq(1), flush.eq(0)", "flush.eq(0)"),
    ),
    "tokens-ultrascale": _edits(
        "hw/pcie/ultrascale/sent.py",
        (
            "no more writes than numbers",
            "self.room.eq(under_way < limit - 1)",
            "self.room.eq(under_way < limit)",
        ),
        (
            "a number of a read is not one of a write",
            "valid & number[upper] for valid",
            "valid for valid",
        ),
    ),
    "tokens-ultrascale_plus": _edits(
        "hw/pcie/ultrascale/sent.py",
        (
            "two numbers in one cycle are two",
            "known.eq(sent + came)",
            "known.eq(sent + came.any())",
        ),
        (
            "a slower link has fewer writes under way",
            "Mux(rate < _FASTEST, (_FASTEST - rate)[:3], 0)",
            "0",
        ),
    ),
    "slices": _edits(
        "hw/parts/slice.py",
        ("there is room for what is taken", "self.i.ready.eq(~full)", "self.i.ready.eq(1)"),
    ),
}
