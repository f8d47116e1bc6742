# SPDX-License-Identifier: BSD-2-Clause
"""A story as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import html
import json
import zlib
from importlib import resources

from .story import Story

__all__ = ["page"]

#: Bytes of payload that a page has of each TLP, unless it is to have all.
_PAYLOAD = 64


def page(story: Story, title: str, *, whole: bool = False) -> str:
    """The file's text.

    Parameters
    ----------
    title : str
        Stands above the page.
    whole : bool
        Include whole payloads, not only their first 64 bytes.
    """
    rows = story.rows
    kinds = sorted({row.tlp.kind for row in rows})
    parties = sorted({row.party for row in rows})
    tracks = sorted({span.track for span in story.spans})
    data = {
        "end": story.end,
        "kinds": kinds,
        "parties": parties,
        "tracks": tracks,
        "time": [row.time for row in rows],
        "up": [int(row.up) for row in rows],
        "kind": [kinds.index(row.tlp.kind) for row in rows],
        "party": [parties.index(row.party) for row in rows],
        "mate": [row.mate for row in rows],
        "label": [row.label for row in rows],
        "note": ["; ".join(row.notes) for row in rows],
        "fields": ["\n".join(f"{k}: {v}" for k, v in row.tlp.fields().items()) for row in rows],
        "payload": [row.tlp.payload[: None if whole else _PAYLOAD].hex() for row in rows],
        "spans": [
            [tracks.index(span.track), span.start, span.end, span.text, span.row]
            for span in story.spans
        ],
        "counters": [[each.name, each.limit, each.times, each.values] for each in story.counters],
    }
    packed = zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 9)
    template = resources.files("peerdma.trace").joinpath("page.html").read_text("utf-8")
    return template.replace("{{title}}", html.escape(title)).replace(
        "{{data}}", base64.b64encode(packed).decode()
    )
