# SPDX-License-Identifier: BSD-2-Clause
"""Properties of the gateware that hold for whatever comes: ``.venv/bin/python -m sim.formal``."""

from .arbiter import Arbiter
from .axi_stream import AxiStreamPorts
from .descriptors import Pushes, Slots
from .doorbells import Doorbells
from .frames import Frames
from .grants import Grants
from .interrupts import Edges, Masked, Pending, Records
from .leftovers import Ends, Leftovers
from .property import Property
from .queues import Queue, ReadQueue, WriteQueues
from .read_window import Window
from .rings import Copy, Inbound, Outbound
from .rotators import Get, Put
from .shares import Shares
from .solve import design
from .space import AbuttingSpace, Space
from .splitter import Pieces
from .tags import Order, Tags
from .tickets import Tickets

__all__ = ["PROPERTIES", "Property", "design"]

PROPERTIES: dict[str, type[Property]] = {
    # Those that take longest come first.
    "inbound": Inbound,
    "outbound": Outbound,
    "copy": Copy,
    "order": Order,
    "tickets": Tickets,
    "pieces": Pieces,
    "space": Space,
    "abutting-space": AbuttingSpace,
    "tags": Tags,
    "window": Window,
    "arbiter": Arbiter,
    "shares": Shares,
    "slots": Slots,
    "frames": Frames,
    "pushes": Pushes,
    "grants": Grants,
    "ends": Ends,
    "leftovers": Leftovers,
    "doorbells": Doorbells,
    "put": Put,
    "get": Get,
    "axis": AxiStreamPorts,
    "queue": Queue,
    "reads": ReadQueue,
    "writes": WriteQueues,
    "edges": Edges,
    "masked": Masked,
    "pending": Pending,
    "records": Records,
}
