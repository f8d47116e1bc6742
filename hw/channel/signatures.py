# SPDX-License-Identifier: BSD-2-Clause
"""Signatures of a channel towards the host's side, and between its parts."""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from peerdma import regs

from ..records import FETCH_DESCRIPTORS, DescriptorWord, ErrorReport, Outcome, PushedWord
from ..registers.bus import BusSignature
from ..write.record_writer import RecordSignature

__all__ = [
    "RUNS",
    "STATUS_BITS",
    "ChannelHostSignature",
    "ChannelSettings",
    "FetchSignature",
    "OwnerSignature",
    "Pushed",
    "RunEnd",
    "RunEventsSignature",
    "WritebackSignature",
]

#: Runs of another owner than software's registers under way at most.
RUNS = 7
#: Bits of the registers Status, Control and Interrupt Enable that stand for events.
STATUS_BITS = 24


class ChannelSettings(data.Struct):
    """What is set for a channel outside of its own registers."""

    #: fetch no descriptors
    halt: 1
    #: fetch descriptors against credits only
    credit_mode: 1
    #: abort, and start no run (soft reset)
    stop: 1
    #: largest piece, PCIe encoding
    piece_limit: 3


class Pushed(data.Struct):
    """Descriptors that were pushed, from the first of their slots on."""

    #: a list begins with them, not with a read
    any: 1
    #: the last one is complete
    whole: 1
    #: how many are complete
    count: regs.PUSH_DESCRIPTORS.bit_length()


class RunEnd(data.Struct):
    """How a run of an owner other than software's registers ended."""

    #: OK, or the first error
    outcome: Outcome
    #: the error was that of a descriptor, not of its data
    descriptor: 1
    #: by withdrawal or by a soft reset
    aborted: 1
    #: descriptors that have completed, modulo 2**16; not the one that failed
    count: 16
    #: no other run is under way any more: those behind one that failed are aborted with it
    last: 1
    #: the packet was longer than its memory
    long: 1


class OwnerSignature(wiring.Signature):
    """An owner that has runs on a channel beside those of software's registers, from its side.

        request ─▶ granted ─▶ [words] ─▶ start ─▶ started ─▶ ended ─▶ next request

    While a run is under way others may begin behind it, whenever the channel is `ready`. They end
    in order. The first that ends otherwise than by Stop is reported, and those behind it are
    aborted.

    Nothing of these runs shows in the channel's registers, in the error capture, or as a writeback
    or interrupt. They take no credits, and the halt bits do not hold them back.

    Members
    -------
    request : Out(1)
        A run is wanted. High until the last one has `ended`; low before withdraws the request or
        aborts all runs. In the cycle after that it is the next request.
    more : Out(1)
        Another request may follow soon: software's run that waits leaves the owner its turn.
    granted : In(1)
        The channel is this owner's, until the cycle after the last run has `ended` or after the
        request was withdrawn before a run has begun. An owner that is granted starts or withdraws
        within a few cycles: software waits.
    word : Out(stream of PushedWord)
        Descriptors to begin with, in `rows` from that of slot 0. Only from `granted` to `start`,
        and for a run behind another one from `ready` on; the first word of the last descriptor may
        come with `start`, if the others follow at once. Waits while the host pushes.
    ready : In(1)
        A run can begin in this cycle: the channel's stream allows it, and if others are under way,
        all of their lists are fetched. In the cycle after a start it is low.
    start : Out(1)
        Begin a run as soon as the channel is `ready`.
    reserve : Out(1)
        In a cycle in which the channel is `ready` for a run behind others: one will begin within
        some cycles, and is one of those under way already. So two channels that are `ready` both
        get theirs, though they begin one after the other.
    address, adjacent, pushed : Out
        As in `FetchSignature`. Stable from `start` until `ended`, or until `ready`.
    receives : Out(1)
        The run takes a packet, see `hw.channel.channel.Channel`. Stable while granted. Low where
        the channel cannot.
    started : In(1)
        From the cycle after the first run has begun to that in which the last one has `ended`.
    runs : In(range(RUNS + 1))
        How many have begun and have not ended by Stop, those behind one with an error included;
        from the grant on, and up to the next one. Until the first has begun, 1.
    ended : In(stream of RunEnd, always ready)
        The oldest run has ended, and nothing of it can touch memory any more. A soft reset ends
        runs without it: then `granted` falls.
    """

    def __init__(self):
        always = {"always_ready": True}
        super().__init__(
            {
                "request": Out(1),
                "more": Out(1),
                "granted": In(1),
                "word": Out(stream.Signature(PushedWord)),
                "ready": In(1),
                "start": Out(1),
                "reserve": Out(1),
                "address": Out(64),
                "adjacent": Out(6),
                "pushed": Out(Pushed),
                "receives": Out(1),
                "started": In(1),
                "runs": In(range(RUNS + 1)),
                "ended": In(stream.Signature(RunEnd, **always)),
            }
        )


