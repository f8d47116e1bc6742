# SPDX-License-Identifier: BSD-2-Clause
"""What a client hears of a job when it retires."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out

from ..records import Outcome, ReadError, ReadJob, Retired
from .records import Ended, Owner

__all__ = ["Retirement"]


class Retirement(wiring.Component):
    """Keeps job and outcome of each tag, and reports them when the tag retires.

    Both are looked up for each oldest tag, in the cycle in which `hw.read.tags.OrderQueues` tests
    whether its job has ended: by then its outcome was written, in the cycle before at the latest.

    Parameters
    ----------
    clients, tags : int

    Members
    -------
    taken : In(stream of Owner, always ready), job : In(ReadJob), outcome : In(Outcome)
        A job begins; its outcome, if nothing else is said.
    ended : In(stream of Ended, always ready)
        Another outcome. Not in a cycle in which a job begins.
    head : In(stream of Owner, always ready), retires : In(1)
        The oldest tag of a client, and whether its job retires.
    retired : Out(stream of Retired, always ready), one for each client
        In the cycle after `retires`.
    error : Out(stream of ReadError, always ready)
        In the same cycle, if the job has failed.
    """

    def __init__(self, clients: int, tags: int):
        self._tags = tags
        always = {"always_ready": True}
        super().__init__(
            {
                "taken": In(stream.Signature(Owner, **always)),
                "job": In(ReadJob),
                "outcome": In(Outcome),
                "ended": In(stream.Signature(Ended, **always)),
                "head": In(stream.Signature(Owner, **always)),
                "retires": In(1),
                "retired": Out(stream.Signature(Retired, **always)).array(clients),
                "error": Out(stream.Signature(ReadError, **always)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        taken, ended, head = self.taken, self.ended, self.head.p

        def table(name, shape):
            m.submodules[name] = ram = memory.Memory(shape=shape, depth=self._tags, init=[])
            write, read = ram.write_port(), ram.read_port(domain="comb")
            m.d.comb += read.addr.eq(head.tag)
            return write, read.data

        job_write, job = table("job", ReadJob)
        outcome_write, outcome = table("outcome", Outcome)
        m.d.comb += [
            job_write.addr.eq(taken.p.tag),
            job_write.data.eq(self.job),
            job_write.en.eq(taken.valid),
            outcome_write.addr.eq(Mux(taken.valid, taken.p.tag, ended.p.tag)),
            outcome_write.data.eq(Mux(taken.valid, self.outcome, ended.p.outcome)),
            outcome_write.en.eq(taken.valid | ended.valid),
        ]
        retired, error = Signal(Retired), self.error.p
        m.d.sync += [
            retired.length.eq(job.length),
            retired.last.eq(job.last),
            retired.outcome.eq(outcome),
            error.address.eq(job.address),
            error.client.eq(head.client),
            self.error.valid.eq(self.retires & (outcome != Outcome.OK)),
        ]
        m.d.comb += error.outcome.eq(retired.outcome)
        for number, client in enumerate(self.retired):
            m.d.comb += client.p.eq(retired)
            m.d.sync += client.valid.eq(self.retires & (head.client == number))
        return m
