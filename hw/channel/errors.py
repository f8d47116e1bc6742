# SPDX-License-Identifier: BSD-2-Clause
"""Which status bits an error sets."""

from amaranth import *

from peerdma.regs import Status

from ..records import Outcome

__all__ = ["error_bits", "error_table", "status_bits"]


def error_table(*, fetch: bool, c2h: bool) -> dict[Outcome, Status]:
    """Status bits of each outcome but OK, of the descriptor fetch or else of the data path.

    Besides the error's own bit they have bit 0 of its field, because that is the only one that all
    drivers look at. It also stands for errors that have none. No driver looks at write errors:
    a card address that does not decode has the bit of reads in both directions.
    """
    source = "DESC" if fetch else "READ"
    unsupported = Status[f"{source}_UNSUPPORTED"]
    decode = Status.READ_UNSUPPORTED
    return {
        Outcome.MAGIC: Status.MAGIC_STOPPED,
        Outcome.DECODE: decode if c2h else decode | Status.WRITE_DECODE,
        Outcome.UNSUPPORTED_REQUEST: unsupported,
        Outcome.COMPLETER_ABORT: Status[f"{source}_ABORT"] | unsupported,
        Outcome.POISONED: Status[f"{source}_POISONED"] | unsupported,
        Outcome.UNEXPECTED_COMPLETION: Status[f"{source}_UNEXPECTED"] | unsupported,
        Outcome.COMPLETION_TIMEOUT: unsupported,
        Outcome.BUS_MASTER_OFF: unsupported,
        Outcome.NO_COMPLETION_SPACE: unsupported,
        Outcome.WRITE_DROPPED: unsupported,
    }


def status_bits(*, c2h: bool) -> Status:
    """All bits that a channel can set but for busy; software reads the others as 0."""
    found = Status.DESCRIPTOR_STOPPED | Status.DESCRIPTOR_COMPLETED | Status.IDLE_STOPPED
    for fetch in (True, False):
        for flags in error_table(fetch=fetch, c2h=c2h).values():
            found |= flags
    return found


def error_bits(outcome: Value, fetch: Value, *, c2h: bool) -> Value:
    """Look an outcome up in the table that `fetch` selects; 0 for OK."""

    def look_up(table):
        bits = Const(0)
        for code, flags in table.items():
            bits = bits | Mux(outcome == code, int(flags), 0)
        return bits

    tables = (error_table(fetch=selected, c2h=c2h) for selected in (True, False))
    return Mux(fetch, *map(look_up, tables))
