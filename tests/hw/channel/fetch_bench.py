# SPDX-License-Identifier: BSD-2-Clause
"""The world around the descriptor fetch: a read engine and channels made of Python.

The read engine serves the reads of each channel out of a host memory that holds its list and
nothing else, so that any read beside it fails. It brings the words of a read in their order, and
those of different reads in any.
"""

from amaranth import Cat

from hw.channel.fetch import DescriptorFetch
from hw.channel.lists import READS
from hw.records import FETCH_DESCRIPTORS, JOB_BYTES, DescriptorPart, Outcome
from peerdma import regs
from tests.hw.channel.fetch_lists import PAGE, SIZE, STOP, Error, Item, Pushed, reference
from tests.hw.helpers import placement, simulate, write_of


class Read:
    """A read under way."""

    def __init__(self, job, due, outcome, good, words):
        self.job, self.due, self.outcome = job, due, outcome
        #: whole descriptors that will arrive
        self.good = good
        self.words, self.placed, self.marked = words, 0, False


class Side:
    """A channel: what it was told, and its reads under way, for the fetch beside others."""

    def __init__(self, bench, number):
        self.bench, self.number = bench, number
        self.control, self.c2h = bench.dut.control[number], number >= bench.h2c
        self.halt = 0
        #: the read engine takes no job of it
        self.stalled = False
        #: descriptors that may be read, or None if there is no limit
        self.credits, self.allowed = None, FETCH_DESCRIPTORS
        self.under_way = []
        self.memory, self.failures = {}, {}
        self._forget()

    #: what `_forget` begins anew, and what a list reads
    _OF_A_LIST = (
        *("reads", "read_times", "arrived_times", "items", "item_times", "parts", "failed"),
        *("memory", "failures"),
    )

    def _forget(self):
        self.reads, self.read_times, self.arrived_times = [], [], []
        self.items, self.item_times, self.parts = [], [], {}
        #: of each read that failed: how, and how many descriptors had arrived
        self.failed = {}
        self.busy, self.starved = 0, 0
        #: it takes a descriptor in this cycle, and took one in the cycle before
        self.wanted = self.asked = False

    @property
    def active(self):
        return self.ctx.get(self.control.active)

    async def step(self, flush=0):
        self.bench.set(self.control.flush, flush)
        self.bench.set(self.control.halt, self.halt)
        await self.ctx.tick()

    async def push(self, todo, owned=False):
        """Pushes the first block of a list, by words or halves of words; a list that begins so."""
        bench, rng = self.bench, self.bench.rng
        port = (bench.dut.owned_push if owned else bench.dut.push)[self.number]
        memory = dict(todo.memory)
        for n in range(todo.adjacent + 1):
            found, place = memory.pop(todo.address + n * SIZE), n * SIZE
            while found:
                size = 8 if place % 8 == 0 and rng.random() < 0.8 else 4
                placed = {"client": 5, "memory": 0, **write_of(rng, place, found[:size])}
                while not owned and bench.pushing:
                    await self.step()
                bench.pushing = bench.pushing or not owned
                bench.set(port.valid, 1)
                bench.ctx.set(port.payload, placed)
                await self.ctx.tick().until(port.ready)
                bench.set(port.valid, 0)
                bench.pushing = bench.pushing and owned
                place, found = place + size, found[size:]
        return Pushed(todo, memory, {"any": 1, "whole": 1, "count": todo.adjacent + 1}, owned)

    async def start(self, todo, failures=None):
        """Starts a list, or what was pushed; forgets what is written down about the one before."""
        self._begin(todo, failures)
        await self.step()
        self.bench.set(self.control.start, 0)

    def _begin(self, todo, failures=None):
        bench, control = self.bench, self.control
        assert not self.active
        assert not self.under_way
        self._forget()
        pushed = todo if isinstance(todo, Pushed) else None
        self.todo, self.first = (pushed.todo, 1) if pushed else (todo, None)
        self.memory, self.failures = (pushed or todo).memory, failures or {}
        nothing = {"any": 0, "whole": bench.rng.randrange(2), "count": 0}
        bench.set(control.start, 1)
        bench.ctx.set(control.pushed, pushed.state if pushed else nothing)
        bench.ctx.set(control.address, self.todo.address | bench.rng.randrange(SIZE))
        bench.ctx.set(control.adjacent, self.todo.adjacent)
        bench.set(control.owned, bool(pushed and pushed.owned))

    async def start_with_first_word(self, todo):
        """Starts a list whose one descriptor an owner pushes meanwhile."""
        bench, port = self.bench, self.bench.dut.owned_push[self.number]
        memory = dict(todo.memory)
        words = memory.pop(todo.address)
        self._begin(Pushed(todo, memory, {"any": 1, "whole": 1, "count": 1}, True))
        for place in range(0, SIZE, 8):
            word = {"client": 5, "memory": 0, **write_of(bench.rng, place, words[place:][:8])}
            bench.ctx.set(port.payload, word)
            bench.set(port.valid, 1)
            taken = False
            while not taken:
                _, _, taken = await self.ctx.tick().sample(port.ready)
                bench.set(self.control.start, 0)
        bench.set(port.valid, 0)

    @property
    def ended(self):
        """Whether the last descriptor of the list, or the error that ends it, was handed on."""
        return bool(self.items) and (isinstance(self.items[-1], Error) or self.items[-1].stop)

    async def put_aside(self):
        """Has the fetch put the host's list aside, or end it; what `resume` needs is returned."""
        self.bench.set(self.control.hold, 1)
        while self.active:
            await self.step()
        self.bench.set(self.control.hold, 0)
        # The bench hears of a cycle in the next one.
        await self.step()
        return {name: getattr(self, name) for name in ("todo", "first", *self._OF_A_LIST)}

    async def resume(self, kept):
        """Has the host's list go on that was put aside; nothing else says where it is."""
        bench, control = self.bench, self.control
        vars(self).update(kept)
        for name in ("address", "adjacent"):
            bench.ctx.set(getattr(control, name), bench.rng.randrange(64))
        bench.ctx.set(control.pushed, bench.rng.choice(({"any": 1}, {"whole": 1, "count": 3})))
        bench.set(control.owned, 0)
        bench.set(control.resume, 1)
        await self.step()
        bench.set(control.resume, 0)

    async def end(self, cycles=20_000):
        """Waits for the end of the list and compares it with the reference.

        An error in a pushed block is at its offset, with bit 0 set.
        """
        for _ in range(cycles):
            if not self.active:
                break
            await self.step()
        assert not self.active, f"a list did not end within {cycles} cycles"
        # The bench hears of a cycle in the next one.
        for _ in range(5):
            await self.step()
        assert not self.under_way
        reads, items = reference(self.todo, self.bench.limit, self.failed, first=self.first)
        assert self.items == items
        assert self.reads == reads[: len(self.reads)]

    async def finish(self, todo, failures=None):
        """Runs a list to its end."""
        await self.start(todo, failures)
        await self.end()

    async def finish_pushed(self, todo, failures=None, owned=False):
        """The same, with the first block pushed; `failures` are of the reads behind it."""
        await self.finish(await self.push(todo, owned), failures)

    # What the bench tells it ------------------------------------------------------------------

    def wants(self):
        """Whether the channel takes a descriptor in this cycle."""
        if self.busy:
            self.busy -= 1
        self.asked, wanted = self.wanted, not self.busy and not self.parts
        self.wanted = wanted
        return wanted

    def told(self, part):
        """A part of a descriptor came, or None."""
        bench = self.bench
        if part is None:
            self.starved += not self.busy and not self.parts
            return
        at = DescriptorPart(part.part)
        order = [DescriptorPart.CONTROL, DescriptorPart.CARD, DescriptorPart.PCI]
        assert self.parts or self.asked, "the channel takes nothing"
        assert list(self.parts) == order[: len(self.parts)]
        if at == DescriptorPart.ERROR:
            assert len(self.parts) < 2
            self.items.append(Error(part.data, part.outcome))
        else:
            assert at == order[len(self.parts)]
            self.parts[at] = part.data
        if at == DescriptorPart.PCI:
            control, card, pci = self.parts.values()
            source, destination = (card, pci) if self.c2h else (pci, card)
            length = control >> 32 & regs.DESC_MAX_LENGTH
            flags = control & STOP, control >> 1 & 1
            self.items.append(Item(source, destination, length, *flags))
        if at in (DescriptorPart.PCI, DescriptorPart.ERROR):
            self.item_times.append(bench.cycle)
            self.parts, self.busy = {}, bench.consume()

    def allow(self):
        """How many descriptors the next read may ask for; what is spent shows a cycle later."""
        allowed, self.allowed = self.allowed, FETCH_DESCRIPTORS
        if self.credits is not None:
            self.allowed = min(self.credits, FETCH_DESCRIPTORS)
        return allowed

    def take(self, job):
        """Checks a read, looks up what it will bring."""
        bench, index = self.bench, len(self.reads)
        self.reads.append((job.address, job.length))
        self.read_times.append(bench.cycle)
        assert 0 < job.length <= min(128 << bench.limit, JOB_BYTES)
        assert job.address // PAGE == (job.address + job.length - 1) // PAGE
        assert len(self.under_way) < READS
        if self.credits is not None:
            self.credits -= job.length // SIZE
            assert self.credits >= 0
        found, words = b"", []
        for n in range(job.length // SIZE):
            address = job.address + n * SIZE
            assert address in self.memory, f"read beside the list, at {address:#x}"
            found += self.memory[address][:SIZE]
        place = job.place.as_bits()
        while found:
            # Behind a completion that ends within a word, beats have dwords of two words.
            size = bench.width // 8
            if bench.shuffle and bench.rng.random() < 0.1:
                size = bench.rng.randrange(4, size, 4)
            words.append((place, found[:size]))
            place, found = place + size, found[size:]
        outcome, good = self.failures.get(index, Outcome.OK), job.length // SIZE
        if outcome != Outcome.OK:
            words = words[: bench.rng.randrange(len(words))]
            good = sum(len(data) for _, data in words) // SIZE
            self.failed[index] = outcome, good
        due = bench.cycle + bench.latency()
        self.under_way.append(Read(job, due, outcome, good, words))


class Bench:
    """A read engine and channels around the fetch.

    `latency` gives the cycles from a job to its first word, `ready` whether a job is taken in a
    cycle, `consume` for how many cycles a channel takes nothing behind a descriptor. With
    `shuffle`, words of different reads come in any order, some in halves.
    """

    def __init__(
        self, rng, *, latency=lambda: 20, ready=lambda: 1, consume=lambda: 0, shuffle=True, limit=2
    ):
        self.rng, self.shuffle, self.limit = rng, shuffle, limit
        self.latency, self.ready, self.consume = latency, ready, consume
        self.cycle = 0
        self._inputs = {}
        self.ctx = None

    def run(self, *scenarios, h2c=1, c2h=1, slots=64, shared=False, cycles=50_000, width=64):
        """Runs async functions, each of the `Side` of a channel from number 0 on, to their ends."""
        self.h2c, self.width = h2c, width
        self.dut = dut = DescriptorFetch(h2c=h2c, c2h=c2h, width=width, slots=slots, shared=shared)
        self.sides = [Side(self, number) for number in range(h2c + c2h)]
        self.pushing = False

        def of(side, scenario):
            async def testbench(ctx):
                # Each waits for its own; whichever sets the inputs.
                side.ctx = self.ctx = ctx
                self.set(dut.limit, self.limit)
                await scenario(side)

            return testbench

        benches = [of(*each) for each in zip(self.sides, scenarios, strict=False)]
        simulate(dut, *benches, background=(self._environment,), cycles=cycles)

    def set(self, signal, value):
        """Drives an input signal; saves the simulator the work if it has that value already."""
        if self._inputs.get(id(signal)) != value:
            self._inputs[id(signal)] = value
            self.ctx.set(signal, value)

    async def _environment(self, ctx):
        dut, sides = self.dut, self.sides
        self.ctx = ctx
        held = [None] * len(sides)
        stopped = flushed = 0
        controls, jobs = dut.control, dut.jobs
        while True:
            ready = [not side.stalled and self.ready() for side in sides]
            for side, job, now in zip(sides, jobs, ready, strict=True):
                self.set(job.ready, now)
                if self._inputs.get(id(side.control.start)):
                    side.started = self.cycle
                self.set(side.control.wanted, side.wants())
                self.set(side.control.credit, side.allow())
            self._bring()
            (
                _,
                _,
                offers,
                spent,
                words,
                active,
                halted,
                dropped,
                job,
                part,
            ) = await ctx.tick().sample(
                Cat(each.valid for each in jobs),
                Cat(each.spent for each in controls),
                Cat(each.word.valid for each in controls),
                Cat(each.active for each in controls),
                Cat(each.halt for each in controls),
                Cat(each.flush for each in controls),
                jobs[0].payload,
                controls[0].word.payload,
            )
            assert offers & (offers - 1) == 0, "jobs of two channels at once"
            assert words & (words - 1) == 0
            assert not offers & (stopped | flushed)
            assert not offers & ~active
            assert not words & flushed
            assert not words & ~active
            stopped, flushed = halted, dropped
            for number, side in enumerate(sides):
                offer = job if offers >> number & 1 else None
                # What is not taken stays, unless the list has ended.
                if held[number] is not None and offer is not None:
                    assert offer.address == held[number]
                held[number] = None if offer is None or ready[number] else offer.address
                issued = offer is not None and ready[number]
                width = len(side.control.spent)
                assert spent >> width * number & (1 << width) - 1 == (
                    offer.length // SIZE if issued else 0
                )
                if issued:
                    side.take(offer)
                if dropped >> number & 1:
                    side.parts = {}
                else:
                    side.told(part if words >> number & 1 else None)
            self.cycle += 1

    def _bring(self):
        """At most one word, one mark and one retired read, each of any channel."""
        dut, rng = self.dut, self.rng
        bringing = [
            (side, read)
            for side in self.sides
            for read in side.under_way
            if read.due <= self.cycle and read.words
        ]
        self.set(dut.placement.valid, bool(bringing))
        if bringing:
            side, read = rng.choice(bringing) if self.shuffle else bringing[0]
            place, beat = read.words.pop(0)
            read.placed += len(beat)
            placed = {"client": side.number, "memory": 0, **write_of(rng, place, beat, self.width)}
            self.ctx.set(dut.placement.payload, placed)
            if not read.words:
                side.arrived_times.append(self.cycle)
        # The mark may be of the word that is placed in this cycle; a read retires later.
        marks = [side for side in self.sides if side.under_way]
        self.set(dut.mark.valid, bool(marks))
        retiring = [side for side in marks if side.under_way[0].marked]
        if marks:
            side = rng.choice(marks) if self.shuffle else marks[self.cycle % len(marks)]
            read = side.under_way[0]
            place = placement(read.job.place.as_bits() + read.placed)
            self.ctx.set(dut.mark.payload, {"client": side.number, "place": place})
            read.marked = read.due <= self.cycle and not read.words
        for side in self.sides:
            self.set(dut.retired[side.number].valid, 0)
        if retiring:
            side = rng.choice(retiring)
            read = side.under_way.pop(0)
            port = dut.retired[side.number]
            self.set(port.valid, 1)
            self.ctx.set(
                port.payload,
                {"length": read.job.length, "last": read.job.last, "outcome": read.outcome},
            )


def busy_bench(rng, **settings):
    """A bench whose latencies and stalls are random and change from bench to bench."""
    most, ready, consume = rng.choice((3, 30, 120)), rng.random(), rng.choice((1, 5, 30))
    return Bench(
        rng,
        latency=lambda: rng.randrange(1, most),
        ready=lambda: rng.random() < max(ready, 0.1),
        consume=lambda: rng.randrange(consume),
        **settings,
    )
