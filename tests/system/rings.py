# SPDX-License-Identifier: BSD-2-Clause
"""Frames that tests receive in a guest: the source, and a ring of the driver's."""

from __future__ import annotations

import contextlib
import errno
import zlib
from collections.abc import Iterator

import numpy as np

from peerdma import uapi
from peerdma.regs import FRAME_NUMBER_VALID, FRAME_RECORD, PATTERN_SOURCE
from peerdma.testing.pattern import fill_bytes
from peerdma.uapi import Event, Frame, Ioctl, Reason, ReleaseFrames, RingFlag, StartRing
from tests.system.picoevb import PAGE, Buffer, Node, results, until

#: The node of the board with the source.
SENSOR = "/dev/picoevb1"
#: Bytes of a frame: not whole pages, and not a multiple of what a write carries.
SIZE = 5004
RECORD = FRAME_RECORD.itemsize
CANCELLED = (errno.ECANCELED, Reason.CANCELLED)
_GOES_ON = (0, Reason.FRAMES)


@contextlib.contextmanager
def source(size: int, seed: int) -> Iterator[None]:
    """The source makes frames of `size` bytes within; all is given back at the end."""
    with Node(SENSOR) as node:
        set_register(node, "seed", seed)
        set_register(node, "frame_words", size // 4)
        try:
            yield
        finally:
            set_register(node, "frame_words", 0)
            until(lambda: not node.info().pinned_bytes)


def set_register(node: Node, name: str, value: int) -> None:
    offset = PATTERN_SOURCE[name].offset
    request = uapi.UserRegister(flags=uapi.RegisterFlag.WRITE, offset=offset, value=value)
    node.request(Ioctl.USER_REGISTER, request)


class Ring:
    """A ring on a node: `count` frames in one buffer, each at an odd place, and their records."""

    def __init__(self, node: Node, count: int, *, size: int = SIZE, seed: int, start: bool = True):
        self.node, self.count, self.size, self.seed = node, count, size, seed
        self.memory = Buffer(-(-count * (size + 3) // PAGE) * PAGE, b"")
        self.records = Buffer(-(-count * RECORD // PAGE) * PAGE, b"")
        self.filled = 0
        self.handle, self.records_handle = node.pages(self.memory), node.pages(self.records)
        self.job = node.request(Ioctl.START_RING, self.request()).job if start else 0

    def frames(self) -> list[Frame]:
        """Where frames go."""
        places = [number * (self.size + 3) for number in range(self.count)]
        return [Frame(handle=self.handle, offset=at, length=self.size) for at in places]

    def request(self, frames: list[Frame] | None = None, **members: int) -> StartRing:
        """The request that starts it, with other members or frames."""
        frames = self.frames() if frames is None else frames
        request = StartRing(flags=RingFlag.FRESH, count=len(frames), user_data=7)
        request.records_handle = self.records_handle
        request.set_frames((Frame * len(frames))(*frames))
        for name, value in members.items():
            setattr(request, name, value)
        return request

    def wait(self, count: int) -> None:
        """Until so many frames are filled."""
        while self.filled < count:
            self.note(self.node.events(1)[0])

    def note(self, event: Event) -> None:
        assert (results([event]), event.job, event.user_data) == ([_GOES_ON], self.job, 7)
        assert event.bytes > self.filled
        self.filled = event.bytes

    def release(self, count: int) -> None:
        self.node.request(Ioctl.RELEASE_FRAMES, ReleaseFrames(job=self.job, count=count))

    def check(self, number: int) -> None:
        """That a frame is right, and its record."""
        at = number % self.count * (self.size + 3)
        data = self.memory[at : at + self.size]
        assert data == fill_bytes(self.seed + number, 0, self.size).tobytes(), number
        record = np.frombuffer(self.records[:], FRAME_RECORD)[number % self.count]
        assert record["number"] == number | FRAME_NUMBER_VALID
        assert (record["bytes"], record["crc"]) == (self.size, zlib.crc32(data))

    def run(self, frames: int) -> None:
        """Receives so many frames, gives each back, and checks them."""
        for number in range(frames):
            self.wait(number + 1)
            self.check(number)
            self.release(number + 1)

    def end(self, patience: float = 60) -> Event:
        """The event of its end, behind those of frames."""
        while True:
            (event,) = self.node.events(1, patience)
            if event.reason != Reason.FRAMES:
                assert event.job == self.job
                return event
            self.note(event)

    def stop(self) -> None:
        self.node.cancel(self.job)
        event = self.end()
        assert results([event]) == [CANCELLED]
        assert event.bytes >= self.filled
