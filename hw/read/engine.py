# SPDX-License-Identifier: BSD-2-Clause
"""The read engine's top: requests go out, completions come in, data goes straight to its place.

    jobs ──▶ Issuer ──▶ request     completion ──▶ CompletionChecker ──────▶ Put ──────▶ placement
               │ ▲                                   │           │
               │ └── CompletionSpace ◀───────────────┤           └──▶ InOrderMarks ──▶ mark
               └────────▶ TagStates, progress ◀──────┘                     ▲
                          ▲          │                                     │
                 TimeoutScan    OrderQueues ───────────────────────────────┘
                                     └──▶ Retirement ──▶ retired, error

There is no reorder buffer: completions of different tags may come in any order, and a table knows
where the next byte of each tag goes.
"""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..memory.rotators import Put
from ..records import (
    OFFSET_BITS,
    InOrderMark,
    Outcome,
    ReadError,
    ReadJob,
    Retired,
    placement,
)
from ..seam import (
    FIVE_BIT_TAGS,
    WIDTHS,
    CompletionHeader,
    RequestHeader,
    beat,
    completions_abut,
)
from .checks import CompletionChecker
from .completion_space import MOST_COMPLETIONS, CompletionSpace
from .issuer import Issuer
from .marks import InOrderMarks
from .read_window import ReadWindow
from .records import Owner, Progress
from .retirement import Retirement
from .tags import OrderQueues, TagStates
from .timeouts import TimeoutScan

__all__ = ["ReadEngine"]


