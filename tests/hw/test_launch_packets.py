# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues at the core's seam whose tickets take packets of the user stream."""

from __future__ import annotations

import pytest

from hw.core import CoreConfig
from hw.seam import WIDTHS
from hw.stream.user_blocks import PassThrough
from peerdma import regs
from peerdma.regs import ErrorKind, LaunchStatus, Status
from tests.hw.helpers import seeded, send, simulate, watch
from tests.hw.launch_queue import (
    BASE,
    DESTINATION,
    HOSTS_RAM,
    JOBS_RAM,
    QUEUES,
    LaunchQueue,
    launching,
    prepare,
)
from tests.hw.packet_feed import RECORD, Fed, PacketSlot, feed
from tests.hw.seam_model import finish, start, transfer
from tests.hw.stream.beats import beats_of

GOOD = Status.DESCRIPTOR_STOPPED
#: Bytes of packets, and of the memory for each, in one or several parts.
PACKETS = [
    # short and odd ones, shorter than their memory
    (1, (64,)),
    (75, (300,)),
    (128, (4096,)),
    # of exactly its length, whole or up to the end of a part
    (64, (64,)),
    (130, (130,)),
    (64, (64, 64)),
    (192, (64, 128, 5, 6)),
    # in parts
    (100, (33, 33, 33, 33)),
    (1, (1, 7, 8)),
    # longer by one, and by much
    (65, (64,)),
    (2, (1,)),
    (900, (64, 70)),
    # and the next one is whole
    (300, (300,)),
]


@pytest.mark.parametrize("width", [WIDTHS[0], WIDTHS[-1]])
def test_each_ticket_takes_the_next_packet(width):
    """Whole, with its record; of one that is longer than its memory, the first bytes."""
    rng, model = seeded(), launching(width=width, user=Fed)
    queue = LaunchQueue(model, 0, QUEUES[0], entries=16)
    packets = [rng.randbytes(size) for size, _ in PACKETS]

    async def bench(ctx):
        await model.link_up(ctx)
        found = await model.read(ctx, regs.EXTENSION.address("capabilities"))
        assert found & regs.Capability.RECEIVE
        await turn_records_on(model)
        slots, at = [], 0x1000
        for number, (_, spans) in enumerate(PACKETS):
            slots.append(PacketSlot(model, 2 * number, at, *spans))
            at = slots[-1].behind
            # The next record may be in two requests.
            at += (112 - at) % 128 if number % 4 == 2 else 0
        assert at < QUEUES[0]
        queue.arm()
        tickets = queue.submit(*(slot.number for slot in slots))
        await queue.state(ctx)
        await ctx.tick().repeat(100)
        # The first ones one behind the other, each of the others when the one before was taken.
        await feed(ctx, rng, *packets[:8])
        for number, (ticket, slot, packet) in enumerate(zip(tickets, slots, packets, strict=True)):
            if number >= 8:
                await feed(ctx, rng, packet)
            long = len(packet) > slot.room
            expected = LaunchStatus.LONG if long else LaunchStatus.OK
            assert await queue.wait(ctx, ticket) == [expected], number
        await ctx.tick().repeat(60)
        for number, (slot, packet) in enumerate(zip(slots, packets, strict=True)):
            slot.check(packet, number)
        written = [at - BASE for at, *_ in model.writes]
        for number, slot in enumerate(slots):
            assert written.index(slot.at) < written.index(QUEUES[0] + 4096 + 8 * number)
        state = await queue.state(ctx)
        assert (state["failed"], state["end"], state["busy"]) == (0, 0, 0)

    simulate(model.core, bench, background=model.benches, cycles=10_000)


async def turn_records_on(model):
    """And have the pair begin anew."""
    for name in ("frame_records", "stream_flush"):
        model.write(regs.EXTENSION.address(name), 1)


def test_a_ticket_waits_without_its_channel_until_a_packet_is_there():
    """Software's runs go on, as do other queues' tickets; a packet that software has taken is not
    there any more. Without records nothing is."""
    rng, model = seeded(), launching(user=Fed)
    queue, other = (LaunchQueue(model, n, QUEUES[n]) for n in range(2))
    packets = [rng.randbytes(size) for size in (75, 200, 64)]
    beats, sent = [], []
    window, size = regs.STREAM_WINDOW, len(packets[0]) + RECORD

    async def bench(ctx):
        await model.link_up(ctx)
        slot = PacketSlot(model, 4, 0x1000, 256)
        prepare(model, 6, [(JOBS_RAM, BASE + DESTINATION, 64)], 0x1800, c2h=1, queue=1)
        queue.arm()
        other.arm()
        (ticket,) = queue.submit(4)
        await queue.state(ctx)
        await feed(ctx, rng, packets[1])
        for round_ in range(3):
            assert await other.wait(ctx, *other.submit(6), cycles=300) == [LaunchStatus.OK]
            card = [(HOSTS_RAM, BASE + DESTINATION, 64)]
            assert await transfer(ctx, model, c2h=True, descriptors=card) == GOOD
            assert queue.status(ticket) is None
            if round_ == 0:
                await turn_records_on(model)
            if round_ == 1:
                spans = [(window, BASE + DESTINATION, size)]
                channel = start(model, c2h=True, descriptors=spans, pushed=1)
                await ctx.tick().repeat(100)
                await feed(ctx, rng, packets[0])
                assert await finish(ctx, model, channel) == GOOD
                assert model.memory[DESTINATION : DESTINATION + 75] == packets[0]
        beats.clear()
        await feed(ctx, rng, packets[2])
        assert await queue.wait(ctx, ticket) == [LaunchStatus.OK]
        slot.check(packets[2], 1)
        # From its first beat to the first one of the write, of the record, and of the ticket's
        places = slot.places[0][0], slot.at, QUEUES[0] + 4096
        taken = {beat.header.address - BASE: cycle for cycle, beat in sent if beat.first}
        data, record, ticket = (taken[place] - beats[0][0] for place in places)
        assert 18 <= data <= 20 and record == data + 10 and ticket < 52
        # Not of H2C, not for a copy, not of a pair that is not there
        for control in ({"c2h": 0}, {"pair": 1}, {"channel": 1}):
            PacketSlot(model, 8, 0x1000, 64, queue=1, **control)
            other.resume()
            await other.state(ctx)
            assert await other.wait(ctx, *other.submit(8)) == [LaunchStatus.SLOT]

    async def watch_source(ctx):
        # There is none before the core is elaborated.
        await watch(Fed.source, beats)(ctx)

    logs = watch_source, watch(model.seam.requester, sent)
    simulate(model.core, bench, background=(*model.benches, *logs), cycles=10_000)


