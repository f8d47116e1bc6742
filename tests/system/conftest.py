# SPDX-License-Identifier: BSD-2-Clause
"""A guest for the tests of a module, and tests that run inside of it.

With PEERDMA_KERNEL=debug in the environment it is one with the debug kernel.

A test marked ``in_guest`` is called in the guest instead of here: its module is imported there. It
may be parametrized by literals, and has no fixtures but `guest`. Its output is a section of its
report, which ``-rA`` shows. It is called by `call` of the module that HELPERS of its module names,
by default `picoevb`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sim.system import Guest, GuestError
from sim.system.debug.guest import DebugGuest

_CALL = """
from tests.system import {helpers}
{helpers}.call({module!r}, {function!r}, {arguments!r})
"""
#: Seconds for one test in a guest.
_PATIENCE = 150.0


@pytest.fixture(scope="module")
def guest(request: pytest.FixtureRequest) -> Iterator[Guest]:
    """The module's guest: with the settings in its GUEST, or a board and a GPU without an IOMMU."""
    settings = getattr(request.module, "GUEST", {"configuration": "identity"})
    kind = DebugGuest if os.environ.get("PEERDMA_KERNEL") == "debug" else Guest
    with kind(**settings) as guest:
        yield guest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if pyfuncitem.get_closest_marker("in_guest") is None:
        return None
    guest: Guest = pyfuncitem.funcargs["guest"]
    arguments = pyfuncitem.callspec.params if hasattr(pyfuncitem, "callspec") else {}
    code = _CALL.format(
        helpers=getattr(pyfuncitem.module, "HELPERS", "picoevb"),
        module=f"tests.system.{pyfuncitem.path.stem}",
        function=pyfuncitem.originalname,
        arguments=arguments,
    )
    try:
        pyfuncitem.add_report_section("call", "guest", guest.python(code, _PATIENCE))
    except GuestError as error:
        pytest.fail(str(error), pytrace=False)
    return True
