# SPDX-License-Identifier: BSD-2-Clause
"""A guest for the tests of a module, and tests that run inside of it.

With PEERDMA_KERNEL=debug in the environment it is one with the debug kernel.

Modules of which every test is marked ``in_guest`` use one guest after another if they ask for the
same, with the driver loaded anew: to boot one takes longer than many of them run. They are sorted
for that; xdist keeps to it with ``--dist loadgroup --no-loadscope-reorder``.

A test marked ``in_guest`` is called in the guest instead of here: its module is imported there. It
may be parametrized by literals, and has no fixtures but `guest` and `block`. Its output is a
section of its report, which ``-rA`` shows. It is called by `call` of the module that HELPERS of its
module names, by default `picoevb`.

Boards are behind the block of the 7 series. A test marked ``each_block`` runs behind every one of
`BLOCKS`, each time in a guest of its own.
"""

from __future__ import annotations

import contextlib
import inspect
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
#: PCIe blocks, as ``sim.board --block`` takes them; the first is that of tests without the mark.
BLOCKS = ("series7", "ultrascale-plus")


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
def block(request: pytest.FixtureRequest) -> str:
    """The PCIe block of the guest's boards."""
    return getattr(request, "param", BLOCKS[0])


@pytest.fixture(scope="module")
def guest(request: pytest.FixtureRequest, block: str, _shared: _Shared) -> Iterator[Guest]:
    """The module's guest: with the settings in its GUEST, or a board and a GPU without an IOMMU."""
    settings = _settings(request.module, block)
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


def _settings(module: ModuleType, block: str) -> dict[str, Any]:
    """The arguments of `Guest`, with boards behind a block."""
    settings = getattr(module, "GUEST", {"configuration": "identity"})
    if block == BLOCKS[0]:
        return settings
    boards = [settings.get("board_options", ()), *settings.get("further_boards", ())]
    first, *further = [[*options, "--block", block] for options in boards]
    return {**settings, "board_options": first, "further_boards": further}


def _shares(module: ModuleType) -> bool:
    return getattr(module, "pytestmark", None) is IN_GUEST


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Those behind another block are for `make test-system`, whatever the module's others are."""
    if metafunc.definition.get_closest_marker("each_block"):
        first, *others = BLOCKS
        behind = [first, *(pytest.param(name, marks=pytest.mark.system) for name in others)]
        metafunc.parametrize("block", behind, indirect=True, scope="module")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules that share a guest follow one another, largest groups first."""
    groups = {item: _group(item) for item in items}
    sizes = Counter(groups.values())
    items.sort(key=lambda item: (-sizes[groups[item]], groups[item]))
    for item in items:
        # xdist gives a file's tests behind one block to one worker, after those with that guest.
        item.add_marker(pytest.mark.xdist_group(f"{item.path.stem}-{_block(item)}"))


def _group(item: pytest.Item) -> str:
    if not isinstance(item, pytest.Function) or not item.get_closest_marker("system"):
        return ""
    block = _block(item)
    if _shares(item.module):
        return repr(_settings(item.module, block))
    return f"{item.path.stem} {block}"


def _block(item: pytest.Item) -> str:
    return item.callspec.params.get("block", BLOCKS[0]) if hasattr(item, "callspec") else BLOCKS[0]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if pyfuncitem.get_closest_marker("in_guest") is None:
        return None
    guest: Guest = pyfuncitem.funcargs["guest"]
    taken = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in taken}
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
