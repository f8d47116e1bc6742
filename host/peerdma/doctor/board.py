# SPDX-License-Identifier: BSD-2-Clause
"""The doctor's checks through the driver: versions, state, and transfers in each direction."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator

import numpy as np

from ..board.board import Board
from ..errors import BoardLost, PeerdmaError, UnsupportedError, VerifyError
from ..kernel.node import KernelNode
from ..memory.memory import DataPath
from ..memory.surface import Gpu
from ..regs import EXTENSION_VERSION, Capability
from ..testing import pattern
from ..uapi import UAPI_VERSION, BoardState
from .system import Finding, fail, note, ok, warn

__all__ = [
    "look_at_clock",
    "look_at_counts",
    "look_at_gateware",
    "look_at_overcommit",
    "look_at_versions",
    "try_doorbell",
    "try_gpu_memory",
    "try_host_memory",
    "try_mailbox",
]

#: Bytes of a test transfer, or the size of card RAM if that is less: several pages, many packets.
_TEST_BYTES = 16384


def look_at_versions(node: KernelNode) -> Iterator[Finding]:
    """The versions of driver and library, and the driver's sources of memory."""
    info = node.info()
    version = f"{info.uapi_version >> 16}.{info.uapi_version & 0xFFFF}"
    mine = f"{UAPI_VERSION[0]}.{UAPI_VERSION[1]}"
    found = f"the driver's interface is {version}"
    if version == mine:
        yield ok("version", f"{found}, as is the library's")
    else:
        yield note("version", f"{found}, the library's is {mine}: they are compatible")
    yield ok("providers", f"kinds of memory that can be pinned: {info.providers.decode()}")


def look_at_counts(node: KernelNode) -> Finding:
    """The board's state and the driver's counts of transfers and failures."""
    info = node.info()
    if info.state == BoardState.DEAD:
        return fail(
            "state",
            "the driver has stopped using the board: it is gone or could not be reset",
            "dmesg | grep peerdma says why; then unbind and bind it, or restart the machine",
            BoardLost,
        )
    counts = f"{info.jobs} transfers, {info.failures} failed, {info.timeouts} of these timed out"
    if info.lost_interrupts:
        return warn(
            "state",
            f"{counts}; {info.lost_interrupts} ended without their interrupt",
            "grep peerdma /proc/interrupts shows whether any arrive; try INTx: start the kernel "
            "with pci=nomsi",
        )
    if info.state == BoardState.FROZEN:
        return note("state", f"{counts}; it is currently suspended or being reset")
    return ok("state", counts)


def look_at_gateware(board: Board) -> Iterator[Finding]:
    """The board's channels, memory, interrupts, register map, link and clock."""
    info = board.info()
    where = ", simulated" if info.simulated and "simul" not in info.name else ""
    h2c, c2h = info.channels
    yield ok(
        "opened",
        f"{info.name}{where}: {h2c} H2C and {c2h} C2H channels, {info.card_ram_size} bytes of card "
        f"RAM, {info.interrupts}",
    )
    extension = info.extension
    if extension is None:
        yield note(
            "gateware",
            "plain XDMA, without the extension block: copies go through card RAM, and errors are "
            "reported without an address",
        )
        return
    found = f"register map {extension.version[0]}.{extension.version[1]}"
    if extension.version > EXTENSION_VERSION:
        yield note(
            "gateware",
            f"{found}, newer than this library's {EXTENSION_VERSION[0]}.{EXTENSION_VERSION[1]}: "
            "what is new in it is not used",
        )
    else:
        yield ok("gateware", f"{found}, {extension.link}, {extension.clock_khz / 1e3:g} MHz")


def look_at_clock(board: Board) -> Iterator[Finding]:
    """Whether the clock of the board's engine is what its gateware was generated for."""
    extension, rate = board.info().extension, board.measure_clock()
    if extension is None or not extension.clock_khz or rate is None:
        return
    said = f"{extension.clock_khz / 1e3:g} MHz"
    if rate.may_be(extension.clock_khz):
        yield ok("clock", f"{said}, as measured by this machine's clock")
        return
    measured = (rate.least_khz + rate.most_khz) / 2e3
    yield warn(
        "clock",
        f"{measured:.1f} MHz, and the gateware was generated for {said}: its timeouts and its "
        "window of writes count on that, and frames may have no times",
        "generate the gateware again with --clock-khz for the clock that drives it, or mend the "
        "board's clock",
    )


def look_at_overcommit(board: Board) -> Iterator[Finding]:
    """Whether a board that has more reads under way than its PCIe block has room for may do so."""
    extension = board.info().extension
    if extension is None or Capability.OVERCOMMIT not in extension.capabilities:
        return
    if Capability.OVERCOMMIT_OFF in extension.capabilities:
        yield warn(
            "overcommit",
            "off until the next reset: the receive port of the board's PCIe block fell behind the "
            "link, or a read was not answered; reads are slower, and none is lost for lack of room",
            "if it goes off again and again, generate the gateware without --overcommit",
        )
    else:
        yield ok("overcommit", "on: the receive port keeps up with the link, as far as it shows")


