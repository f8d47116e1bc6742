# SPDX-License-Identifier: BSD-2-Clause
"""A guest for the tests of a module, and tests that run inside of it.

With PEERDMA_KERNEL=debug in the environment it is one with the debug kernel.

Modules of which every test is marked ``in_guest`` use one guest after another if they ask for the
same, with the driver loaded anew: to boot one takes longer than many of them run. They are sorted
for that; xdist keeps to it with ``--dist loadfile --no-loadscope-reorder``.

A test marked ``in_guest`` is called in the guest instead of here: its module is imported there. It
may be parametrized by literals, and has no fixtures but `guest`. Its output is a section of its
report, which ``-rA`` shows. It is called by `call` of the module that HELPERS of its module names,
by default `picoevb`.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from sim.system import BootError, Guest, GuestError
from sim.system.debug.guest import DebugGuest
from tests.system.marks import IN_GUEST

_CALL = """
from tests.system import {helpers}
{helpers}.call({module!r}, {function!r}, {arguments!r})
"""
#: Seconds for one test in a guest.
_PATIENCE = 150.0


class _Shared:
    """The guest that modules use one after another."""

    def __init__(self) -> None:
        self._settings: dict[str, Any] = {}
        self._guest: Guest | None = None

    def take(self, settings: dict[str, Any]) -> Guest:
        """One with these settings, in which the driver was just loaded."""
        if self._guest is None or settings != self._settings:
            self.close()
            self._settings, self._guest = settings, _boot(settings)
            return self._guest
        modules = self._guest.configuration.modules
        for name in reversed(modules):
            self._guest.unload(name)
        for name in modules:
            self._guest.load(name)
        return self._guest

    def close(self) -> None:
        """Ends it; KernelComplaint or GuestError if anything went wrong in it."""
        guest, self._guest = self._guest, None
        if guest is not None:
            guest.close()


@pytest.fixture(scope="session")
def _shared() -> Iterator[_Shared]:
    with contextlib.closing(_Shared()) as shared:
        yield shared


@pytest.fixture(scope="module")
def guest(request: pytest.FixtureRequest, _shared: _Shared) -> Iterator[Guest]:
    """The module's guest: with the settings in its GUEST, or a board and a GPU without an IOMMU."""
    settings = _settings(request.module)
    if not _shares(request.module):
        _shared.close()
        with _boot(settings) as guest:
            yield guest
        return
    failed = request.session.testsfailed
    yield _shared.take(settings)
    if request.session.testsfailed != failed:
        _shared.close()


def _boot(settings: dict[str, Any]) -> Guest:
    """A second one if the kernel panics before the driver is loaded, with a warning.

    That happened twice in hundreds of boots under QEMU on two busy cores, to Debian's own kernel.
    The second time it did not know an int3, the breakpoint by which it patches its own code.
    """
    kind = DebugGuest if os.environ.get("PEERDMA_KERNEL") == "debug" else Guest
    try:
        return kind(**settings)
    except BootError as error:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(f"booted again: {error}", stacklevel=2)
        return kind(**settings)


def _settings(module: ModuleType) -> dict[str, Any]:
    return getattr(module, "GUEST", {"configuration": "identity"})


def _shares(module: ModuleType) -> bool:
    return getattr(module, "pytestmark", None) is IN_GUEST


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules that share a guest follow one another, largest groups first."""
    groups = {item: _group(item) for item in items}
    sizes = Counter(groups.values())
    items.sort(key=lambda item: (-sizes[groups[item]], groups[item]))


def _group(item: pytest.Item) -> str:
    if not isinstance(item, pytest.Function) or not item.get_closest_marker("system"):
        return ""
    return repr(_settings(item.module)) if _shares(item.module) else item.path.stem


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if pyfuncitem.get_closest_marker("in_guest") is None:
        return None
    guest: Guest = pyfuncitem.funcargs["guest"]
    arguments = pyfuncitem.callspec.params if hasattr(pyfuncitem, "callspec") else {}
    helpers = getattr(pyfuncitem.module, "HELPERS", "picoevb")
    module = f"tests.system.{pyfuncitem.path.stem}"
    guest.prepare(f"tests.system.{helpers}", module)
    code = _CALL.format(
        helpers=helpers,
        module=module,
        function=pyfuncitem.originalname,
        arguments=arguments,
    )
    try:
        pyfuncitem.add_report_section("call", "guest", guest.python(code, _PATIENCE))
    except GuestError as error:
        pytest.fail(str(error), pytrace=False)
    return True
