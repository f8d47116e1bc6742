# SPDX-License-Identifier: BSD-2-Clause
"""Memory reads of ours: requests out, completions in, data straight to its place.

    jobs ──▶ Issuer ──▶ request     completion ──▶ CompletionChecker ──▶ Placer ──▶ placement
                │                                          │
                └──▶ TagStates, tables indexed by tag ◀────┘
                                 │
                            OrderQueues ──▶ retired, error

There is no reorder buffer: completions of different tags may come in any order, and the tables
know where the next byte of each tag goes.
"""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from ..records import RING_PLACE, Outcome, Placement, ReadJob, Retired
from ..seam import CompletionBeat, RequestBeat
from .checks import CompletionChecker, Progress
from .issuer import Issuer, Owner
from .placer import Placer
from .tags import OrderQueues, TagStates

__all__ = ["Frontier", "ReadError", "Requester"]

_RING_BIT = exact_log2(RING_PLACE)


class ReadError(data.Struct):
    """A read that failed."""

    #: byte address of the job
    address: 64
    outcome: Outcome
    #: number of the client
    client: 4


class Frontier(data.Struct):
    """How far the data of a client's oldest job has come."""

    #: number of the client
    client: 4
    #: all bytes of the job below this place are in the client's memory; the bit of `RING_PLACE`
    #: is that of the job, whatever the place has come to
    place: 17


