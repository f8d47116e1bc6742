# SPDX-License-Identifier: BSD-2-Clause
"""Properties of the gateware that hold for whatever comes: ``.venv/bin/python -m sim.formal``."""

from collections.abc import Callable
from functools import partial

from hw.pcie.ultrascale.family import ULTRASCALE, ULTRASCALE_PLUS
from hw.pcie.ultrascale.straddle import STRADDLE_WIDTH
from hw.seam import WIDTHS

from .arbiter import Arbiter
from .axi_stream import AxiStreamPorts, WideAxiStreamPorts
from .descriptors import Pushes, Slots, Stored
from .doorbells import Doorbells
from .entries import Entries
from .frames import Frames, WideFrames, WidestFrames
from .grants import Grants
from .interrupts import Edges, Masked, Pending, Records
from .leftovers import Ends, Leftovers
from .packet_ends import PacketEnds
from .packets import Headers, Slices, Straddled, Stripped
from .port import Fits, Lag
from .property import Property
from .queues import Queue, ReadQueue, WideReadQueue, WideWriteQueues, WriteQueues
from .read_window import Window
from .rings import Copy, Inbound, Outbound, WideInbound, WideOutbound
from .rotators import Get, Put, WideGet, WidePut
from .shares import Shares
from .solve import design
from .space import AbuttingSpace, OvercommittedSpace, Space
from .splitter import Pieces
from .tags import AbuttingTags, ExtendedTags, Order, Tags
from .tickets import Copies, Tickets
from .tokens import SentTokens

__all__ = ["PROPERTIES", "Property", "design"]

PROPERTIES: dict[str, Callable[[], Property]] = {
    # Those that take longest come first.
    "inbound-256": WideInbound,
    "inbound": Inbound,
    "outbound-256": WideOutbound,
    "outbound": Outbound,
    "copy": Copy,
    "packet-ends": PacketEnds,
    "order": Order,
    "tickets": Tickets,
    "copies": Copies,
    "pieces": Pieces,
    "space": Space,
    "abutting-space": AbuttingSpace,
    "overcommitted-space": OvercommittedSpace,
    "lag": Lag,
    "fits": Fits,
    "tags": Tags,
    "abutting-tags": AbuttingTags,
    "extended-tags": ExtendedTags,
    "window": Window,
    "entries-256": Entries,
    "arbiter": Arbiter,
    "shares": Shares,
    "slots": Slots,
    **{f"stored-{width}": partial(Stored, width) for width in WIDTHS},
    "frames": Frames,
    "frames-128": WideFrames,
    "frames-256": WidestFrames,
    "pushes": Pushes,
    "grants": Grants,
    "ends": Ends,
    "leftovers": Leftovers,
    "doorbells": Doorbells,
    "put": Put,
    "put-256": WidePut,
    "get": Get,
    "get-256": WideGet,
    "axis": AxiStreamPorts,
    "axis-256": WideAxiStreamPorts,
    "queue": Queue,
    "reads": ReadQueue,
    "reads-256": WideReadQueue,
    "writes": WriteQueues,
    "writes-256": WideWriteQueues,
    "edges": Edges,
    "masked": Masked,
    "pending": Pending,
    "records": Records,
    "straddled": Straddled,
    # Of our requests and of the host's, then of completions.
    **{f"requests-{width}": partial(Headers, width, 4) for width in WIDTHS},
    **{f"completions-{width}": partial(Headers, width, 3) for width in WIDTHS},
    **{f"stripped-requests-{width}": partial(Stripped, width, 4) for width in WIDTHS},
    **{
        f"stripped-completions-{width}": partial(Stripped, width, 3)
        for width in WIDTHS
        if width != STRADDLE_WIDTH
    },
    **{
        f"tokens-{family.name}": partial(SentTokens, family)
        for family in (ULTRASCALE, ULTRASCALE_PLUS)
    },
    "slices": Slices,
}
