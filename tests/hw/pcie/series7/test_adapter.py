# SPDX-License-Identifier: BSD-2-Clause
"""What the adapter wires between the seam and the ports of the hard block."""

from __future__ import annotations

import pytest
from amaranth import Module
from amaranth.lib import wiring

from hw.pcie.series7.adapter import Series7Adapter
from hw.pcie.series7.block import SERIES7
from hw.registers.bus import READ_LATENCY
from hw.registers.completer import Completer
from tests.hw.helpers import fields, seeded, send, simulate, toggle, watch
from tests.hw.pcie.tlps import COMPLETION, MEMORY, Tlp, from_beats, seam_beats, to_beats


def test_link_state_and_constants():
    random = seeded()
    dut = Series7Adapter(125_000)
    same = {
        "link_up": "trnlnkup",
        "bus_master": "cfgcommandbusmasterenable",
        "intx_disable": "cfgcommandinterruptdisable",
        "msi_enable": "cfginterruptmsienable",
        "msi_granted": "cfginterruptmmenable",
        "msix_enable": "cfginterruptmsixenable",
        "msix_mask": "cfginterruptmsixfm",
        "max_payload": "cfgdevcontrolmaxpayload",
        "max_read_request": "cfgdevcontrolmaxreadreq",
        "rcb": "cfglinkcontrolrcb",
        "extended_tag": "cfgdevcontrolexttagen",
        "relaxed_ordering": "cfgdevcontrolenablero",
        "speed": "cfglinkstatuscurrentspeed",
        "width": "cfglinkstatusnegotiatedwidth",
        "np_headers": "trnfcnph",
    }
    constants = {
        "trntsrcdsc": 0,
        "trnterrfwd": 0,
        "trntecrcgen": 0,
        "trntstr": 0,
        "trntcfggnt": 1,
        "trnrdstrdy": 1,
        "trnrnpreq": 0,
        "trnrfcpret": 1,
        "trnfcsel": 4,
        "cfginterruptstatn": 1,
    }

    async def bench(ctx):
        for _ in range(50):
            wanted = {}
            for name, port in same.items():
                wanted[name] = random.randrange(1 << len(getattr(dut.trn, port)))
                ctx.set(getattr(dut.trn, port), wanted[name])
            await ctx.delay(1e-9)
            link = fields(ctx.get(dut.seam.link))
            assert {name: link[name] for name in same} == wanted
            await ctx.tick()
        for name, value in constants.items():
            assert ctx.get(getattr(dut.trn, name)) == value, name

    simulate(dut, bench)


@pytest.mark.parametrize(("speed", "width"), [(1, 1), (2, 1), (2, 4), (2, 8)])
def test_speed_and_width_are_in_the_codes_of_link_status(speed, width):
    dut = Series7Adapter(125_000)
    link = dut.seam.link
    assert (len(link.speed), len(link.width)) == (4, 6)

    async def bench(ctx):
        ctx.set(dut.trn.cfglinkstatuscurrentspeed, speed)
        ctx.set(dut.trn.cfglinkstatusnegotiatedwidth, width)
        await ctx.delay(1e-9)
        assert (ctx.get(link.speed), ctx.get(link.width)) == (speed, width)

    simulate(dut, bench)


def test_requester_id_is_captured_while_no_message_is_shown():
    dut = Series7Adapter(125_000)

    async def bench(ctx):
        ctx.set(dut.trn.cfgmsgdata, 0x0510)
        await ctx.tick()
        ctx.set(dut.trn.cfgmsgreceived, 1)
        ctx.set(dut.trn.cfgmsgdata, 0xBEEF)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.seam.link.requester_id) == 0x0510
        ctx.set(dut.trn.cfgmsgreceived, 0)
        ctx.set(dut.trn.cfgmsgdata, 0x0618)
        await ctx.tick()
        assert ctx.get(dut.seam.link.requester_id) == 0x0618

    simulate(dut, bench)