class ChannelHostSignature(wiring.Signature):
    """A channel as the host sees it, from the host's side.

    Parameters
    ----------
    shared : bool
        Another owner has runs on the channel, too.

    Members
    -------
    bus : Out(BusSignature)
        The channel's registers. Has cycles without an access: events wait for one.
    settings : Out(ChannelSettings)
    records : In(RecordSignature)
        Poll-mode writebacks, one for each descriptor that asks for it; its status follows.
        Withdrawn when Run is cleared.
    interrupt : In(1)
        Status AND interrupt enable: the source for the IRQ block.
    begins : In(1)
        A run that software has started begins, and nothing of an earlier one is under way.
    error : In(stream of ErrorReport, always ready)
        The error that ended it. The address is there from the next cycle on until the next run
        `begins`.
    owned : In(1)
        The other owner has the channel. Only if `shared`.
    """

    def __init__(self, shared: bool = False):
        super().__init__(
            {
                "bus": Out(BusSignature()),
                "settings": Out(ChannelSettings),
                "records": In(RecordSignature()),
                "interrupt": In(1),
                "begins": In(1),
                "error": In(stream.Signature(ErrorReport, always_ready=True)),
                **({"owned": In(1)} if shared else {}),
            }
        )


class FetchSignature(wiring.Signature):
    """Control of a descriptor fetch, from the channel's side.

    Parameters
    ----------
    shared : bool
        Another owner has lists on the channel, too, for which the host's can be interrupted.

    Members
    -------
    start : Out(1)
        High for one cycle: begin a list. Must not happen while `active` or `flush` is high.
    address : Out(64)
        Byte address of the first descriptor; bits 4:0 are ignored. Stable from `start` until
        `begun`.
    adjacent : Out(6), pushed : Out(Pushed)
        How many more descriptors follow the first one contiguously. If there are `any` pushed ones,
        the list begins with these; `address` and `adjacent` mean nothing then. Stable from `start`
        until `begun`.
    owned : Out(1)
        Those are meant that another owner has pushed, not the host. Stable during a list.
    hold : Out(1), resume : Out(1)
        Put the host's list aside, which has `begun`, behind a descriptor: `active` falls when
        nothing of it is under way, and lists of the other owner may follow. Not if a read of it has
        failed: then it goes on to its end.
        High for one cycle, instead of `start`: it goes on where it was. Only if `shared`.
    begun : In(1)
        High for one cycle: the list begins.
    halt : Out(1)
        From the cycle after it rose, no read job is offered; reads under way finish.
    flush : Out(1)
        From the cycle after it rose, neither a job nor a descriptor is offered: the list is
        dropped with all that is fetched of it. `active` falls when the last read has retired.
    credit : Out(range(FETCH_DESCRIPTORS + 1))
        Most descriptors that the next job may ask for. Follows `spent` in the cycle after the next.
    spent : In(range(FETCH_DESCRIPTORS + 1))
        How many the job that is taken in this cycle asks for.
    active : In(1)
        From the cycle after `start` until the list has ended, its descriptors are taken and
        its reads have retired.
    reading : In(1)
        A read has not retired.
    wanted : Out(1)
        The channel takes a descriptor. Stays high until the first part comes, and is high in the
        cycle after the last one only if it takes another descriptor.
    word : In(stream of DescriptorWord, always ready)
        The list in order, up to and including the descriptor with Stop, or up to the error that
        ended it: an ERROR in place of a descriptor, or behind its CONTROL in place of the rest. The
        address of a pushed one is its offset within the window, with bit 0 set.
    """

    def __init__(self, shared: bool = False):
        more = {"hold": Out(1), "resume": Out(1)} if shared else {}
        super().__init__(
            {
                "start": Out(1),
                "address": Out(64),
                "adjacent": Out(6),
                "pushed": Out(Pushed),
                "owned": Out(1),
                **more,
                "begun": In(1),
                "halt": Out(1),
                "flush": Out(1),
                "credit": Out(range(FETCH_DESCRIPTORS + 1), init=FETCH_DESCRIPTORS),
                "spent": In(range(FETCH_DESCRIPTORS + 1)),
                "active": In(1),
                "reading": In(1),
                "wanted": Out(1),
                "word": In(stream.Signature(DescriptorWord, always_ready=True)),
            }
        )


class RunEventsSignature(wiring.Signature):
    """What status and counters get from a run, from the run's side.

    Members
    -------
    busy : Out(1)
        As the status register says it.
    rise : Out(1)
        A run begins: its status and count begin at 0, in this cycle already.
    event : Out(24)
        Status bits that occur in this cycle.
    counted : Out(1)
        A descriptor has completed.
    """

    def __init__(self):
        super().__init__(
            {"busy": Out(1), "rise": Out(1), "event": Out(STATUS_BITS), "counted": Out(1)}
        )


class WritebackSignature(wiring.Signature):
    """Requests for writebacks, from the side of who asks.

    Members
    -------
    request : Out(1), error : Out(1)
        Write the completed count back, with its error bit if a run ended by an error. Only while
        not `pending`.
    allowed : Out(1)
        Low: withdraw what is not taken yet, as software may free the memory.
    hold : Out(1)
        Not in this cycle: data of the run may still be under way.
    pending : In(1)
        From the cycle after `request` until the count is written or withdrawn.
    """

    def __init__(self):
        super().__init__(
            {
                "request": Out(1),
                "error": Out(1),
                "allowed": Out(1),
                "hold": Out(1),
                "pending": In(1),
            }
        )
