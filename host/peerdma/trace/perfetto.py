# SPDX-License-Identifier: BSD-2-Clause
"""A story for https://ui.perfetto.dev and chrome://tracing: JSON in the Trace Event Format."""

from __future__ import annotations

import json

from .story import Story

__all__ = ["perfetto"]

_PROCESS = 1


def perfetto(story: Story) -> str:
    """The file's text: spans by track, TLPs by their two ends, and counters."""
    tracks: dict[str, int] = {}

    def thread(name: str) -> int:
        return tracks.setdefault(name, len(tracks) + 1)

    common = {"pid": _PROCESS}
    events: list[dict] = []
    for span in story.spans:
        times = {"ts": span.start / 1000, "dur": (span.end - span.start) / 1000}
        what = {"name": span.text, "cat": "span"}
        events.append(common | what | {"ph": "X", "tid": thread(span.track)} | times)
    for row in story.rows:
        ends = ("card", row.party) if row.up else (row.party, "card")
        arguments = row.tlp.fields() | ({"note": "; ".join(row.notes)} if row.notes else {})
        what = {"name": row.label, "cat": row.tlp.kind, "args": arguments}
        place = {
            "ph": "i",
            "s": "t",
            "ts": row.time / 1000,
            "tid": thread("{} to {}".format(*ends)),
        }
        events.append(common | what | place)
    for counter in story.counters:
        for time, value in zip(counter.times, counter.values, strict=True):
            what = {"name": counter.name, "args": {"value": value}}
            events.append(common | what | {"ph": "C", "ts": time / 1000})
    names = [{"ph": "M", "name": "process_name", "args": {"name": "peerdma"}} | common]
    names += [
        {"ph": "M", "name": "thread_name", "tid": number, "args": {"name": name}} | common
        for name, number in tracks.items()
    ]
    return json.dumps({"traceEvents": names + events, "displayTimeUnit": "ns"})