def test_interrupts_go_one_at_a_time_and_are_held_until_taken():
    random = seeded()
    dut = Series7Adapter(125_000)
    requests = [
        {
            "msi": random.randrange(2),
            "asserted": random.randrange(2),
            "vector": random.randrange(32),
        }
        for _ in range(30)
    ]
    seen = []

    async def core(ctx):
        ctx.set(dut.trn.cfginterruptrdyn, 1)
        await send(ctx, dut.seam.interrupt, requests, pause=lambda: random.choice((0, 0, 9)))

    async def block(ctx):
        while len(seen) < len(requests):
            await ctx.tick().until(~dut.trn.cfginterruptn)
            held = ctx.get(dut.trn.cfginterruptassertn), ctx.get(dut.trn.cfginterruptdi)
            for _ in range(random.randrange(4)):
                _, _, *now = await ctx.tick().sample(
                    dut.trn.cfginterruptassertn, dut.trn.cfginterruptdi, dut.trn.cfginterruptn
                )
                assert tuple(now) == (*held, 0)
            ctx.set(dut.trn.cfginterruptrdyn, 0)
            await ctx.tick()
            ctx.set(dut.trn.cfginterruptrdyn, 1)
            assert ctx.get(dut.trn.cfginterruptn), "released once taken"
            seen.append(held)

    simulate(dut, core, block)
    assert seen == [
        (1, request["vector"]) if request["msi"] else (1 - request["asserted"], 0)
        for request in requests
    ]


def test_an_interrupt_request_is_at_the_port_in_the_same_cycle():
    """One that waits behind it has a cycle without a request in front of it."""
    dut = Series7Adapter(125_000)

    async def bench(ctx):
        port, request = dut.trn, dut.seam.interrupt
        ctx.set(port.cfginterruptrdyn, 1)
        await ctx.tick()
        assert ctx.get(port.cfginterruptn) == 1
        ctx.set(request.valid, 1)
        ctx.set(request.payload, {"msi": 1, "vector": 3})
        for _ in range(3):
            assert (ctx.get(port.cfginterruptn), ctx.get(request.ready)) == (0, 0)
            assert ctx.get(port.cfginterruptdi) == 3
            await ctx.tick()
        ctx.set(port.cfginterruptrdyn, 0)
        assert (ctx.get(port.cfginterruptn), ctx.get(request.ready)) == (0, 1)
        await ctx.tick()
        # The block may still show that it has taken the one before.
        ctx.set(request.payload, {"msi": 1, "vector": 4})
        assert (ctx.get(port.cfginterruptn), ctx.get(request.ready)) == (1, 0)
        await ctx.tick()
        assert (ctx.get(port.cfginterruptn), ctx.get(port.cfginterruptdi)) == (0, 4)

    simulate(dut, bench)


def test_errors_are_pulses_and_none_comes_out_of_reset():
    dut = Series7Adapter(125_000)
    pairs = [
        (dut.seam.timed_out, dut.trn.cfgerrcpltimeoutn),
        (dut.seam.unexpected, dut.trn.cfgerrcplunexpectn),
        (dut.seam.reads_pending, dut.trn.cfgtrnpendingn),
    ]

    async def bench(ctx):
        for event, port in pairs:
            assert ctx.get(port) == 1
            ctx.set(event, 1)
            await ctx.tick()
            assert ctx.get(port) == 0
            ctx.set(event, 0)
            await ctx.tick()
            assert ctx.get(port) == 1

    simulate(dut, bench)


