# SPDX-License-Identifier: BSD-2-Clause
"""One run of a channel: its memory, how software drives it, and what must be true afterwards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from cocotb.triggers import Timer
from cocotbext.pcie.core.tlp import Tlp

from peerdma import regs
from peerdma.regs import Status
from sim.benches.channel import CONTROL_START, CONTROL_STOP, FINISHED, PUSHES, Channel
from sim.benches.memory import Buffer, Transfer

from .coverage import band
from .plan import Episode, Piece, Run
from .rig import ALL_EVENTS, ENDED, Rig
from .scoreboard import FramePair, Span, check_either
from .table import GROUPS

__all__ = ["RUN_US", "Job"]

POLL = regs.CHANNEL["control"].field("pollmode_wb_enable").mask
WRITEBACK_ERROR = 1 << 31
#: Errors of reads whose completions do not come, or do not fit.
_READ_ERRORS = (
    Status.DESC_UNSUPPORTED
    | Status.DESC_UNEXPECTED
    | Status.READ_UNSUPPORTED
    | Status.READ_UNEXPECTED
)
#: Bound of one run, in simulated microseconds, whatever it is.
RUN_US = 900
#: How long data may be on its way to a GPU when the host hears that it was sent.
TO_GPU_US = 3
_POINTS = {group.name: group.points for group in GROUPS}


@dataclass
class _Part:
    """One descriptor's memory."""

    piece: Piece
    buffer: Buffer
    before: bytes
    span: Span
    #: where its bytes are in the stream
    at: int = 0


