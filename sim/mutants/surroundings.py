# SPDX-License-Identifier: BSD-2-Clause
"""Mutants of interrupts and of the user stream."""

__all__ = ["ROWS"]

ROWS = [
    # Interrupts
    (
        "INTx beside MSI-X",
        "interrupts/irq.py",
        "with m.If(link.msi_enable | link.msix_enable):\n            # Enabling",
        "with m.If(link.msi_enable):\n            # Enabling",
        "interrupts/test_irq_msix.py::test_the_block_is_not_asked_for_anything_while_msix_is_on",
    ),
    (
        "vectors that were not granted",
        "interrupts/irq.py",
        "out.payload.vector.eq(table.vector & granted_mask)",
        "out.payload.vector.eq(table.vector)",
        "interrupts/test_irq.py::test_msi_vector_is_reduced_to_what_was_granted",
    ),
    (
        "enabling what is requested already sends nothing",
        "interrupts/irq.py",
        "request.eq(sources & enables),",
        "request.eq(sources),",
        "interrupts/test_irq.py::test_msi_on_each_edge_of_request",
    ),
    (
        "a masked message is forgotten",
        "interrupts/irq.py",
        "with m.If(message.ready & self.records.masked):\n"
        "                        m.d.comb += edges.masked.eq(~changed)",
        "with m.If(message.ready & self.records.masked):\n"
        "                        m.d.comb += [edges.masked.eq(~changed), edges.sent.eq(1)]",
        "interrupts/test_irq_msix.py::test_a_masked_message_waits_in_the_pending_bits",
    ),
    (
        "messages without bus master",
        "interrupts/irq.py",
        "with m.Elif(link.bus_master):",
        "with m.Else():",
        "interrupts/test_irq_msix.py::test_bus_master_off_sends_nothing_and_loses_nothing",
    ),
    (
        "a dropped message is not sent again",
        "interrupts/irq.py",
        "edges.lost.eq(self.records.dropped)",
        "edges.lost.eq(0)",
        "interrupts/test_irq_msix.py::test_a_dropped_message_is_sent_again",
    ),
    (
        "vectors unmasked after reset",
        "interrupts/msix.py",
        "masks = Signal(_ENTRIES, init=-1)",
        "masks = Signal(_ENTRIES)",
        "interrupts/test_msix.py::test_all_vectors_are_masked_after_reset",
    ),
    # User stream
    (
        "reads without room for them",
        "stream/space.py",
        "reservation.ready.eq((reservation.length <= room) & ~taken)",
        "reservation.ready.eq((room != 0) & ~taken)",
        "stream/test_ring.py::test_inbound_room_is_exact",
    ),
    (
        "room of before a read is offered to the next",
        "stream/space.py",
        "reservation.ready.eq((reservation.length <= room) & ~taken)",
        "reservation.ready.eq(reservation.length <= room)",
        "stream/test_ring.py::test_inbound_room_is_exact",
    ),
    (
        "writes without all of their bytes",
        "stream/space.py",
        "(level >= reservation.length) & claims.i.ready",
        "(level != 0) & claims.i.ready",
        "stream/test_ring.py::test_outbound_bytes_in_order",
    ),
    (
        "what is behind a failed read goes on",
        "stream/space.py",
        "(place.memory == CardMemory.RING) & ~self.gap",
        "(place.memory == CardMemory.RING)",
        "stream/test_ring.py::test_inbound_takes_no_note_of_what_is_behind_a_gap",
    ),
    (
        "room is free again before its bytes are sent",
        "stream/ring.py",
        "filling.freed.eq(emptying.freed)",
        "filling.freed.eq(emptying.reservation.place.offset)",
        "stream/test_ring.py::test_copy_room_is_exact",
    ),
    (
        "an error without an address has that of another",
        "channel/capture.py",
        "kept.read.eq(~report.located & (not c2h))",
        "kept.read.eq(~report.located)",
        "channel/test_capture.py::test_a_write_that_was_dropped_has_no_address",
    ),
    (
        "the place of a descriptor is kept for data, too",
        "channel/capture.py",
        "kept.reported.eq(report.located)",
        "kept.reported.eq(1)",
        "channel/test_capture.py",
    ),
    (
        "reads of a broken pair wait for ever",
        "stream/pair.py",
        "path.discard.eq(broken & ~c2h.running)",
        "path.discard.eq(0)",
        "stream/test_pair.py::test_reads_of_a_broken_pair_find_room",
    ),
    (
        "a broken pair drops what C2H still takes",
        "stream/pair.py",
        "path.discard.eq(broken & ~c2h.running)",
        "path.discard.eq(broken)",
        "stream/test_pair.py::test_what_c2h_still_gets_of_a_broken_copy_is_its_beginning",
    ),
    (
        "lanes without bytes keep their place",
        "stream/axi_stream.py",
        "total.eq(below + held)",
        "total.eq(below + 1)",
        "stream/test_axi_stream.py::test_bytes_move_together",
    ),
    (
        "a flush leaves the user's side alone",
        "stream/user_blocks/axis.py",
        "with m.If(~on):",
        "with m.If(0):",
        "stream/test_axi_stream.py::test_a_flush_resets_the_users_side_and_nothing_moves_meanwhile",
    ),
    (
        "stored and forwarded",
        "read/engine.py",
        "marks.reaches.eq(checker.reaches)",
        "marks.reaches.eq(checker.reaches & checker.close)",
        "read/test_engine_marks.py",
    ),
    (
        "a failing C2H leaves bytes in the pair",
        "stream/pair.py",
        "self.flush | h2c.breaks | c2h.breaks",
        "self.flush | h2c.breaks",
        "stream/test_pair.py::test_after_a_break_the_next_copy_is_clean",
    ),
    (
        "a run starts into the flush",
        "stream/pair.py",
        "            h2c.start_ok.eq(~broken)",
        "            h2c.start_ok.eq(1)",
        "stream/test_pair.py",
    ),
    (
        "a mask that is written clears all pending bits",
        "interrupts/irq.py",
        "table.clear.eq(~link.msix_enable | self._vectors_written(csr))",
        "table.clear.eq(~link.msix_enable | table.changed | self._vectors_written(csr))",
        "interrupts/test_irq_msix.py::test_pending_bits_stand_while_their_messages_wait",
    ),
    (
        "a message that was taken back leaves its pending bit",
        "interrupts/irq.py",
        "m.d.comb += [edges.settled.eq(1), table.settle.eq(1)]",
        "m.d.comb += edges.settled.eq(1)",
        "interrupts/test_irq_msix.py::test_a_request_that_falls_takes_its_message_back",
    ),
    (
        "a request that falls while masks change leaves its pending bit",
        "interrupts/edges.py",
        "| (~request & (deferred | pending)",
        "| (~request & deferred",
        "interrupts/test_irq_msix.py::test_a_request_that_falls_while_it_is_looked_at_again",
    ),
]
