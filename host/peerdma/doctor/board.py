# SPDX-License-Identifier: BSD-2-Clause
"""The doctor's look at a board from inside: versions, state, and transfers each way."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator

import numpy as np

from ..board.board import Board
from ..errors import BoardLost, PeerdmaError, VerifyError
from ..kernel.node import KernelNode
from ..memory import pattern
from ..memory.surface import Gpu
from ..regs import EXTENSION_VERSION
from ..uapi import UAPI_VERSION, BoardState
from .system import Finding, fail, note, ok, warn

__all__ = [
    "look_at_counts",
    "look_at_gateware",
    "look_at_versions",
    "try_gpu_memory",
    "try_host_memory",
]

#: Bytes of a test transfer, where card RAM has as many: several pages and many packets.
_TEST_BYTES = 16384


def look_at_versions(node: KernelNode) -> Iterator[Finding]:
    """What the kernel driver says of itself."""
    info = node.info()
    version = f"{info.uapi_version >> 16}.{info.uapi_version & 0xFFFF}"
    mine = f"{UAPI_VERSION[0]}.{UAPI_VERSION[1]}"
    found = f"the driver's interface is {version}"
    if version == mine:
        yield ok("version", f"{found}, the library's too")
    else:
        yield note("version", f"{found}, the library's {mine}: they work together")
    yield ok("providers", f"what can be pinned comes from: {info.providers.decode()}")


def look_at_counts(node: KernelNode) -> Finding:
    """What the kernel driver has seen of the board."""
    info = node.info()
    if info.state == BoardState.DEAD:
        return fail(
            "state",
            "the driver has given the board up: it is gone or could not be reset",
            "dmesg | grep peerdma says why; then unbind and bind it, or restart the machine",
            BoardLost,
        )
    counts = f"{info.jobs} transfers so far, {info.failures} failed, {info.timeouts} of them late"
    if info.lost_interrupts:
        return warn(
            "state",
            f"{counts}; {info.lost_interrupts} ended without their interrupt",
            "grep peerdma /proc/interrupts shows whether any arrive; try another kind: start the "
            "kernel with pci=nomsi",
        )
    if info.state == BoardState.FROZEN:
        return note("state", f"{counts}; it is suspended or being reset just now")
    return ok("state", counts)


def look_at_gateware(board: Board) -> Iterator[Finding]:
    """What the board is."""
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
            "plain XDMA, without the extension block: copies go through card RAM, errors have no "
            "address",
        )
        return
    found = f"register map {extension.version[0]}.{extension.version[1]}"
    if extension.version > EXTENSION_VERSION:
        yield note(
            "gateware",
            f"{found}, newer than this library's {EXTENSION_VERSION[0]}.{EXTENSION_VERSION[1]}: "
            "what it added is not used",
        )
    else:
        yield ok("gateware", f"{found}, {extension.link}, {extension.clock_khz / 1e3:g} MHz")


def try_host_memory(board: Board) -> Iterator[Finding]:
    """Transfers between host memory and the card, each way by itself, then through the board."""
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
    """Transfers between a GPU's surfaces and the card: platforms may forward only one way.

    The other half of each way is through host memory, which is known to work by then.
    """
    nbytes = min(_TEST_BYTES, board.info().card_ram_size)
    with contextlib.ExitStack() as undo:
        try:
            surface = undo.enter_context(gpu.surface(nbytes))
            pin = undo.enter_context(board.pin(surface))
        except PeerdmaError as error:
            yield _failure("pin GPU memory", error)
            return
        yield ok("pin GPU memory", f"{gpu.name}: {gpu.memory}")

        def read() -> object:
            seed = _seed()
            surface.fill(seed)
            transfer = board.write(pin)
            received = np.zeros(nbytes, np.uint8)
            board.read(received)
            _compare(received, seed, "GPU memory, as the card read it")
            return transfer.path.to_board

        def write() -> object:
            sent, seed = _pattern(nbytes)
            board.write(sent)
            surface.fill(_seed())
            transfer = board.read(pin)
            gpu.verify(surface, seed=seed)
            return transfer.path.from_board

        yield _tried("read GPU memory", read)
        yield _tried("write GPU memory", write)


def _seed() -> int:
    """A new one each time: what an earlier test left looks wrong."""
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
        return ok(subject, f"works, by way of {action()}")
    except PeerdmaError as error:
        return _failure(subject, error)


def _failure(subject: str, error: PeerdmaError) -> Finding:
    steps = {
        "read host memory": "Look at link, IOMMU and dmesg (DMAR, AER): the board's read requests "
        "or their answers are lost",
        "write host memory": "Look at IOMMU and dmesg (DMAR, AER): reads work, writes do not",
        "read GPU memory": "If writing works, this platform forwards no peer-to-peer reads: use "
        'surfaces in host memory as sources, memory="host"',
        "write GPU memory": 'Use surfaces in host memory, memory="host", or another slot',
    }
    step = steps.get(subject, "docs/driver.md lists what else it can be")
    return fail(subject, f"{type(error).__name__}: {error}", step, type(error))