class Job:
    """A run, from memory to verdict.

    `begin` starts it, `wait` comes back when software has heard of its end, and then one of
    `expect_good`, `expect_error` and `settle` says what became of it.
    """

    def __init__(self, rig: Rig, channel: Channel, run: Run, episode: Episode):
        self.rig, self.channel, self.run, self.episode = rig, channel, run, episode
        self.way = "c2h" if channel.c2h else "h2c"
        self._pair = rig.pairs[channel.number]
        self._parts: list[_Part] = []
        self._spans: list[Span] = []
        self._word: Buffer | None = None
        self.began = False
        #: when, in simulated nanoseconds; when it asked for something first; and when Run was to be
        #: cleared
        self.began_ns = 0
        self.asked_ns = self.closed_ns = 0
        #: how far it was when it was disturbed; empty if it was not
        self.moment = ""

    @property
    def listed(self) -> str:
        """Where its list is: "fetched", "pushed" or "both"."""
        if not self.run.pushed:
            return "fetched"
        return "pushed" if len(self.run.blocks) == 1 else "both"

    @property
    def finished(self) -> bool:
        """Whether it is known to have come to its good end."""
        events = self.rig.events[self.channel]
        failed = events & (Status.errors() | Status.IDLE_STOPPED)
        return (bool(events & Status.DESCRIPTOR_STOPPED) and not failed) or (
            self.channel.c2h and all(part.span.left == 0 for part in self._parts)
        )

    @property
    def breaks(self) -> bool:
        """Whether it is known to have ended so that the core flushes its pair."""
        fault = self.run.fault
        unread = fault is not None and fault.place == "descriptor"
        return not self.finished and (bool(self.run.streamed) or unread)

    def note_moment(self) -> None:
        """It is disturbed now."""
        moving = any(part.span.touched for part in self._parts)
        fetching = any(span.touched for span in self._spans)
        self.moment = "moving" if moving else "fetching" if fetching else "before"

    # Before ---------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Lay the list out and let the card use it."""
        rig, c2h = self.rig, self.channel.c2h
        transfers = []
        for piece in self.run.pieces:
            buffer = rig.memory(piece.memory, piece.size, piece.offset)
            span = rig.scope.allow(
                buffer.name, buffer.address, piece.size, write=c2h, heard=self._asks
            )
            self._parts.append(_Part(piece, buffer, buffer.data, span))
            transfers.append(rig.transfer(piece, buffer, c2h))
        fault = self.run.fault
        if fault and fault.kind == "magic":
            good = transfers[fault.index]
            magic = regs.DESC_MAGIC ^ 1 << rig.rng.randrange(16)
            transfers[fault.index] = Transfer(
                good.source, good.destination, good.length, good.flags, magic
            )
        self.chain = rig.chain(transfers, blocks=self.run.blocks, high=self.run.high)
        size, places = regs.DESCRIPTOR.itemsize, self.chain.blocks
        self.descriptors = [start + size * n for start, count in places for n in range(count)]
        for start, count in places[self.run.pushed :]:
            self._spans.append(
                rig.scope.allow("list", start, size * count, write=False, heard=self._asks)
            )
        self._spans += [part.span for part in self._parts]
        if self.run.writeback != "off":
            kind = {"host": "high", "gpu": "gpu"}[self.run.writeback]
            self._word = rig.memory(kind, 4, 4 * rig.rng.randrange(1000))
            self._word.data = bytes(4)
            self._spans.append(
                rig.scope.allow(
                    "writeback", self._word.address, 4, write=True, heard=self._written_back
                )
            )

    def data_address(self, index: int) -> range:
        """Bus addresses of a descriptor's data."""
        buffer = self._parts[index].buffer
        return range(buffer.address, buffer.address + buffer.size)

    def _asks(self, tlp: Tlp) -> None:
        """It has begun by now. A launch queue may have had its channel until then."""
        self.asked_ns = self.asked_ns or self.rig.now_ns()

    def _written_back(self, tlp: Tlp) -> None:
        """Data before writeback: what it counts has been written by the card, unless it failed."""
        value = int.from_bytes(tlp.get_data(), "little")
        count = (value & ~WRITEBACK_ERROR) - bool(value & WRITEBACK_ERROR)
        assert count <= len(self._parts), f"{self.channel!r} writes {value:#x} back"
        if self.channel.c2h:
            for number, part in enumerate(self._parts[:count]):
                assert part.span.left <= 0, (
                    f"{self.channel!r} writes {value:#x} back, but descriptor {number} lacks"
                    f" {part.span.left} of {part.piece.size} bytes"
                )

    def _expect_written(self) -> None:
        """Data and writeback before the interrupt, of which there is one for the run."""
        for number, part in enumerate(self._parts):
            assert not self.channel.c2h or part.span.left == 0 or not self.rig.calm, (
                f"{self.channel!r} interrupts, but descriptor {number} lacks {part.span.left} bytes"
            )
        if self.run.writeback == "host" and self.rig.calm:
            self._check_word(self.chain.count)

    async def begin(self) -> None:
        """Start the run, and tell the models."""
        rig, channel, run = self.rig, self.channel, self.run
        self._polls = run.notice != "interrupt"
        if self._polls:
            await channel.write("interrupt_enable", 0)
            rig.polled.append(channel)
        else:
            await channel.write("status", 0xFFFF_FFFF)
            await channel.write("interrupt_enable", ALL_EVENTS)
        if self._word:
            await channel.write("writeback_lo", self._word.address & 0xFFFF_FFFF)
            await channel.write("writeback_hi", self._word.address >> 32)
        if run.credits:
            await rig.write(regs.SGDMA_COMMON, "credit_enable_w1s", channel.halt_bit)
            # Some before the run, the rest while it is under way; none for what is pushed.
            left = await self._give_credits(self.chain.count - run.pushes)
        rig.events[channel] = Status(0)
        self._enter_pair()
        rig.alarms.pop(channel, None)
        if not any(piece.completed for piece in self.run.pieces[:-1]):
            rig.alarms[channel] = self._expect_written
        self.began = True
        self.began_ns = rig.now_ns()
        if run.pushed:
            await self._push()
        else:
            await channel.point_at(self.chain)
        await channel.write("control", CONTROL_START | POLL * bool(self._word))
        rig.running.append(channel)
        while run.credits and left:
            await Timer(rig.rng.randrange(1, 2000), "ns")
            left = await self._give_credits(left)

    async def _push(self) -> None:
        """Push the first block, perhaps so that the board must not believe it."""
        rng, channel, head = self.rig.rng, self.channel, self.chain.head
        if not self.run.fault or self.run.fault.kind != "spoilt push":
            await channel.push(head, rng.choice(PUSHES))
            return
        # A dword is left out, or all from one inside a descriptor on.
        at = rng.randrange(0, len(head), 4)
        await channel.push(head[:at])
        if at % regs.DESCRIPTOR.itemsize == 0 or rng.random() < 0.5:
            await channel.push(head[at + 4 :], at=at + 4)

    def _enter_pair(self) -> None:
        for part in self._parts:
            if part.piece.card is None and self.channel.c2h:
                part.at = self._pair.take(part.piece.size)
            elif part.piece.card is None:
                self._pair.send(part.before)

    async def _give_credits(self, left: int) -> int:
        """Allow some of the `left` descriptors to be fetched; returns how many are left then."""
        some = min(left, self.rig.rng.choice((1, 2, 5, 30)))
        during = self.rig.during
        await self.channel.write("descriptor_credits", some, regs.SGDMA)
        self._sample_access("add", during, "write")
        return left - some

    # The end, as software hears of it -------------------------------------------------------

    async def wait(self) -> None:
        """Wait for the end, as the plan says. What was said before it is checked there and then."""
        channel, rig = self.channel, self.rig
        if self.run.notice == "interrupt":
            what = f"{channel!r} to interrupt"
            await rig.until(lambda: bool(rig.events[channel] & ENDED), RUN_US, what)
        elif self.run.notice == "writeback":
            await self._poll_word()
        else:
            rig.events[channel] |= await channel.idle(RUN_US)

    async def _poll_word(self) -> None:
        for _ in range(RUN_US * 10):
            value = int.from_bytes(self._word.data, "little")
            if value & WRITEBACK_ERROR or value == self.chain.count:
                return
            await Timer(100, "ns")
        raise AssertionError(f"{self.channel!r} wrote nothing back in {RUN_US} us")

    async def close(self) -> int:
        """Leave the channel as a driver does: idle, stopped, status read. Returns how many
        descriptors are done: one that failed is counted, too.

        From now on the card may not touch anything of this run.
        """
        channel, rig = self.channel, self.rig
        rig.events[channel] |= await channel.idle(RUN_US)
        count = await channel.read("completed_count")
        rig.scope.revoke(self._spans)
        rig.running.remove(channel)
        rig.alarms.pop(channel, None)
        during = rig.during
        rig.events[channel] |= Status(await channel.read("status_rc")) & ~Status.BUSY
        self._sample_access("rc", during, "read")
        if self._polls:
            rig.polled.remove(channel)
        self.closed_ns = rig.now_ns()
        await channel.write("control", CONTROL_STOP)
        if self.run.credits:
            await rig.write(regs.SGDMA_COMMON, "credit_enable_w1c", channel.halt_bit)
        return count - bool(rig.events[channel] & Status.errors())

    def abandon(self) -> None:
        """A reset has ended the run, and all that software had set up for the channel."""
        self.rig.scope.revoke(self._spans)
        self.rig.alarms.pop(self.channel, None)
        if self.began:
            self.rig.running.remove(self.channel)
            if self._polls:
                self.rig.polled.remove(self.channel)

    # What must be true ----------------------------------------------------------------------

    async def expect_good(self, after: str) -> None:
        """The run ended as it should: every byte, count, status, writeback, and their order.

        `after` is what went wrong before in this machine, if this is the first run since.
        """
        channel, rig = self.channel, self.rig
        if self.run.notice == "status":
            assert rig.events[channel] & ~Status.BUSY == FINISHED, self._story()
        if "gpu" in (self.run.writeback, *(part.piece.memory for part in self._parts)):
            # The host's path and the GPU's are two.
            await Timer(TO_GPU_US, "us")
        self._check_all()
        count = await self.close()
        assert rig.events[channel] & ~Status.BUSY == FINISHED, self._story()
        assert count == self.chain.count, f"{channel!r} counts {count} of {self.chain.count}"
        self._check_word(count)
        self._sample_good(after)

    def _story(self) -> str:
        return f"{self.channel!r} ended with {self.rig.events[self.channel]!r}: {self.run}"

    def _check_all(self) -> None:
        for number in range(len(self._parts)):
            self._check_done(number)
        if self._word and self.run.writeback == "host":
            self._check_word(self.chain.count)

    def _check_word(self, count: int) -> None:
        if self._word:
            found = int.from_bytes(self._word.data, "little")
            assert found == count, f"{self.channel!r} wrote {found:#x} back, not {count:#x}"

    def _check_done(self, number: int) -> None:
        """This descriptor was done: its data is where it has to be."""
        part = self._parts[number]
        size, card = part.piece.size, part.piece.card
        if not self.channel.c2h:
            part.buffer.expect(part.before)
            if card is not None:
                self.rig.ram.write(card, part.before)
            return
        left = part.span.left
        assert left == 0, f"{self.channel!r}: descriptor {number} lacks {left} of {size} bytes"
        if card is not None:
            self.rig.ram.expect(card, part.buffer.data)
        else:
            sent = self._pair.bytes_at(part.at, size, part.buffer.data)
            part.buffer.expect(sent.ljust(size, b"\0"))

    def _check_perhaps(self, number: int) -> None:
        """This descriptor was not done, but part of it may have been."""
        part = self._parts[number]
        size, card = part.piece.size, part.piece.card
        inside = card is not None and card + size <= regs.CARD_RAM_SIZE
        if not self.channel.c2h:
            part.buffer.expect(part.before)
            if inside:
                self.rig.ram.maybe(card, part.before)
            return
        assert part.span.left >= 0, f"{self.channel!r}: descriptor {number} was written twice"
        options = []
        if inside:
            options = self.rig.ram.options(card, size)
        elif card is None:
            options = [_padded(self._pair.bytes_at(part.at, size, part.buffer.data), size)]
        check_either(
            f"{self.channel!r} descriptor {number}", part.buffer.data, part.before, options
        )

    def _check_untouched(self, number: int) -> None:
        """Nothing was done for this descriptor."""
        part = self._parts[number]
        part.buffer.expect(part.before)
        assert not self.channel.c2h or part.span.left == part.piece.size

    async def settle(self, count: int) -> None:
        """The run was ended by something: `count` descriptors are done, of others perhaps a part.

        Nothing of it is under way.
        """
        await Timer(TO_GPU_US, "us")
        for number in range(len(self._parts)):
            (self._check_done if number < count else self._check_perhaps)(number)

    async def expect_error(self, status: Status, most: int, *, exact: bool) -> int:
        """The run ended with these status bits, and `most` descriptors done or, unless `exact`,
        fewer; nothing was done for those behind a descriptor that could not be used."""
        channel, rig = self.channel, self.rig
        count = await self.close()
        found = rig.events[channel] & ~Status.BUSY & ~Status.DESCRIPTOR_COMPLETED
        status |= Status.DESCRIPTOR_STOPPED
        assert found == status, f"{channel!r}: status {found!r}, expected {status!r}: {self.run}"
        assert count == most or (not exact and count < most), (
            f"{channel!r} counts {count}, expected {most}: {self.run}"
        )
        await Timer(TO_GPU_US, "us")
        fault = self.run.fault
        # Behind a bad descriptor, or on C2H behind a bad address, nothing was begun.
        barrier = fault.index if fault.place == "descriptor" or channel.c2h else len(self._parts)
        if fault.kind == "decode":
            barrier = fault.index
        for number in range(len(self._parts)):
            if number < count:
                self._check_done(number)
            elif number < barrier:
                self._check_perhaps(number)
            else:
                self._check_untouched(number)
        self._check_failed_word(count)
        return count

    def _check_failed_word(self, count: int) -> None:
        """What was written back is an error, with what was done and the one that failed."""
        if self._word:
            written = int.from_bytes(self._word.data, "little")
            assert written == WRITEBACK_ERROR | count + 1, (
                f"{self.channel!r} wrote {written:#x} back, no error with {count + 1}: {self.run}"
            )

    async def expect_lost(self) -> None:
        """The block has lost completions of its reads, of which any may be the one it ended by."""
        count = await self.close()
        found = self.rig.events[self.channel] & Status.errors()
        assert found and not found & ~_READ_ERRORS, self._story()
        await self.settle(count)
        self._check_failed_word(count)

    # Coverage -------------------------------------------------------------------------------

    def _sample_good(self, after: str) -> None:
        seen, run, rig, way = self.rig.seen, self.run, self.rig, self.way
        layout = "one" if len(run.pieces) == 1 else "block" if len(run.blocks) == 1 else "blocks"
        if layout == "blocks" and set(run.blocks) == {1}:
            layout = "singles"
        seen.sample(
            "run",
            way=way,
            channels=rig.channels_each_way,
            number=self.channel.number,
            layout=layout,
            count=band(len(run.pieces), _POINTS["run"]["count"]),
            contents=run.contents,
            notice=run.notice,
            interrupts=rig.kind,
            writeback=run.writeback,
            credits="on" if run.credits else "off",
            descriptors="high" if run.high else "low",
            pushed=run.pushes,
        )
        if isinstance(self._pair, FramePair) and run.streamed:
            size = band(self._pair.nbytes, _POINTS["frames"]["size"])
            seen.sample("frames", size=size, records="on" if self._pair.records else "off")
        around = self.episode.surroundings
        seen.sample(
            "limits",
            way=way,
            mps=around.mps,
            mrrs=around.mrrs,
            rcb=around.rcb,
            **{"extended tags": "on" if around.extended_tags else "off"},
            **({"lanes": rig.machine.lanes} if rig.machine.ours else {}),
        )
        of_machine = {"width": rig.machine.width, "block": rig.machine.block}
        for part in self._parts:
            self._sample_descriptor(part, of_machine)
            if after:
                target = "stream" if part.piece.card is None else "ram"
                seen.sample("recovery", after=after, way=way, contents=target)
                seen.sample("width", **of_machine, after=after)
        if run.notice == "interrupt":
            seen.sample("interrupt", kind=rig.kind, source=way, path="at once")

    def _sample_access(self, access: str, during: str, operation: str) -> None:
        values = {"access": access, "bar": "dma", "from": "host", "during": during}
        self.rig.seen.sample("register", **values, bytes=4, operation=operation)

    def _sample_descriptor(self, part: _Part, of_machine: dict[str, int | str]) -> None:
        piece, address = part.piece, part.buffer.address
        end = address % 4096 + piece.size
        values = {
            "way": self.way,
            "memory": piece.memory,
            "target": "stream" if piece.card is None else "ram",
            "size": band(piece.size, _POINTS["descriptor"]["size"]),
            "pci": address % 8,
            "page": "inside" if end < 4096 else "to its end" if end == 4096 else "across",
        }
        of_machine = of_machine | {name: values[name] for name in ("way", "target")}
        if piece.card is not None:
            values["card"] = piece.card % 8
            of_machine["card"] = piece.card % 32
        self.rig.seen.sample("descriptor", **values)
        self.rig.seen.sample("width", **of_machine)


def _padded(data: bytes, size: int) -> np.ndarray:
    array = np.full(size, -1, np.int16)
    array[: len(data)] = np.frombuffer(data, np.uint8)
    return array