def try_host_memory(board: Board) -> Iterator[Finding]:
    """Transfers between host memory and the card, each direction by itself, then a copy."""
    nbytes = min(_TEST_BYTES, board.info().card_ram_size)
    sent, seed = _pattern(nbytes)
    received = np.zeros(nbytes, np.uint8)
    yield _tried("read host memory", lambda: board.write(sent).path.to_board)

    def write() -> object:
        transfer = board.read(received)
        _compare(received, seed, "the card's memory, as host memory received it")
        return transfer.path.from_board

    yield _tried("write host memory", write)

    def copy() -> object:
        received[:] = 0
        with board.pin(sent) as source, board.pin(received) as destination:
            transfer = board.copy(source, destination)
        _compare(received, seed, "host memory that was copied")
        return transfer.path

    yield _tried("copy host memory", copy)


def try_gpu_memory(board: Board, gpu: Gpu) -> Iterator[Finding]:
    """Transfers between a GPU's surface and the card, as platforms may forward only one direction.

    Checks the card's side of each with host memory, which has been found to work before.
    """
    nbytes = min(_TEST_BYTES, board.info().card_ram_size)
    with contextlib.ExitStack() as undo:
        try:
            surface = undo.enter_context(gpu.surface(nbytes))
            pin = undo.enter_context(board.pin(surface))
        except PeerdmaError as error:
            yield _failure("pin GPU memory", error)
            return
        by = f", by {pin.provider}" if pin.provider else ""
        if pin.path is DataPath.STAGED:
            by = f", as {pin.provider}"
        yield ok("pin GPU memory", f"{gpu.name}: {gpu.memory}, {pin.path}{by}")

        def read() -> object:
            sent, seed = _pattern(nbytes)
            surface.set(sent)
            transfer = board.write(pin)
            received = np.zeros(nbytes, np.uint8)
            board.read(received)
            _compare(received, seed, "GPU memory, as the card read it")
            return transfer.path.to_board

        def write() -> object:
            sent, seed = _pattern(nbytes)
            board.write(sent)
            surface.set(np.zeros(nbytes, np.uint8))
            transfer = board.read(pin)
            _compare(surface.get(), seed, "GPU memory, as the card wrote it")
            return transfer.path.from_board

        yield _tried("read GPU memory", read)
        yield _tried("write GPU memory", write)


def try_mailbox(board: Board, gpu: Gpu) -> Finding:
    """Whether kernels of a GPU can write the board's mailbox."""
    try:
        mailbox = board.mailbox()
    except UnsupportedError as error:
        return note("mailbox", str(error))
    with mailbox:
        try:
            gpu.map_mailbox(mailbox).close()
        except PeerdmaError as error:
            # The error's text ends with what to use instead; transfers need no mailbox.
            return note("mailbox", f"{type(error).__name__}: {error}")
    return ok("mailbox", "kernels of the GPU can write to it")


def try_doorbell(board: Board, gpu: Gpu) -> Finding:
    """Whether kernels of a GPU can ring a launch queue of the board by its page."""
    try:
        with (
            board.pin(np.ones(64, np.uint8)) as source,
            board.pin(np.zeros(64, np.uint8)) as there,
            board.queue([board.prepare(source, there)], depth=8, gpu=gpu) as queue,
        ):
            queue.device  # noqa: B018  # maps it
            text = queue.doorbell
    except PeerdmaError as error:
        return note("doorbell", f"{type(error).__name__}: {error}")
    return note("doorbell", text) if text.startswith("shadow tail") else ok("doorbell", text)


def _seed() -> int:
    """A new seed each time, so that data of an earlier test does not verify."""
    return secrets.randbits(32)


def _pattern(nbytes: int) -> tuple[np.ndarray, int]:
    seed = _seed()
    return pattern.fill_bytes(seed, 0, nbytes), seed


def _compare(found: np.ndarray, seed: int, what: str) -> None:
    expected = pattern.fill_bytes(seed, 0, found.size)
    wrong = np.flatnonzero(found != expected)
    if wrong.size:
        first = int(wrong[0])
        raise VerifyError(
            f"{what}, is wrong in {wrong.size} of {found.size} bytes, first at byte {first}: "
            f"{int(found[first]):#04x} instead of {int(expected[first]):#04x}",
            offset=first,
            expected=int(expected[first]),
            found=int(found[first]),
            wrong=int(wrong.size),
        )


def _tried(subject: str, action: Callable[[], object]) -> Finding:
    try:
        return ok(subject, f"works, through {action()}")
    except PeerdmaError as error:
        return _failure(subject, error)


def _failure(subject: str, error: PeerdmaError) -> Finding:
    steps = {
        "read host memory": "Check the link, the IOMMU and dmesg (DMAR, AER): the board's read "
        "requests or their completions are lost",
        "write host memory": "Check the IOMMU and dmesg (DMAR, AER): reads work, writes do not",
        "read GPU memory": "If writes work, this platform does not forward peer-to-peer reads: use "
        'surfaces in host memory as sources, memory="host"',
        "write GPU memory": 'Use surfaces in host memory, memory="host", or another slot',
    }
    step = steps.get(subject, "docs/driver.md lists other causes")
    found = f"{type(error).__name__}: {error}"
    if isinstance(error.__cause__, PeerdmaError):
        found += f". Tried before: {error.__cause__}"
    return fail(subject, found, step, type(error))
