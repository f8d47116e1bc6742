# SPDX-License-Identifier: BSD-2-Clause
"""The mutants: realistic bugs of the gateware, each with a quick test that must turn red.

A row is file, source fragment, what it becomes, tests. The fragment is in its file exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """One bug."""

    #: the rule that it breaks
    name: str
    #: path from the root of the checkout
    file: str
    old: str
    new: str
    #: pytest's arguments, apart from options: at least one of these tests fails
    tests: tuple[str, ...]
    #: the demo, too, must notice it
    demo: bool = False


def _group(folder: str, *rows: tuple) -> list[Mutant]:
    """Mutants from rows of name, file, old, new, test and, if so, demo."""
    mutants = []
    for name, file, old, new, test, *demo in rows:
        tests = tuple(f"{folder}/{one}" for one in test.split())
        mutants.append(Mutant(name, f"hw/{file}", old, new, tests, bool(demo)))
    return mutants


def _bench(name: str) -> str:
    return f"test_benches.py::test_bench[{name}]"


MUTANTS: list[Mutant] = [
    *_group(
        "tests/hw",
        # Requests: sizes, boundaries, byte enables, headers
        (
            "stuck data bit",
            "series7.py",
            "self.trntd.eq(beat.data)",
            "self.trntd.eq(beat.data & ~(1 << 37))",
            "test_series7.py",
            "demo",
        ),
        (
            "no carry over a 4 KiB boundary",
            "splitter.py",
            "origin + self.piece.valid",
            "origin + (self.piece.valid & ~origin[:12].all())",
            "test_splitter.py",
            "demo",
        ),
        (
            "pieces of twice the limit",
            "splitter.py",
            "limit = request_bytes(self.limit)",
            "limit = request_bytes(self.limit + 1)",
            "test_splitter.py::test_boundaries",
        ),
        (
            "lengths end at 128 MiB",
            "splitter.py",
            "remaining = Signal(28)",
            "remaining = Signal(27)",
            "test_splitter.py::test_longest_span test_splitter.py::test_long_spans",
        ),
        (
            "a byte enable missing",
            "writer.py",
            "offered.header.first_be.eq(ahead.first_be)",
            "offered.header.first_be.eq(ahead.first_be & 0x7)",
            "test_writer.py",
            "demo",
        ),
        (
            "single dword with two sets of byte enables",
            "writer.py",
            "Mux(single, lead & tail, lead)",
            "lead",
            "test_writer.py::test_every_alignment",
        ),
        (
            "bytes shifted across words",
            "writer.py",
            "(shift != 0) & (shift < 8 - lane)",
            "(shift != 0) & (shift < 7 - lane)",
            "test_writer.py::test_every_alignment",
        ),
        (
            "a bubble between writes",
            "writer.py",
            "(~reading | final)",
            "~reading",
            "test_writer.py::test_throughput",
        ),
        (
            "reads beyond the last byte",
            "issuer.py",
            "Mux(single, first_be & last_be, first_be)",
            "first_be",
            "test_requester.py::test_every_alignment",
        ),
        (
            "four-dword headers below 4 GiB",
            "trn_transmit.py",
            "dword0.four_dwords.eq(request.address[32:] != 0)",
            "dword0.four_dwords.eq(1)",
            "test_trn_transmit.py::test_any_mixture_leaves_no_gap_between_packets",
        ),
        # Completions and tags
        (
            "completions matched to the wrong tag",
            "checker.py",
            "self.lookup.eq(comes.tag)",
            "self.lookup.eq(comes.tag ^ 1)",
            "test_requester.py",
            "demo",
        ),
        (
            "byte count not compared",
            "checker.py",
            "(count == self.progress.end)\n                & ",
            "",
            "test_requester_faults.py::test_completions_that_do_not_fit",
        ),
        (
            "poisoned data is good",
            "checker.py",
            "good & ~header.poisoned)",
            "good)",
            "test_requester_faults.py::test_poisoned",
        ),
        (
            "completer abort taken for unsupported request",
            "checker.py",
            "outcome.eq(Outcome.COMPLETER_ABORT)",
            "outcome.eq(Outcome.UNSUPPORTED_REQUEST)",
            "test_requester_faults.py::test_error_completions",
        ),
        (
            "quarantined tags are used",
            "tags.py",
            "free.eq(~(busy | self.quarantined))",
            "free.eq(~busy)",
            "test_requester_faults.py::test_late_completions",
        ),
        (
            "a reset forgets that completions may come",
            "tags.py",
            "lost = self.waiting & (every(self.flush) | (",
            "lost = self.waiting & ((",
            "test_requester.py::test_flush_with_traffic",
        ),
        (
            "no completion timeout",
            "requester.py",
            "timed_out.eq(visit & states.subject_waiting & (age == 1))",
            "timed_out.eq(0)",
            "test_requester_faults.py::test_timeout",
        ),
        (
            "quarantine for ever",
            "requester.py",
            "expired.eq(visit & open_ & (age == 1 + self._quarantine_timeouts))",
            "expired.eq(0)",
            "test_requester_faults.py::test_completions_after_quarantine",
        ),
        (
            "retired before the last word is written",
            "tags.py",
            "retire.p.eq(stages[2]),\n            retire.valid.eq(valids[2] & ~self.flush),",
            "retire.p.eq(stages[1]),\n            retire.valid.eq(valids[1] & ~self.flush),",
            "test_requester.py::test_random_reads",
        ),
        (
            "reads without bus master",
            "issuer.py",
            "self.request.valid.eq(self.bus_master)",
            "self.request.valid.eq(1)",
            "test_requester.py::test_bus_master_off",
        ),
        # Transmission: order, credits, starvation
        (
            "requests sent while bus master is off",
            "tx.py",
            "out.valid.eq(valid & ~dropping)",
            "out.valid.eq(valid)",
            "test_tx.py::test_bus_master_off_drops_everything_and_says_so",
        ),
        (
            "reads starve behind queued writes",
            "tx.py",
            "write_ok.eq(link.tx_buffers > self._tx_buffers - self._write_window)",
            "write_ok.eq(link.tx_buffers != 0)",
            "test_tx.py::test_writes_stay_within_the_window",
        ),
        (
            "writes go before reads",
            "tx.py",
            "self.reads.valid & (read_ok | ~master)",
            "self.reads.valid & ~write_valid & (read_ok | ~master)",
            "test_tx.py",
        ),
        (
            "credits that are spent already",
            "tx.py",
            "credit = link.np_headers > unseen",
            "credit = link.np_headers != 0",
            "test_tx.py::test_reads_never_exceed_the_credits",
        ),
        (
            "completions into the middle of a write",
            "trn_transmit.py",
            "completing.eq(self.completion.valid),",
            "completing.eq(0),",
            "test_trn_transmit.py",
        ),
        (
            "sent as the header leaves",
            "trn_transmit.py",
            "self.tlp.ready & taken.eof & taken.write",
            "self.tlp.ready & taken.sof & taken.write",
            "test_trn_transmit.py::test_a_token_follows_the_end_of_each_write",
        ),
        # Registers
        (
            "poisoned register writes count",
            "target.py",
            "(header.kind == TargetKind.WRITE) & ~header.poisoned",
            "(header.kind == TargetKind.WRITE)",
            "test_completer.py::test_what_is_not_served",
        ),
        (
            "reads are held back too late",
            "completer.py",
            "queue.level < QUEUE_DEPTH - QUEUE_RESERVE",
            "queue.level < QUEUE_DEPTH",
            "test_completer.py::test_reads_are_held_back_before_the_queue_is_full",
        ),
        (
            "a block answers for its neighbours",
            "csr.py",
            "(address[size_bits - 3 :] == self._base >> size_bits)",
            "(address[size_bits - 2 :] == self._base >> size_bits + 1)",
            "test_csr.py::test_other_bar_and_other_block_are_not_ours",
        ),
        (
            "part of a register is written",
            "csr.py",
            "enable[4 * lane : 4 * lane + 4].all()",
            "enable[4 * lane : 4 * lane + 4].any()",
            "test_csr.py::test_partial_write_is_ignored",
        ),
        (
            "reading the neighbour clears",
            "csr.py",
            "& self.bus.read_enable[4 * lane : 4 * lane + 4].any()",
            "& self.bus.read_enable.any()",
            "test_csr.py::test_read_clears_only_through_its_alias",
        ),
        (
            "only the last error is captured",
            "extension.py",
            "with m.If(errors == 0):",
            "with m.If(1):",
            "test_extension.py::test_the_first_error_is_kept_and_all_are_counted",
        ),
        (
            "payloads above the max payload size",
            "extension.py",
            "smaller.eq(Mux(value < allowed, value, allowed))",
            "smaller.eq(value)",
            "test_extension.py::test_requests_keep_to_what_host_user_and_engine_allow",
        ),
        # Descriptors
        (
            "next of a descriptor inside a block is followed",
            "fetch.py",
            "(left == 0) & (unchecked == 1)",
            "(unchecked == 1)",
            "test_fetch.py::test_upstream test_fetch.py::test_xdma_ko",
        ),
        (
            "Stop inside a block is overlooked",
            "fetch.py",
            "with m.If(ram.check.stop):",
            "with m.If(ram.check.stop & (left == 0)):",
            "test_fetch.py::test_any_list",
        ),
        (
            "five bits of Nxt_adj",
            "fetch.py",
            "    adjacent: 6\n",
            "    adjacent: 5\n",
            "test_fetch.py::test_xdma_ko",
        ),
        (
            "a descriptor read across 4 KiB",
            "fetch.py",
            "nearest = Mux(left < here, left, here)",
            "nearest = left",
            "test_fetch.py::test_any_list",
        ),
        (
            "a page is turned before all of it is checked",
            "fetch.py",
            "at[-1] & (left != 0) & (unchecked == 0)",
            "at[-1] & (left != 0)",
            "test_fetch.py::test_errors_on_either_side_of_a_page",
        ),
        (
            "descriptor reads above the limit",
            "fetch.py",
            "most = Mux(nearest < limit, nearest, limit)",
            "most = Mux(nearest < self.credit, nearest, self.credit)",
            "test_fetch.py::test_upstream",
        ),
        (
            "more descriptors than slots",
            "fetch.py",
            "& (used + most <= self._slots)",
            "",
            "test_fetch.py::test_any_list",
        ),
        (
            "half of the magic",
            "fetch.py",
            "word[16:32] == regs.DESC_MAGIC",
            "word[24:32] == regs.DESC_MAGIC >> 8",
            "test_fetch.py::test_bad_magic_everywhere",
        ),
        (
            "halted fetches go on",
            "fetch.py",
            "issue | self.halt | self.flush",
            "issue | self.flush",
            "test_fetch.py::test_halt",
        ),
        (
            "credits survive the run",
            "credits.py",
            "~self.mode | self.clear | (left < 0)",
            "~self.mode | (left < 0)",
            "test_credits.py",
        ),
        # Channels
        (
            "idle_stopped at a normal end",
            "channel.py",
            "m.d.comb += event.eq(ending)",
            "m.d.comb += event.eq(ending | int(_STATUS.IDLE_STOPPED))",
            "test_channel.py::test_one_descriptor_as_picoevb_runs_it",
        ),
        (
            "stopped without completed",
            "channel.py",
            "| Mux(head.completed, int(_STATUS.DESCRIPTOR_COMPLETED), 0)",
            "",
            "test_channel.py::test_busy_count_and_both_bits_change_in_one_cycle",
        ),
        (
            "busy when the event comes",
            "channel.py",
            "csr.status.eq(Cat(busy, ",
            "csr.status.eq(Cat(busy | event.any(), ",
            "test_channel.py::test_busy_count_and_both_bits_change_in_one_cycle",
        ),
        (
            "old status in a new run",
            "channel.py",
            "m.d.sync += [sticky.eq(0), count.eq(0), completed_wait.eq(0)]",
            "m.d.sync += [count.eq(0), completed_wait.eq(0)]",
            "test_channel.py::test_run_rise_clears_status_and_count_and_drops_the_request",
        ),
        (
            "the count ends with Run",
            "channel.py",
            "csr.completed_count.eq(Mux(rise, 0, count))",
            "csr.completed_count.eq(Mux(run & ~rise, count, 0))",
            "test_channel.py::test_one_descriptor_as_picoevb_runs_it",
        ),
        (
            "an event while status is cleared makes no edge",
            "channel.py",
            "hold.eq(csr.status_clear.any())",
            "hold.eq(0)",
            "test_channel.py::test_read_to_clear_never_loses_an_event",
        ),
        (
            "Control does not gate Status",
            "channel.py",
            "logged.eq(event & control[:24] & ~int(_STATUS.BUSY))",
            "logged.eq(event & ~int(_STATUS.BUSY))",
            "test_channel.py::test_nothing_is_logged_or_raised_without_its_enable",
        ),
        (
            "an aborted run speaks in the next",
            "channel.py",
            "with m.If(~restarted & ~rise):\n                        m.d.comb += event.eq(int(_STATUS.IDLE",
            "with m.If(1):\n                        m.d.comb += event.eq(int(_STATUS.IDLE",
            "test_channel.py::test_restart_while_draining_is_a_clean_run",
        ),
        (
            "over while data is on its way",
            "channel.py",
            "settled = self.quiet & ~hold",
            "settled = ~hold",
            "test_channel.py test_channel_errors.py",
        ),
        (
            "card addresses beyond the RAM",
            "ram.py",
            "address[bits:].any() | ends_behind",
            "address[bits:].any()",
            "test_channel_errors.py::test_card_address_decode",
        ),
        (
            "poisoned data that only some drivers see",
            "error_bits.py",
            'Outcome.POISONED: Status[f"{source}_POISONED"] | unsupported',
            'Outcome.POISONED: Status[f"{source}_POISONED"]',
            "test_channel_errors.py",
        ),
        (
            "writeback only where the event is logged",
            "channel.py",
            "owed.eq(write_back & head.completed)",
            "owed.eq(write_back & head.completed & control[2])",
            "test_writeback.py::test_needs_no_logging",
        ),
        (
            "writeback after Run was cleared",
            "channel.py",
            "self.writeback.valid.eq(owed & run & (",
            "self.writeback.valid.eq(owed & (",
            "test_writeback.py::test_nothing_is_written_after_run_was_cleared",
        ),
        (
            "status before the writeback",
            "channel.py",
            "completed_wait & ~owed & ~writing & ~hold",
            "completed_wait & ~hold",
            "test_writeback.py::test_one_for_each_completed_descriptor_and_no_other",
        ),
        # Interrupts
        (
            "INTx beside MSI-X",
            "irq.py",
            "with m.If(self.msi_enable | self.msix_enable):\n            # Enabling",
            "with m.If(self.msi_enable):\n            # Enabling",
            "test_irq_msix.py::test_the_block_is_not_asked_for_anything_while_msix_is_on",
        ),
        (
            "vectors that were not granted",
            "irq.py",
            "out.payload.vector.eq(table.vector & granted_mask)",
            "out.payload.vector.eq(table.vector)",
            "test_irq.py::test_msi_vector_is_reduced_to_what_was_granted",
        ),
        (
            "an edge while its message is sent is lost",
            "irq.py",
            "(~before | (pending & ~Mux(sent, bit, 0)))",
            "((~before | pending) & ~Mux(sent, bit, 0))",
            "test_irq_msix.py",
        ),
        (
            "a masked message is forgotten",
            "irq.py",
            "with m.If(self.message.ready & self.message_masked):\n"
            "                        m.d.comb += table.pend.eq(1)",
            "with m.If(self.message.ready & self.message_masked):\n"
            "                        m.d.comb += [table.pend.eq(1), sent.eq(1)]",
            "test_irq_msix.py::test_a_masked_message_waits_in_the_pending_bits",
        ),
        (
            "messages without bus master",
            "irq.py",
            "with m.Elif(self.bus_master):",
            "with m.Else():",
            "test_irq_msix.py::test_bus_master_off_sends_nothing_and_loses_nothing",
        ),
        (
            "a dropped message is not sent again",
            "irq.py",
            "lost.eq(self.message_dropped)",
            "lost.eq(0)",
            "test_irq_msix.py::test_a_dropped_message_is_sent_again",
        ),
        (
            "vectors unmasked after reset",
            "msix.py",
            "masks = Signal(_ENTRIES, init=-1)",
            "masks = Signal(_ENTRIES)",
            "test_msix.py::test_all_vectors_are_masked_after_reset",
        ),
        # User stream
        (
            "reads without room for them",
            "ring.py",
            "self.ready.eq(used + self.length <= self._size)",
            "self.ready.eq(used != self._size)",
            "test_ring.py::test_inbound_room_is_exact",
        ),
        (
            "writes without all of their bytes",
            "ring.py",
            "(level >= self.length) & claims.w_rdy",
            "(level != 0) & claims.w_rdy",
            "test_ring.py::test_outbound_bytes_in_order",
        ),
        (
            "what is behind a failed read goes on",
            "ring.py",
            "self.frontier_valid & of_ring & ~self.gap",
            "self.frontier_valid & of_ring",
            "test_ring.py::test_inbound_takes_no_note_of_what_is_behind_a_gap",
        ),
        (
            "stored and forwarded",
            "requester.py",
            "reached_write.en.eq(taken.valid | checker.reaches)",
            "reached_write.en.eq(taken.valid | (checker.reaches & checker.close))",
            "test_requester_frontier.py",
        ),
        (
            "a failing C2H leaves bytes in the pair",
            "pair.py",
            "self.flush | self.h2c_breaks | self.c2h_breaks",
            "self.flush | self.h2c_breaks",
            "test_pair.py::test_after_a_break_the_next_copy_is_clean",
        ),
        (
            "a run starts into the flush",
            "pair.py",
            "self.start_ok.eq(~broken)",
            "self.start_ok.eq(1)",
            "test_pair.py",
        ),
    ),
    *_group(
        "tests/sim",
        # The whole core, under cocotb
        (
            "interrupt before the data",
            "pipeline.py",
            "self.piece_done & (self.piece_last | (self.piece_outcome != Outcome.OK))",
            "self.piece_done",
            _bench("bench_interrupts.msi_follows_data"),
            "demo",
        ),
        (
            "channel bits in the wrong order",
            "core.py",
            "irq.channel.eq(Cat(channel.interrupt for channel in channels))",
            "irq.channel.eq(Cat(channel.interrupt for channel in reversed(channels)))",
            _bench("bench_picoevb.host_to_host_copies"),
        ),
        (
            "soft reset leaves channels as they are",
            "core.py",
            "ResetInserter(reset)(pipeline)",
            "pipeline",
            _bench("bench_stream_faults.soft_resets"),
        ),
        (
            "tokens of one channel count for another",
            "core.py",
            "& (token.channel == index)",
            "",
            _bench("bench_channels.all_at_once@2"),
        ),
    ),
]
