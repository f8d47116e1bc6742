# SPDX-License-Identifier: BSD-2-Clause
"""A channel between a descriptor source and a data path made of Python."""

from amaranth.hdl import Const
from amaranth.sim import Simulator

from hw.channel.control import ChannelControl
from hw.records import DescriptorPart, Outcome
from peerdma import regs
from peerdma.regs import Status
from tests.hw.registers.bus import bus_read, bus_write

RUN = 1
LOG_ALL = 0x00FF_FE7E
GOOD = Status.DESCRIPTOR_STOPPED | Status.DESCRIPTOR_COMPLETED


class Bench:
    """Feeds `descriptors` when the channel starts and finishes each span after `delay` cycles.

    With `shared`, runs of another owner are fed `owned_descriptors`, and software's list goes on
    where it was, when the channel says so.
    """

    def __init__(self, c2h=False, shared=False):
        self.dut = ChannelControl(
            index=0, c2h=c2h, ram_size=65536, has_stream=shared, pushable=True, shared=shared
        )
        self._owned = self.dut.host.owned if shared else Const(0)
        self._hold, self._resume = (
            getattr(self.dut.fetch, name) if shared else Const(0) for name in ("hold", "resume")
        )
        self.base = regs.C2H_CHANNEL_BASE if c2h else 0
        self.descriptors = []
        self.owned_descriptors = []
        #: of each run, in order: it was the other owner's
        self.owners = []
        self.outcomes = {}
        self.delay = 5
        self.spans = []
        self.errors = []
        self.starts = 0
        #: of each list that has started or gone on, in order: it went on
        self.resumed = []
        #: software's descriptors that were handed on whole, in order
        self.handed = []
        #: `beats` says what has moved, all of a span when it finishes
        self.moves = False
        #: cycles that reads under way take when software's list is put aside
        self.reading = 0
        #: whether any were pushed, the last one is whole, and how many are, at each start
        self.pushed = []
        self.interrupt_rises = 0
        self.stuck = False

    def run(self, testbench, *background):
        simulator = Simulator(self.dut)
        simulator.add_clock(8e-9)
        simulator.add_testbench(testbench)
        for each in background:
            simulator.add_testbench(each, background=True)
        simulator.add_process(self._environment)
        simulator.run()

    async def _environment(self, ctx):
        """Descriptor source and data path, one step a clock cycle."""
        dut = self.dut
        queue, words, moving, cycle, before = [], [], [], 0, 0
        #: what is left of software's list that was put aside; the list is software's
        aside, hosts = [], False
        #: the descriptor that is handed on; cycles for which the list has been held
        telling, held = None, 0
        word = dut.fetch.word
        async for (
            _,
            _reset,
            owned,
            start,
            pushed,
            hold,
            resume,
            flush,
            wanted,
            given,
            valid,
            span,
            irq,
            failed,
            error,
        ) in ctx.tick().sample(
            self._owned,
            dut.fetch.start,
            dut.fetch.pushed,
            self._hold,
            self._resume,
            dut.fetch.flush,
            dut.fetch.wanted,
            dut.fetch.word.valid,
            dut.span.valid,
            dut.span.payload,
            dut.host.interrupt,
            dut.host.error.valid,
            dut.host.error.payload,
        ):
            cycle += 1
            self.interrupt_rises += irq and not before
            before = irq
            if failed:
                address = error.address if error.located else 0
                self.errors.append((error.outcome, address, error.descriptor))
            held = held + 1 if hold else 0
            if start or resume:
                self.starts += 1
                self.pushed.append((pushed.any, pushed.whole, pushed.count))
                self.owners.append(owned)
                self.resumed.append(resume)
                assert not (queue or words)
                hosts = not owned
                if resume:
                    queue, aside = aside, []
                else:
                    queue = list(self.owned_descriptors if owned else self.descriptors)
            elif hold:
                if held > self.reading and not words and queue:
                    aside, queue = queue, []
            elif wanted and queue and not given:
                telling = queue.pop(0)
                words = self._words(telling)
            if valid:
                self.spans.append((span.pci_address, span.card_address, span.length))
                outcome = self.outcomes.get(len(self.spans) - 1, 0)
                moving.append((cycle + self.delay, outcome, span.length))
            if flush:
                queue, words = [], []
            done = bool(moving) and moving[0][0] <= cycle and not self.stuck
            ctx.set(dut.finished.valid, done)
            beats = 0
            if done:
                _, outcome, length = moving.pop(0)
                beats = length // 8
                ctx.set(dut.finished.payload, outcome)
            if self.moves:
                ctx.set(dut.beats, beats)
            if flush and not self.stuck:
                moving = [entry for entry in moving if entry[0] <= cycle + self.delay]
            ctx.set(dut.drained, not moving and not done)
            ctx.set(dut.span.ready, 1)
            ctx.set(dut.fetch.begun, start)
            ctx.set(dut.fetch.active, bool(queue or words))
            ctx.set(word.valid, bool(words))
            if words:
                ctx.set(word.payload, words.pop(0))
                if not words and hosts and telling["outcome"] == Outcome.OK:
                    self.handed.append(telling["pci_address"])

    @staticmethod
    def _words(found):
        """The parts of a descriptor, or the error in its place."""
        if found["outcome"] != Outcome.OK:
            error = DescriptorPart.ERROR, found["card_address"], found["outcome"]
            return [dict(zip(("part", "data", "outcome"), error, strict=True))]
        control = found["length"] << 32 | regs.DESC_MAGIC << 16
        control |= found["stop"] * regs.DESC_STOP | found["completed"] * regs.DESC_COMPLETED
        parts = {
            DescriptorPart.CONTROL: control,
            DescriptorPart.CARD: found["card_address"],
            DescriptorPart.PCI: found["pci_address"],
        }
        # What goes with an error only is noise.
        return [{"part": at, "data": data, "outcome": Outcome.MAGIC} for at, data in parts.items()]

    async def write(self, ctx, name, value, block=regs.CHANNEL):
        offset = block.address(name, base=self.base + block.base)
        await bus_write(ctx, self.dut.host.bus, offset, value)

    async def push(self, ctx, dwords):
        """Writes as many dwords to the window for pushed descriptors, from its first one on."""
        for n in range(dwords):
            base = regs.C2H_PUSH_BASE if self.base else regs.H2C_PUSH_BASE
            await bus_write(ctx, self.dut.host.bus, base + 4 * n, n)

    async def read(self, ctx, name, block=regs.CHANNEL):
        offset = block.address(name, base=self.base + block.base)
        return await bus_read(ctx, self.dut.host.bus, offset)

    async def wait_interrupt(self, ctx, cycles=200):
        for _ in range(cycles):
            if ctx.get(self.dut.host.interrupt):
                return
            await ctx.tick()
        raise AssertionError(f"no interrupt within {cycles} cycles")


def descriptor(length=64, card=0, stop=0, completed=0, outcome=Outcome.OK, pci=0x1000):
    return {
        "pci_address": pci,
        "card_address": card,
        "length": length,
        "stop": stop,
        "completed": completed,
        "outcome": outcome,
    }


LAST = {"stop": 1, "completed": 1}
