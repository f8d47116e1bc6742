# SPDX-License-Identifier: BSD-2-Clause
"""What all tests need of the process that they run in."""

import gc
import signal

import pytest

# A shell that starts a job in the background has it ignore interrupts, and so does every process
# that the job starts: tests that send one would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    _forget_what_stays()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None):
    """At the end of a module, with its fixtures gone."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        _forget_what_stays()
    return result


def _forget_what_stays() -> None:
    """Has the garbage collector look no more at what there is now, mostly pytest's and imports.

    Many tests collect garbage, to see that nothing is left. With all the tests of a run in memory,
    and what was imported for them, that took longer than most of these tests.
    """
    gc.collect()
    gc.freeze()