@pytest.mark.parametrize("base", [0x8000_0000, 0x12_8000_0000], ids=["3dw", "4dw"])
def test_transmit_at_the_ports(base):
    """Four writes of 128 bytes and a read are 4 * 18 + 2 beats, from one cycle after the offer."""
    random = seeded()
    dut = Series7Adapter(125_000)
    sent = [
        Tlp(
            MEMORY,
            random.randbytes(128) if number < 4 else None,
            length=32,
            address=base + 128 * number,
            first_be=0xF,
            last_be=0xF,
            requester_id=0x0100,
            tag=number,
        )
        for number in range(5)
    ]
    names = ("address", "first_be", "last_be", "tag")
    beats, tokens = [], []

    async def core(ctx):
        ctx.set(dut.trn.cfgmsgdata, 0x0100)
        await ctx.tick()
        packets = []
        for token, tlp in enumerate(sent):
            header = {name: getattr(tlp, name) for name in names}
            header |= {"write": tlp.data is not None, "dwords": tlp.length, "token": token}
            packets += seam_beats(header, tlp.data)
        await send(ctx, dut.seam.requester, packets)
        await ctx.tick().repeat(5 + SERIES7.drop_lag)

    async def block(ctx):
        cycle = 0
        async for _, _, data, rem, sof, eof, moved in ctx.tick().sample(
            dut.trn.trntd,
            dut.trn.trntrem,
            dut.trn.trntsof,
            dut.trn.trnteof,
            dut.trn.trntsrcrdy & dut.trn.trntdstrdy,
        ):
            if moved:
                beats.append((cycle, {"data": data, "rem": rem, "sof": sof, "eof": eof}))
            cycle += 1

    simulate(
        dut,
        core,
        background=[block, toggle(dut.trn.trntdstrdy, lambda: 1), watch(dut.seam.sent, tokens)],
    )
    assert [Tlp.parse(dwords) for dwords in from_beats([beat for _, beat in beats])] == sent
    assert [cycle for cycle, _ in beats] == list(range(2, 2 + 4 * 18 + 2))
    assert [(cycle, token.token) for cycle, token in tokens] == [
        (2 + 18 * (token + 1) + SERIES7.drop_lag + 1, token) for token in range(4)
    ]


class Loop(wiring.Component):
    """The adapter with a completer behind it."""

    def __init__(self):
        self.adapter, self.completer = Series7Adapter(125_000), Completer(width=64)
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.adapter, m.submodules.completer = self.adapter, self.completer
        seam = self.adapter.seam
        wiring.connect(m, seam.target, self.completer.target)
        wiring.connect(m, self.completer.completion, seam.completion)
        m.d.comb += seam.target_np_ok.eq(self.completer.target_np_ok)
        return m


def test_a_register_read_at_the_ports():
    """From the read's last beat to the completion's first: 2 cycles in, 1 out, the completer's."""
    dut = Loop()
    adapter, bus = dut.adapter, dut.completer.bus
    read = Tlp(MEMORY, length=1, address=0xF700_1044, first_be=0xF, tag=9, requester_id=0x0018)
    answer = Tlp(
        COMPLETION,
        bytes.fromhex("44332211"),
        length=1,
        byte_count=4,
        lower_address=0x44,
        tag=9,
        requester_id=0x0018,
        completer_id=0x0100,
    )
    beats = []

    async def bench(ctx):
        ctx.set(adapter.trn.trntdstrdy, 1)
        ctx.set(adapter.trn.cfgmsgdata, 0x0100)
        ctx.set(bus.read.data, 0x1122_3344_5566_7788)
        await ctx.tick()
        for beat in to_beats(read.dwords()):
            ctx.set(adapter.trn.trnrd, beat["data"])
            ctx.set(adapter.trn.trnrsof, beat["sof"])
            ctx.set(adapter.trn.trnreof, beat["eof"])
            ctx.set(adapter.trn.trnrbarhit, 1)
            ctx.set(adapter.trn.trnrsrcrdy, 1)
            await ctx.tick()
        ctx.set(adapter.trn.trnrsrcrdy, 0)
        cycles = 0
        while not beats or not beats[-1]["eof"]:
            _, _, valid, *values = await ctx.tick().sample(
                adapter.trn.trntsrcrdy,
                adapter.trn.trntd,
                adapter.trn.trntrem,
                adapter.trn.trntsof,
                adapter.trn.trnteof,
            )
            cycles += 1
            if valid:
                beats.append(dict(zip(("data", "rem", "sof", "eof"), values, strict=True)))
        assert cycles == 2 + READ_LATENCY + 4 + 1 + 1

    simulate(dut, bench)
    assert [Tlp.parse(dwords) for dwords in from_beats(beats)] == [answer]


def test_non_posted_requests_are_held_back_at_the_port():
    dut = Series7Adapter(125_000)

    async def bench(ctx):
        for value in (0, 1, 0):
            ctx.set(dut.seam.target_np_ok, value)
            await ctx.delay(1e-9)
            assert ctx.get(dut.trn.trnrnpok) == value
            await ctx.tick()

    simulate(dut, bench)
