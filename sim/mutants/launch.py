# SPDX-License-Identifier: BSD-2-Clause
"""Mutants of launch queues."""

__all__ = ["ROWS"]

ROWS = [
    # What a GPU writes
    (
        "a doorbell of another generation counts",
        "launch/tails.py",
        "ours.eq(settings.armed & (word.generation == settings.generation))",
        "ours.eq(settings.armed)",
        "launch/test_tails.py::test_another_generation_is_ignored_and_counted",
    ),
    (
        "tails do not count cyclically",
        "launch/tails.py",
        "(none | ~new[-1])",
        "(none | (word.tail[:TAIL_BITS] > tail))",
        "launch/test_tails.py::test_merged_repeated_reordered_and_early_doorbells",
    ),
    (
        "a tail may be any number of places ahead",
        "launch/tails.py",
        "over.eq(inside & (used[8:-1].any() | (used[LEAST_BITS:8] & ~mask[LEAST_BITS:]).any()))",
        "over.eq(0)",
        "launch/test_tails.py::test_a_tail_more_than_the_depth_ahead_ends_the_queue",
    ),
    (
        "all of a doorbell's page is one",
        "launch/queues.py",
        "& (write.address[: _PAGE_BITS - 3] == 0)",
        "",
        "launch/test_hostile.py::test_writes_beside_a_doorbell_are_none",
    ),
    (
        "an entry that arrives may be another ticket's",
        "launch/entries.py",
        "& (placed.data[:16] == self.ticket)",
        "",
        "launch/test_queues.py::test_tickets_go_through_all_steps_in_order_beyond_each_wrap",
    ),
    (
        "an entry that was read ahead may be another ticket's",
        "launch/entries.py",
        "& (read.data.ticket[:16] == self.ticket)",
        "",
        "launch/test_queues.py::test_tickets_go_through_all_steps_in_order_beyond_each_wrap",
    ),
    (
        "entries outlive their queue",
        "launch/entries.py",
        "fresh[now] & (burst",
        "(burst",
        "launch/test_queues.py"
        "::test_an_entry_that_never_comes_ends_the_queue_and_arming_it_anew_forgets_old_ones",
    ),
    (
        "an entry that comes with a doorbell is the next one, whatever it announces",
        "launch/tails.py",
        "(moved & ~used.any())",
        "moved",
        "launch/test_entries.py"
        "::test_only_the_next_ticket_of_an_idle_queue_is_taken_from_the_doorbell",
    ),
    (
        "the next ticket has the entry that came with a doorbell, too",
        "launch/entries.py",
        "m.d.sync += came[now].eq(0)",
        "m.d.sync += came[now].eq(came[now])",
        "launch/test_entries.py::test_doorbells_of_both_widths_in_any_order",
    ),
    (
        "an entry that came with a doorbell outlives its queue",
        "launch/entries.py",
        "m.d.sync += [fresh[queue].eq(0), came[queue].eq(0)]",
        "m.d.sync += fresh[queue].eq(0)",
        "launch/test_entries.py"
        "::test_only_the_next_ticket_of_an_idle_queue_is_taken_from_the_doorbell",
    ),
    (
        "any doorbell brings an entry",
        "launch/queues.py",
        "Mux(rung & write.enable[4:].all(), tails.woken, 0)",
        "Mux(rung, tails.woken, 0)",
        "launch/test_entries.py"
        "::test_only_the_next_ticket_of_an_idle_queue_is_taken_from_the_doorbell",
    ),
    # Slots
    (
        "a queue launches another one's slot",
        "launch/sequencer.py",
        "mine = control.valid & (control.queue == self.queue)",
        "mine = control.valid",
        "test_launch_ends.py::test_errors_drain_until_software_resumes",
    ),
    (
        "a queue launches a slot that is not valid",
        "launch/sequencer.py",
        "mine = control.valid & (control.queue == self.queue)",
        "mine = control.queue == self.queue",
        "test_launch_ends.py::test_errors_drain_until_software_resumes",
    ),
    (
        "the done word of another queue's slot is written",
        "launch/sequencer.py",
        "step.has_done.eq(control.done & mine)",
        "step.has_done.eq(control.done)",
        "test_launch_ends.py::test_errors_drain_until_software_resumes",
    ),
    # The order of what is written
    (
        "the flush read is left out",
        "launch/sequencer.py",
        "with m.If(known.flushes):",
        "with m.If(0):",
        "test_launch.py::test_a_record_does_not_overtake_data_that_a_flush_read_pushes",
    ),
    (
        "a record does not wait for the flush read",
        "launch/sequencer.py",
        "with m.If(~flushing):",
        "with m.If(1):",
        "launch/test_queues.py::test_tickets_go_through_all_steps_in_order_beyond_each_wrap",
    ),
    (
        "a flush read does not wait for the end of the run",
        "launch/sequencer.py",
        "with m.If(runs.left & ~(known.flushes & self.under_way)):",
        "with m.If((runs.left | known.flushes) & ~(known.flushes & self.under_way)):",
        "launch/test_queues.py::test_tickets_go_through_all_steps_in_order_beyond_each_wrap",
    ),
    (
        "a done word does not wait for its record",
        "launch/completion.py",
        "with m.Elif(self.records.done):",
        "with m.Elif(self.records.done | (self.has_done & ~second)):",
        "launch/test_queues.py::test_tickets_go_through_all_steps_in_order_beyond_each_wrap",
    ),
    (
        "a queue is not busy before its record is out",
        "launch/work.py",
        "state.busy.eq(works | ",
        "state.busy.eq(works & (known.phase != Phase.RECORD) | ",
        "launch/test_queues.py::test_a_queue_is_busy_until_the_last_of_its_writes",
    ),
    (
        "entries that were read long ago are taken behind those of doorbells",
        "launch/entries.py",
        "m.d.sync += fresh[queue].eq(0)",
        "pass",
        "launch/test_entries.py::test_entries_that_were_read_are_forgotten_when_one_comes_along",
    ),
    # Errors
    (
        "tickets behind one that failed are started",
        "launch/sequencer.py",
        "with m.If(known.failed):",
        "with m.If(0):",
        "launch/test_queues.py::test_errors_drain_and_the_first_one_stays",
    ),
    (
        "a ticket that is not started has no done word",
        "launch/sequencer.py",
        "step.has_done.eq(control.done & mine)",
        "step.has_done.eq(control.done & mine & ~known.failed)",
        "launch/test_queues.py::test_errors_drain_and_the_first_one_stays",
    ),
    (
        "an error of the flush read is not in the record",
        "launch/work.py",
        "with m.If(failed_read & flushing & (known.status == _STATUS.OK)):",
        "with m.If(0):",
        "launch/test_queues.py::test_errors_drain_and_the_first_one_stays",
    ),
    (
        "a run outlives its queue",
        "launch/sequencer.py",
        "runs.abort.eq(self.disarmed)",
        "runs.abort.eq(0)",
        "test_launch_ends.py::test_disarming_aborts_and_nothing_is_written_after_busy",
    ),
    # Channels
    (
        "two queues have the same channel",
        "launch/sequencer.py",
        "(runs.taken & channels).any()",
        "0",
        "launch/test_queues.py::test_queues_go_side_by_side_on_different_channels",
    ),
    (
        "a start that is given up may come all the same",
        "launch/start.py",
        "self.start.eq(cycles != START_TIMEOUT)",
        "self.start.eq(1)",
        "launch/test_queues.py::test_a_job_runs_once_however_late_it_starts",
    ),
    (
        "a copy keeps one channel while it waits for the other",
        "launch/sequencer.py",
        "runs.give_back.eq(hold)",
        "runs.give_back.eq(0)",
        "launch/test_queues.py::test_a_copy_gives_back_the_channel_that_somebody_else_needs",
    ),
    (
        "a copy keeps its second channel after the run",
        "launch/runs.py",
        "drops.append(owner.ended.valid << number)",
        "drops.append(Mux(number == 1, 0, owner.ended.valid << number))",
        "launch/test_queues.py::test_a_copy_gives_back_the_channel_that_somebody_else_needs",
    ),
    (
        "the other half of a copy that fails goes on",
        "launch/runs.py",
        "drops += [Mux(broken & each[number], each, 0) for each in masks]",
        "drops += []",
        "launch/test_queues.py::test_when_one_half_of_a_copy_fails_the_other_is_aborted",
    ),
    (
        "a copy begins with what is left in the stream",
        "launch/start.py",
        "self.flush[index].eq(self.pair & ~half & self.used[index])",
        "self.flush[index].eq(0)",
        "test_launch.py::test_copies_through_the_stream_beside_those_of_software",
    ),
]
