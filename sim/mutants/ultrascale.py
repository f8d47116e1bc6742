# SPDX-License-Identifier: BSD-2-Clause
"""Mutants of the adapter for the UltraScale and UltraScale+ blocks."""

__all__ = ["ROWS"]

ROWS = [
    (
        "data of a request before it counts",
        "pcie/ultrascale/insert.py",
        "m.d.sync += settled.eq(",
        "m.d.comb += settled.eq(1 | ",
        "pcie/ultrascale/test_transmit.py::test_requests",
    ),
    (
        "a packet ends without its last dwords",
        "pcie/ultrascale/insert.py",
        "fits = empty | (last_dwords <= room)",
        "fits = empty | (last_dwords != 0)",
        "pcie/ultrascale/test_transmit.py::test_requests",
    ),
    (
        "completions of one beat without a cycle between them",
        "pcie/ultrascale/strip.py",
        " & ~(single & out.first)",
        "",
        "pcie/ultrascale/test_receive.py::test_completions",
    ),
    (
        "the end of a packet in front of another's beginning is lost",
        "pcie/ultrascale/straddle.py",
        "hard.eq(follows & spills & ~second)",
        "hard.eq(follows & spills & ~second & ~busy)",
        "pcie/ultrascale/test_receive.py::test_completions",
    ),
    (
        "a packet that begins in lane 4 is taken for one of lane 0",
        "pcie/ultrascale/straddle.py",
        "odd.eq(1)",
        "odd.eq(0)",
        "pcie/ultrascale/test_receive.py::test_completions",
    ),
    (
        "a packet that is cut off is whole",
        "pcie/ultrascale/strip.py",
        "drops.eq(beat.discontinued | cut)",
        "drops.eq(0)",
        "pcie/ultrascale/test_receive.py::test_of_a_packet_that_is_cut_off_the_end_is_missing",
    ),
    (
        "a completion of no request is somebody's",
        "pcie/ultrascale/receive.py",
        "completion.tag.eq(_NO_TAG)",
        "completion.tag.eq(descriptor.tag)",
        "pcie/ultrascale/test_receive.py::test_error_codes",
    ),
    (
        "a timeout of the block is another error",
        "pcie/ultrascale/receive.py",
        "completion.status.eq(CompletionStatus.TIMEOUT)",
        "completion.status.eq(CompletionStatus.UR)",
        "pcie/ultrascale/test_receive.py::test_error_codes",
    ),
    (
        "a completion with a reserved error code is good",
        "pcie/ultrascale/receive.py",
        "with m.Default():",
        "with m.Case(CompletionError.FUNCTION_RESET.value):",
        "pcie/ultrascale/test_receive.py::test_error_codes",
    ),
    (
        "a timeout of the block is Unsupported Request",
        "read/checks.py",
        "outcome.eq(Outcome.COMPLETION_TIMEOUT)",
        "outcome.eq(Outcome.UNSUPPORTED_REQUEST)",
        "read/test_engine_faults.py::test_error_completions",
    ),
    (
        "a read has a write's number",
        "pcie/ultrascale/sent.py",
        "self.sequence.eq(Mux(self.write, Cat(place, 1), 0))",
        "self.sequence.eq(Cat(place, 1))",
        "pcie/ultrascale/test_sent.py::test_tokens_come_with_numbers",
    ),
    (
        "a write more than there are numbers",
        "pcie/ultrascale/sent.py",
        "self.room.eq(under_way < most - 1)",
        "self.room.eq(under_way < most)",
        "pcie/ultrascale/test_sent.py::test_there_are_never_more_writes_than_numbers",
    ),
    (
        "a lost number is waited for without an end",
        "pcie/ultrascale/sent.py",
        "m.d.sync += dropping.eq(1)",
        "m.d.sync += dropping.eq(0)",
        "pcie/ultrascale/test_sent.py"
        "::test_writes_that_never_come_back_are_dropped_without_bus_master",
    ),
    (
        "more non-posted requests than the seam allows",
        "pcie/ultrascale/credits.py",
        "_MOST = 2",
        "_MOST = 3",
        "pcie/ultrascale/test_adapter.py::test_two_non_posted_requests_are_under_way_at_most",
    ),
    (
        "extended tags are what relaxed ordering is",
        "pcie/ultrascale/management.py",
        "self.data[_EXTENDED_TAG]",
        "self.data[_RELAXED_ORDERING]",
        "pcie/ultrascale/test_adapter.py::test_device_control_is_read_again_and_again",
    ),
    (
        "two accesses to Device Control without a cycle between them",
        "pcie/ultrascale/management.py",
        "self.read.eq(~(self.read & self.done))",
        "self.read.eq(1)",
        "pcie/ultrascale/test_adapter.py::test_device_control_is_read_again_and_again",
    ),
    (
        "a message that failed is lost",
        "pcie/ultrascale/interrupts.py",
        "self.message_sent | ~self.msi_enable",
        "self.message_sent | self.message_failed | ~self.msi_enable",
        "pcie/ultrascale/test_adapter.py::test_messages_go_one_at_a_time_until_they_are_sent",
    ),
]