class ReadEngine(wiring.Component):
    """Reads memory for several clients and places the data in their memories.

    Latency: a job taken at cycle t is offered at `request` at t + 1, one job in two cycles at
    best. A completion beat is at `placement` two cycles after it came. A job that is alone is at
    `retired` three cycles after its last beat, one of several later by a round of the clients at
    most: always after its last beat was at `placement`, so that a memory that is written in that
    cycle can be read. At 256 bits each of these is one cycle more, but for the request.

    `completion` is taken at full rate. Beats of a packet may have gaps between them; the first
    beats of two packets must be at least two cycles apart, so one of one beat is followed by a
    cycle without. No job is taken in a cycle after a first beat came; where packets have a cycle
    before them (`hw.seam.completions_abut`), nor after a last one.

    A completion that does not fit its request (see `CompletionChecker`) ends the job with
    UNEXPECTED_COMPLETION. An error completion ends job and request; after a poisoned one the job
    has ended, too, but its tag is in use until the remaining data has come.

    A tag whose job ended while completions may still come is quarantined: not used until the
    rest of the completions, which are dropped, or `quarantine_timeouts` further timeouts passed.

    The PCIe block always has room for the completions of all requests: a job waits for it. When
    reads that have timed out take so much of it that others would wait for the end of their
    quarantine, jobs end at once with NO_COMPLETION_SPACE, without a request.

    Parameters
    ----------
    clients : int
        Number of clients, 1 to 16.
    fetches : int
        The first clients, which are before the others when room is short. Jobs of the others do not
        cross multiples of `JOB_BYTES`.
    capacity : int
        As for `hw.read.completion_space.CompletionSpace`.
    tags : int
        Reads in flight, a power of two from 2 to 256.
    timeout_cycles : int
        A read ends with COMPLETION_TIMEOUT this many to twice as many cycles after its request
        was offered, two more if the stream of completions is full; at least 4 for each tag. The
        default is 10 ms at 125 MHz. A simulation can choose fewer by an input.
    quarantine_timeouts : int
        How many timeouts, one after the other, a quarantined tag stays out of use at least. After
        an end other than by timeout up to two more pass.
    offset_bits : int
        How many bits of a place's offset count.
    width : int
        Bits of a beat.
    overcommit : bool
        As for `hw.read.completion_space.CompletionSpace`.

    Members
    -------
    jobs : In(stream of ReadJob), one for each client
        Taken round robin, those that are no fetches by bytes, while tags are free.
    retired : Out(stream of Retired, always ready), one for each client
        In the order of the client's jobs.
    idle : Out(clients)
        Bit n: client n has no job that was taken and has not retired.
    request : Out(stream of beats of RequestHeader)
        Reads. Once offered, a request stays until it is taken, whatever happens to its job.
    completion : In(stream of beats of CompletionHeader, always ready)
    placement : Out(stream of placement, always ready)
    mark : Out(stream of InOrderMark, always ready)
        Of each client, round robin, while it has jobs; a job's last mark comes no later than it
        retires.
    error : Out(stream of ReadError, always ready)
        Each failed job, in the cycle in which it retires.
    bus_master : In(1)
        Low: jobs are taken, as room allows, and end with BUS_MASTER_OFF without a request. A
        request that was offered before is up to whoever takes it; if it is dropped, the job ends by
        timeout.
    relaxed : In(1)
        Relaxed Ordering attribute of new requests, but for those of fetches.
    tolerant : In(1)
        As for `hw.read.checks.CompletionChecker`.
    timeout_cycles : In(range(timeout_cycles + 1))
        The parameter of this name unless it is driven, from the first cycle on.
    boundary_128, in_flight, overcommit
        As for `hw.read.completion_space.CompletionSpace`; its `unit` is how many times as wide a
        beat is as one of 64 bits.
    extended : In(1), with more than `FIVE_BIT_TAGS` tags
        As for `hw.read.tags.TagStates`.
    flush : In(1)
        Forgets all jobs: nothing is placed or retired from the next cycle on, and tags of
        requests without all their completions are quarantined. No job is taken meanwhile.
    reads_pending : Out(1)
        Completions may still come.
    timed_out : Out(1)
        High for a cycle for each job that ends by timeout.
    unexpected : Out(1)
        High for a cycle for each completion that belongs to no request or does not fit it.
    quarantined : Out(tags)
        Bit n: tag n is quarantined.
    short : Out(clients)
        Bit n: client n has a job that waits for room in the PCIe block.

    Raises
    ------
    ValueError
        If a parameter is out of its range.
    """

    def __init__(
        self,
        clients: int,
        fetches: int,
        capacity: int,
        tags: int = 32,
        timeout_cycles: int = 1_250_000,
        quarantine_timeouts: int = 4,
        offset_bits: int = OFFSET_BITS,
        *,
        width: int,
        overcommit: bool = False,
    ):
        if not 1 <= clients <= 16:
            raise ValueError(f"clients must be 1 to 16, not {clients}")
        if tags & (tags - 1) or not 2 <= tags <= 256:
            raise ValueError(f"tags must be a power of two, 2 to 256, not {tags}")
        if timeout_cycles < 4 * tags:
            raise ValueError(
                f"timeout_cycles must be at least 4 for each of the {tags} tags, "
                f"not {timeout_cycles}"
            )
        if quarantine_timeouts < 1:
            raise ValueError(f"quarantine_timeouts must be at least 1, not {quarantine_timeouts}")
        self._clients, self._fetches = clients, fetches
        self._abut = completions_abut(width)
        self._space = CompletionSpace(
            tags,
            capacity,
            fetches,
            abut=self._abut,
            overcommit=overcommit,
            unit=width // WIDTHS[0],
        )
        self._window = ReadWindow(self._space.most_under_way, MOST_COMPLETIONS - 1)
        self._overcommit = overcommit
        self._tags = tags
        self._timeout_cycles = timeout_cycles
        self._quarantine_timeouts = quarantine_timeouts
        self._offset_bits = offset_bits
        self._width = width
        always = {"always_ready": True}
        super().__init__(
            {
                "jobs": In(stream.Signature(ReadJob)).array(clients),
                "retired": Out(stream.Signature(Retired, **always)).array(clients),
                "idle": Out(clients),
                "request": Out(stream.Signature(beat(RequestHeader, width))),
                "completion": In(stream.Signature(beat(CompletionHeader, width), **always)),
                "placement": Out(stream.Signature(placement(width), **always)),
                "mark": Out(stream.Signature(InOrderMark, **always)),
                "error": Out(stream.Signature(ReadError, **always)),
                "bus_master": In(1),
                "relaxed": In(1),
                "tolerant": In(1),
                "timeout_cycles": In(range(timeout_cycles + 1), init=timeout_cycles),
                "boundary_128": In(1),
                "in_flight": In(4),
                "flush": In(1),
                "reads_pending": Out(1),
                "timed_out": Out(1),
                "unexpected": Out(1),
                "quarantined": Out(tags),
                "short": Out(clients),
            }
            | ({"extended": In(1)} if tags > FIVE_BIT_TAGS else {})
            | ({"overcommit": In(1)} if overcommit else {})
        )

    def elaborate(self, platform):
        m = Module()
        tags, clients = self._tags, self._clients
        abut = self._abut
        m.submodules.states = states = TagStates(tags, abut=abut)
        m.submodules.issuer = issuer = Issuer(
            clients, self._fetches, self._offset_bits, self._width
        )
        m.submodules.space = space = self._space
        m.submodules.window = window = self._window
        m.submodules.checker = checker = CompletionChecker(tags, self._offset_bits, self._width)
        m.submodules.rotator = rotator = Put(self._width, self._offset_bits)
        m.submodules.queues = queues = OrderQueues(clients, tags)
        m.submodules.scan = scan = TimeoutScan(
            tags, self._timeout_cycles, self._quarantine_timeouts
        )
        m.submodules.marks = marks = InOrderMarks(tags, abut=abut)
        m.submodules.retirement = retirement = Retirement(clients, tags)
        m.submodules.progress = progress = memory.Memory(shape=Progress, depth=tags, init=[])
        progress_write, progress_read = progress.write_port(), progress.read_port(domain="comb")

        taken, retire = issuer.taken, queues.retire
        for outer, inner in zip(self.jobs, issuer.jobs, strict=True):
            wiring.connect(m, wiring.flipped(outer), inner)
        wiring.connect(m, states.free, issuer.free)
        wiring.connect(m, issuer.request, wiring.flipped(self.request))
        wiring.connect(m, wiring.flipped(self.completion), checker.completion)
        wiring.connect(m, checker.beats, rotator.i)
        wiring.connect(m, rotator.o, wiring.flipped(self.placement))
        wiring.connect(m, queues.head, marks.head)
        wiring.connect(m, queues.head, retirement.head)
        for part in (queues, marks, retirement, space):
            m.d.comb += [part.taken.valid.eq(taken.valid), part.taken.p.eq(taken.p)]
        asks = issuer.outcome == Outcome.OK
        finishes = checker.begins & checker.completes
        m.d.comb += [
            space.boundary_128.eq(self.boundary_128),
            space.in_flight.eq(self.in_flight),
            space.job.eq(issuer.job),
            space.most.eq(window.most),
            window.waits.eq(issuer.short[self._fetches :].any()),
            window.returned.eq(space.returned),
            space.asks.eq(asks),
            space.tag.eq(states.lookup_tag),
            space.begins.eq((checker.advance | finishes) if abut else checker.advance),
            space.lower_address.eq(checker.lower_address),
            space.dwords.eq(checker.dwords),
            space.late.eq(scan.late),
            scan.timeout_cycles.eq(self.timeout_cycles),
            issuer.room.eq(space.room),
            issuer.data_room.eq(space.data_room),
            issuer.hopeless.eq(space.hopeless),
            issuer.bus_master.eq(self.bus_master),
            issuer.relaxed.eq(self.relaxed),
            states.wait.eq(asks),
            states.flush.eq(self.flush),
            states.released.p.eq(retire.p.tag),
            states.released.valid.eq(retire.valid),
            rotator.discard.eq(self.flush),
            queues.waiting.eq(states.waiting),
            # The client of a packet that ends is looked up next, as its job may have ended.
            queues.predicted.valid.eq(checker.ends),
            queues.predicted.p.eq(checker.beats.p.client),
            queues.flush.eq(self.flush),
            marks.flush.eq(self.flush),
            marks.place.eq(issuer.job.place),
            marks.reaches.eq(checker.reaches),
            marks.tag.eq(checker.tag),
            marks.client.eq(checker.beats.p.client),
            marks.begins.eq(checker.begins),
            marks.ends.eq(checker.ends),
            marks.reached.eq(checker.reached),
            retirement.job.eq(issuer.job),
            retirement.outcome.eq(issuer.outcome),
            retirement.retires.eq(queues.retires),
            self.reads_pending.eq((states.waiting | states.quarantined).any()),
            self.quarantined.eq(states.quarantined),
            self.short.eq(issuer.short),
        ]

        if self._overcommit:
            m.d.comb += space.overcommit.eq(self.overcommit)
        if tags > FIVE_BIT_TAGS:
            m.d.comb += states.extended.eq(self.extended)

        # What says that data is there waits for data that takes longer to its place.
        told = [(marks.mark, self.mark), (retirement.error, self.error)]
        told += zip(retirement.retired, self.retired, strict=True)
        for number, (source, sink) in enumerate(told):
            valid, payload = source.valid, source.payload
            for _ in range(rotator.latency - 1):
                before, valid = valid, Signal(name=f"told{number}")
                value, payload = payload, Signal.like(payload, name=f"telling{number}")
                m.d.sync += [valid.eq(before & ~self.flush), payload.eq(value)]
            m.d.comb += [sink.valid.eq(valid), sink.payload.eq(payload)]
        idle = queues.idle
        for _ in range(rotator.latency - 1):
            was_idle = Signal.like(idle)
            m.d.sync += was_idle.eq(idle | self.flush.replicate(clients))
            idle = idle & was_idle
        m.d.comb += self.idle.eq(idle)

        # A completion cannot be for a request that is not offered yet, even if its tag waits
        # already: its progress was looked up before that of the job was written.
        newest = Signal(Owner)
        new = Signal()
        m.d.sync += [newest.eq(taken.p), new.eq(taken.valid)]
        too_early = new & (newest.tag == checker.tag)

        # A job, the scan, and the first and last beat of a packet write to the same tables. Where
        # there is a cycle before each packet, jobs and the scan have that. Where packets may abut,
        # `states`, `space` and `marks` have another way for a last beat, so that jobs and the scan
        # have one cycle in two.
        incoming = self.completion.p
        if abut:
            hold = self.flush | scan.scan | checker.begins
            lendable = ~incoming.first
            m.d.comb += [
                space.arrives.eq(checker.ends),
                space.closed.eq(finishes | scan.expired),
                states.completed.valid.eq(checker.close),
                states.completed.p.eq(checker.tag),
                states.closed.eq(scan.expired),
            ]
        else:
            hold = self.flush | scan.scan | checker.begins | checker.ends
            lendable = ~(incoming.first | incoming.last)
            m.d.comb += [
                space.arrives.eq(checker.arrives),
                space.closed.eq(states.closed),
                states.closed.eq(checker.close | scan.expired),
            ]

        # One look-up of the tag states serves completions and, in cycles without one, the scan.
        # Behind a stream without a pause the scan has that of a beat for which the one of the beat
        # before counts.
        lent = Signal()
        was_open, was_waiting = Signal(), Signal()
        open_ = states.lookup_waiting | states.lookup_quarantined
        lends = lendable & checker.valid & scan.due & ~scan.scan
        m.d.sync += [
            lent.eq(lends & self.completion.valid),
            was_open.eq(checker.open),
            was_waiting.eq(checker.waiting & ~self.flush),
            states.lookup_tag.eq(Mux(self.completion.valid & ~lends, checker.lookup, scan.tag)),
        ]
        m.d.comb += [
            scan.allowed.eq(~checker.valid | lent),
            scan.waiting.eq(states.lookup_waiting),
            scan.open.eq(open_),
            scan.opened.valid.eq(taken.valid),
            scan.opened.p.eq(taken.p.tag),
            issuer.hold.eq(hold),
            checker.open.eq(Mux(lent, was_open, open_ & ~too_early)),
            checker.waiting.eq(Mux(lent, was_waiting, states.lookup_waiting)),
            checker.disown.eq(scan.expired & (checker.tag == scan.tag)),
            checker.progress.eq(progress_read.data),
            checker.tolerant.eq(self.tolerant),
            states.ended.eq(checker.failed | scan.timed_out),
            retirement.ended.valid.eq(states.ended),
            retirement.ended.p.tag.eq(states.lookup_tag),
            retirement.ended.p.outcome.eq(
                Mux(scan.scan, Outcome.COMPLETION_TIMEOUT, checker.outcome)
            ),
            progress_read.addr.eq(checker.lookup),
            progress_write.addr.eq(Mux(taken.valid, taken.p.tag, checker.tag)),
            progress_write.data.eq(Mux(taken.valid, issuer.progress, checker.advanced)),
            progress_write.en.eq(checker.advance | taken.valid),
        ]
        m.d.sync += [
            self.timed_out.eq(scan.timed_out),
            self.unexpected.eq(checker.unexpected),
        ]
        return m
