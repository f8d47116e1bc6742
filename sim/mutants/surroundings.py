# SPDX-License-Identifier: BSD-2-Clause
"""Mutants of interrupts and of the user stream."""

__all__ = ["ROWS"]

ROWS = [
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
        "enabling what is requested already sends nothing",
        "irq.py",
        "before.eq(request & ~Mux(lost, bit, 0))",
        "before.eq(sources & ~Mux(lost, bit, 0))",
        "test_irq.py::test_msi_on_each_edge_of_request",
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
        "self.ready.eq((self.length <= room) & ~taken)",
        "self.ready.eq((room != 0) & ~taken)",
        "test_ring.py::test_inbound_room_is_exact",
    ),
    (
        "room of before a read is offered to the next",
        "ring.py",
        "self.ready.eq((self.length <= room) & ~taken)",
        "self.ready.eq(self.length <= room)",
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
]