def test_what_ends_a_run_in_the_middle_of_a_packet_ends_the_packet():
    """The next ticket gets the next packet, whole; so does one behind a ticket that still waited
    as the queue was disarmed."""
    rng, model = seeded(), launching(user=Fed)
    queue = LaunchQueue(model, 0, QUEUES[0])

    async def again(ctx, ticket, status):
        while (await queue.state(ctx))["busy"]:
            pass
        assert queue.status(ticket) == status
        queue.first = queue.next
        queue.arm()

    async def bench(ctx):
        await model.link_up(ctx)
        slots = [PacketSlot(model, 2 * n, 0x1000 + 0x400 * n, 64, 64, 384) for n in range(2)]
        await turn_records_on(model)
        queue.arm()
        (waiting,) = queue.submit(0)
        await queue.state(ctx)
        await ctx.tick().repeat(200)
        queue.disarm()
        await again(ctx, waiting, None)
        # A list whose third descriptor is none; a queue that ends; all of the board
        for cause in ("magic", "disarm", "reset"):
            first, second = rng.randbytes(300), rng.randbytes(300)
            for slot in slots:
                slot.clear()
            place = slots[0].behind - 2 * regs.DESCRIPTOR.itemsize
            magic = 0 if cause == "magic" else regs.DESC_MAGIC
            model.memory[place + 2 : place + 4] = magic.to_bytes(2, "little")
            (ticket,) = queue.submit(0)
            await queue.state(ctx)
            await send(ctx, Fed.source, beats_of(first[:200], rng, [8]))
            await ctx.tick().repeat(200)
            if cause == "magic":
                assert queue.status(ticket) == ErrorKind.MAGIC
                assert await queue.wait(ctx, *queue.submit(2)) == [LaunchStatus.FLUSHED]
                queue.resume()
            elif cause == "disarm":
                assert (await queue.state(ctx))["running"]
                queue.disarm()
                await again(ctx, ticket, LaunchStatus.ABORTED)
            else:
                model.write(regs.EXTENSION.address("soft_reset"), 1)
                await ctx.tick().repeat(100)
                await again(ctx, ticket, None)
                await turn_records_on(model)
            place, size = slots[0].places[0]
            assert model.memory[place : place + size] == first[:size], "the run had not begun"
            (ticket,) = queue.submit(2)
            await queue.state(ctx)
            await ctx.tick().repeat(50)
            await feed(ctx, rng, second)
            assert await queue.wait(ctx, ticket) == [LaunchStatus.OK]
            slots[1].check(second, 0)

    simulate(model.core, bench, background=model.benches, cycles=10_000)


def test_an_h2c_run_that_is_withdrawn_while_it_waits_ends_no_packet():
    """It waits for its turn behind a job. Nothing of H2C comes out of a source."""
    rng, model = seeded(), launching(user=Fed)
    queue = LaunchQueue(model, 0, QUEUES[0])
    packet = rng.randbytes(75)

    async def bench(ctx):
        await model.link_up(ctx)
        await turn_records_on(model)
        slot = PacketSlot(model, 4, 0x1000, 256)
        prepare(model, 6, [(BASE + DESTINATION, JOBS_RAM, 1024)] * 16, 0x1800)
        queue.arm()
        await queue.state(ctx)
        await feed(ctx, rng, packet)
        tickets = queue.submit(6, 4)
        while not (await queue.state(ctx))["running"]:
            pass
        channel = start(model, c2h=False, descriptors=[(BASE + DESTINATION, HOSTS_RAM, 64)])
        await ctx.tick().repeat(50)
        waits = await model.read(ctx, regs.EXTENSION.address("waits_for"))
        assert regs.EXTENSION["waits_for"].field("h2c0").get(waits) == regs.WaitsFor.GRANT
        model.write(channel + regs.CHANNEL["control"].offset, 0)
        assert await queue.wait(ctx, *tickets) == [LaunchStatus.OK] * 2
        slot.check(packet, 0)

    simulate(model.core, bench, background=model.benches, cycles=10_000)


@pytest.mark.parametrize(
    "config",
    [{"launch_queues": 0}, {"user": PassThrough}, {"user": None}, {"frame_records": False}],
)
def test_other_cores_have_no_packets(config):
    """And nothing for them: all that they need asks for `packets`."""
    sound = {"launch_queues": 1, "user": Fed}
    assert CoreConfig(**sound).packets
    assert not CoreConfig(**(sound | config)).packets
