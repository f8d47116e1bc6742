# SPDX-License-Identifier: BSD-2-Clause
"""Mutants that show in the whole core only: under cocotb, and one on the native model."""

__all__ = ["ROWS"]


def _bench(name: str) -> str:
    return f"benches/test_benches.py::test_bench[{name}]"


ROWS = [
    (
        "interrupt before the data",
        "channel/channel.py",
        "self.report.valid & (report.last | (report.outcome != Outcome.OK))",
        "self.report.valid",
        _bench("bench_interrupts.msi_follows_data"),
        "demo",
    ),
    (
        "the core is reset at once with the function",
        "pcie/ultrascale/reset.py",
        "self.reset.eq(self.asked & passed)",
        "self.reset.eq(self.asked)",
        _bench("bench_ultrascale_events.function_reset_before_writes@ultrascale_plus-128"),
    ),
    (
        "a write that the block has taken counts as sent",
        "pcie/ultrascale/sent.py",
        "hands.eq((sent != 0) | (dropping & (under_way != 0))),\n"
        "            self.sent.payload.token.eq(read.data),\n"
        "            self.sent.payload.dropped.eq(sent == 0),",
        "hands.eq(under_way != 0),\n"
        "            self.sent.payload.token.eq(read.data),\n"
        "            self.sent.payload.dropped.eq(0),",
        "perf/test_streams.py::test_status_follows_data",
    ),
    (
        "records of all frames are switched on by pair 0",
        "core.py",
        "pair.records.eq(host.frame_records[index])",
        "pair.records.eq(host.frame_records[0])",
        _bench("bench_frames.records_in_gpu_memory@2"),
    ),
    (
        "channel bits in the wrong order",
        "host.py",
        "irq.channel.eq(Cat(channel.interrupt for channel in channels))",
        "irq.channel.eq(Cat(channel.interrupt for channel in reversed(channels)))",
        _bench("bench_picoevb.host_to_host_copies"),
    ),
    (
        "soft reset leaves channels as they are",
        "core.py",
        "Resets(host.reset)(channel)",
        "channel",
        _bench("bench_stream_faults.soft_resets"),
    ),
    (
        "tokens of one channel count for another",
        "write/pieces.py",
        "& (back.channel == number)",
        "",
        _bench("bench_channels.all_at_once@2"),
    ),
    (
        "a record passes data at a switch, for want of a flush read",
        "launch/sequencer.py",
        "with m.If(runs_some & here.kept.flushes):",
        "with m.If(0):",
        _bench("bench_launch.records_behind_data"),
    ),
    (
        "a flush read does not wait for the data",
        "launch/sequencer.py",
        "Mux(runs_some, runs.ended &",
        "Mux(runs_some, (runs.ended | here.kept.flushes) &",
        _bench("bench_launch.records_behind_data"),
    ),
    (
        "a completion passes a write that the block has taken",
        "pcie/ultrascale/sent.py",
        "known.eq(sent + came)",
        "known.eq(sent + self.takes)",
        _bench("bench_ultrascale.status_follows_data@ultrascale_plus-256"),
    ),
]