class Requester(wiring.Component):
    """Reads memory for several clients and places the data in their memories.

    Latency: a job taken at cycle t is offered at `request` at t + 1, one job in two cycles at
    best. The word of a completion beat is at `placement` three cycles after the beat, the rest
    of a packet's last beat four. A job that is alone is at `retired` five cycles after its last
    beat, one of several later by a turn of the clients at most: always after its last word was at
    `placement`, so that a memory that is written in that cycle can be read.

    `completion` is taken at full rate. Beats of a packet may have gaps between them; after its
    last beat at least one cycle must pass without a beat. Any adapter of a 64-bit block has that
    cycle: a completion of n dwords is ceil((3 + n) / 2) beats with its header, ceil(n / 2)
    without.

    A completion that does not fit its request (see `CompletionChecker`) ends the job with
    UNEXPECTED_COMPLETION. An error completion ends job and request; after a poisoned one the job
    has ended, too, but its tag is in use until the remaining data has come.

    A tag whose job ended while completions may still come is quarantined: not used until the
    rest of the completions, which are dropped, or `quarantine_timeouts` further timeouts passed.

    Parameters
    ----------
    clients : int
        Number of clients, 1 to 16.
    tags : int
        Reads in flight, a power of two from 2 to 256. More than 32 need extended tags.
    timeout_cycles : int
        A read ends with COMPLETION_TIMEOUT this many to twice as many cycles after its request
        was offered, later by a few packets if the stream of completions is full; at least 4 for
        each tag. The default is 10 ms at 125 MHz.
    quarantine_timeouts : int
        How many timeouts, one after the other, a quarantined tag stays out of use at least. After
        an end other than by timeout up to two more pass.

    Members
    -------
    jobs : In(stream of ReadJob), one for each client
        Taken in turn, while tags are left.
    retired : Out(stream of Retired, always ready), one for each client
        In the order of the client's jobs.
    idle : Out(clients)
        Bit n: client n has no job that was taken and has not retired.
    request : Out(stream of RequestBeat)
        Reads. Once offered, a request stays until it is taken, whatever happens to its job.
    completion : In(stream of CompletionBeat, always ready)
    placement : Out(stream of Placement, always ready)
    frontier : Out(stream of Frontier, always ready)
        For each client in turn, while it has jobs; a job's last value comes before it retires.
    error : Out(stream of ReadError, always ready)
        Each failed job, in the cycle in which it retires.
    bus_master : In(1)
        Low: jobs are taken and end with BUS_MASTER_OFF without a request. A request that was
        offered before is up to whoever takes it; if it is dropped, the job ends by timeout.
    relaxed : In(1)
        Relaxed Ordering attribute of new requests.
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

    Raises
    ------
    ValueError
        If a parameter is out of its range.
    """

    def __init__(
        self,
        clients: int,
        tags: int = 32,
        timeout_cycles: int = 1_250_000,
        quarantine_timeouts: int = 4,
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
        self._clients = clients
        self._tags = tags
        self._timeout_cycles = timeout_cycles
        self._quarantine_timeouts = quarantine_timeouts
        always = {"always_ready": True}
        super().__init__(
            {
                "jobs": In(stream.Signature(ReadJob)).array(clients),
                "retired": Out(stream.Signature(Retired, **always)).array(clients),
                "idle": Out(clients),
                "request": Out(stream.Signature(RequestBeat)),
                "completion": In(stream.Signature(CompletionBeat, **always)),
                "placement": Out(stream.Signature(Placement, **always)),
                "frontier": Out(stream.Signature(Frontier, **always)),
                "error": Out(stream.Signature(ReadError, **always)),
                "bus_master": In(1),
                "relaxed": In(1),
                "flush": In(1),
                "reads_pending": Out(1),
                "timed_out": Out(1),
                "unexpected": Out(1),
                "quarantined": Out(tags),
            }
        )

    def elaborate(self, platform):
        m = Module()
        tags = self._tags
        m.submodules.states = states = TagStates(tags)
        m.submodules.issuer = issuer = Issuer(self._clients)
        m.submodules.checker = checker = CompletionChecker(tags)
        m.submodules.placer = placer = Placer()
        m.submodules.queues = queues = OrderQueues(self._clients, tags)

        for ours, theirs in zip(self.jobs, issuer.jobs, strict=True):
            wiring.connect(m, wiring.flipped(ours), theirs)
        wiring.connect(m, issuer.request, wiring.flipped(self.request))
        wiring.connect(m, wiring.flipped(self.completion), checker.completion)
        wiring.connect(m, states.free, issuer.free)
        wiring.connect(m, issuer.taken, queues.push)
        wiring.connect(m, checker.beats, placer.beats)
        wiring.connect(m, placer.placement, wiring.flipped(self.placement))
        m.d.comb += [
            issuer.bus_master.eq(self.bus_master),
            issuer.relaxed.eq(self.relaxed),
            states.wait.eq(self.bus_master),
            states.flush.eq(self.flush),
            placer.discard.eq(self.flush),
            queues.waiting.eq(states.waiting),
            # What ends is looked at in time to see that.
            queues.hint.valid.eq(checker.ends),
            queues.hint.p.eq(checker.beats.p.client),
            queues.flush.eq(self.flush),
            self.idle.eq(queues.idle),
            self.reads_pending.eq((states.waiting | states.quarantined).any()),
            self.quarantined.eq(states.quarantined),
        ]

        def table(name, shape):
            m.submodules[name] = ram = memory.Memory(shape=shape, depth=tags, init=[])
            return ram.write_port(), ram.read_port(domain="comb")

        progress_write, progress_read = table("progress", Progress)
        job_write, job_read = table("job", ReadJob)
        outcome_write, outcome_read = table("outcome", Outcome)
        reached_write, reached_read = table("reached", _RING_BIT)
        # A job may end just where the ring's places begin: which memory it is for is kept apart.
        ringed_write, ringed_read = table("ringed", 1)
        # How often a tag was visited (see below) since its request was offered.
        age_write, age_read = table("age", range(2 + self._quarantine_timeouts))

        # Time: each tag is visited once in `timeout_cycles`. The second visit ends a job that
        # still waits, `quarantine_timeouts` further visits end the quarantine.
        period = self._timeout_cycles // tags
        countdown = Signal(range(period))
        due = Signal()
        visitor = Signal(range(tags))
        visit = Signal()
        m.d.sync += countdown.eq(Mux(countdown == 0, period - 1, countdown - 1))
        with m.If(countdown == 0):
            m.d.sync += due.eq(1)
        # Never in two cycles one after the other, as `subject` follows a cycle behind.
        with m.If(visit):
            m.d.sync += [due.eq(0), visitor.eq(visitor + 1)]

        # A completion cannot be for a request that is not yet offered, even if the tag already
        # waits: it was looked up before the job that is taken was written.
        taken, job = issuer.taken, issuer.job
        newest = Signal(Owner)
        new = Signal()
        m.d.sync += [newest.eq(taken.p), new.eq(taken.valid)]
        too_early = new & (newest.tag == checker.tag)

        # One state at a time: that of the completion at hand or, in cycles without, of the tag
        # to be visited. A job is taken when neither writes to a table.
        m.d.sync += states.subject.eq(Mux(self.completion.valid, checker.lookup, visitor))
        open_ = states.subject_waiting | states.subject_quarantined
        timed_out = Signal()
        expired = Signal()
        age = age_read.data
        m.d.comb += [
            visit.eq(due & ~checker.valid),
            issuer.hold.eq(self.flush | visit | checker.begins | checker.ends),
            checker.open.eq(open_ & ~too_early),
            checker.waiting.eq(states.subject_waiting),
            age_read.addr.eq(visitor),
            timed_out.eq(visit & states.subject_waiting & (age == 1)),
            expired.eq(visit & open_ & (age == 1 + self._quarantine_timeouts)),
            checker.disown.eq(expired & (checker.tag == visitor)),
            states.ended.eq(checker.failed | timed_out),
            states.closed.eq(checker.close | expired),
        ]
        m.d.sync += [
            self.timed_out.eq(timed_out),
            self.unexpected.eq(checker.unexpected),
        ]

        m.d.comb += [
            job_write.addr.eq(taken.p.tag),
            job_write.data.eq(job),
            job_write.en.eq(taken.valid),
            age_write.addr.eq(Mux(visit, visitor, taken.p.tag)),
            age_write.data.eq(Mux(visit, age + 1, 0)),
            age_write.en.eq(visit | taken.valid),
            progress_read.addr.eq(checker.lookup),
            checker.progress.eq(progress_read.data),
            progress_write.en.eq(checker.advance | taken.valid),
            outcome_write.en.eq(states.ended | taken.valid),
            # A beat in the middle of a packet gives way to a job; the next one tells as much.
            reached_write.addr.eq(Mux(taken.valid, taken.p.tag, checker.tag)),
            reached_write.data.eq(Mux(taken.valid, job.place, checker.reached)),
            reached_write.en.eq(taken.valid | checker.reaches),
            reached_read.addr.eq(queues.head.p.tag),
            ringed_write.addr.eq(taken.p.tag),
            ringed_write.data.eq(job.place[_RING_BIT]),
            ringed_write.en.eq(taken.valid),
            ringed_read.addr.eq(queues.head.p.tag),
        ]
        # As late as the last word of a completion is written, so that it can be read.
        seen, seen_valid = Signal(Frontier), Signal()
        m.d.sync += [
            seen.client.eq(queues.head.p.client),
            seen.place.eq(Cat(reached_read.data, ringed_read.data)),
            seen_valid.eq(queues.head.valid),
            self.frontier.p.eq(seen),
            self.frontier.valid.eq(seen_valid & ~self.flush),
        ]
        with m.If(taken.valid):
            m.d.comb += [
                progress_write.addr.eq(taken.p.tag),
                progress_write.data.eq(issuer.progress),
                outcome_write.addr.eq(taken.p.tag),
                outcome_write.data.eq(Mux(self.bus_master, Outcome.OK, Outcome.BUS_MASTER_OFF)),
            ]
        with m.Else():
            m.d.comb += [
                progress_write.addr.eq(checker.tag),
                progress_write.data.eq(checker.advanced),
                outcome_write.addr.eq(states.subject),
                outcome_write.data.eq(Mux(visit, Outcome.COMPLETION_TIMEOUT, checker.outcome)),
            ]

        retire = queues.retire
        retired = Signal(Retired)
        error = self.error.p
        m.d.comb += [
            states.released.p.eq(retire.p.tag),
            states.released.valid.eq(retire.valid),
            job_read.addr.eq(retire.p.tag),
            outcome_read.addr.eq(retire.p.tag),
        ]
        m.d.sync += [
            retired.length.eq(job_read.data.length),
            retired.last.eq(job_read.data.last),
            retired.outcome.eq(outcome_read.data),
            error.address.eq(job_read.data.address),
            error.client.eq(retire.p.client),
            self.error.valid.eq(retire.valid & (outcome_read.data != Outcome.OK)),
        ]
        m.d.comb += error.outcome.eq(retired.outcome)
        for number, client in enumerate(self.retired):
            m.d.comb += client.p.eq(retired)
            m.d.sync += client.valid.eq(retire.valid & (retire.p.client == number))
        return m
