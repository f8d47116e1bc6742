# SPDX-License-Identifier: BSD-2-Clause
"""Which status bits an error sets."""

from amaranth import *

from peerdma.regs import Status

from ..records import Outcome

__all__ = ["error_bits"]


def error_bits(outcome, *, fetch: bool, c2h: bool) -> Value:
    """Status bits of an outcome of the descriptor fetch, or else of the data path; 0 for OK.

    Besides the error's own bit it has bit 0 of its field, because that is the only one that all
    drivers look at. It also stands for a timeout, which has none.
    """
    source = "DESC" if fetch else "READ"
    unsupported = Status[f"{source}_UNSUPPORTED"]
    bits = {
        Outcome.MAGIC: Status.MAGIC_STOPPED,
        Outcome.DECODE: Status.READ_UNSUPPORTED if c2h else Status.WRITE_DECODE,
        Outcome.UNSUPPORTED_REQUEST: unsupported,
        Outcome.COMPLETER_ABORT: Status[f"{source}_ABORT"] | unsupported,
        Outcome.POISONED: Status[f"{source}_POISONED"] | unsupported,
        Outcome.UNEXPECTED_COMPLETION: Status[f"{source}_UNEXPECTED"] | unsupported,
        Outcome.COMPLETION_TIMEOUT: unsupported,
        Outcome.BUS_MASTER_OFF: unsupported,
    }
    value = Const(0, 24)
    for code, flags in bits.items():
        value = value | Mux(outcome == code, Const(int(flags), 24), 0)
    return value
