# SPDX-License-Identifier: BSD-2-Clause
"""A Linux guest in QEMU with the driver, the simulated board and a simulated GPU."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import socket
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.debian_tree import TreeError

from . import process
from .board import ROOT, Board
from .channel import Channel, Running
from .configurations import CONFIGURATIONS
from .errors import BootError, GuestError, KernelComplaint, Overdue
from .kernel import Kernel, chosen
from .log import KernelLog
from .machine import BOARD_SLOTS, CHECKOUT, Plan, board_device
from .modules import build, build_xdma
from .qmp import Monitor

__all__ = ["Guest"]

_LOGS = ROOT / "build" / "system" / "logs"
#: Limits in seconds: for an expected complaint; for booting on a busy machine; for QEMU to end;
#: for a mark to appear in the log; for the removal of a device; for the report of a panic.
_ANNOUNCED, _BOOT, _END, _LOG, _GONE, _PANIC = 30.0, 300.0, 10.0, 60.0, 60.0, 5.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/guest/bin"
_RESTART = "import ctypes, os; os.sync(); ctypes.CDLL(None).reboot(0x01234567)"


class Guest:
    """A guest; a context manager.

    Creating it boots the guest and loads the configuration's modules. It has all files of the host,
    read-only, at the same paths (arm64: a Debian of its own, with the checkout at /checkout). /run
    is writable. The kernel's log is watched: a fault, warning or crash that was not announced with
    `expects` raises KernelComplaint, after the `run` that caused it or at the latest at the end.

    Parameters
    ----------
    configuration : str
        One of `CONFIGURATIONS`: "strict" (an IOMMU translates), "identity", "arm64".
    board_options : sequence of str, or None
        For ``.venv/bin/python -m sim.board``; None for a machine without a board.
    further_boards : sequence of sequence of str
        Options of more boards.
    kernel : Kernel, optional
        The kernel to boot, by default the one that the environment names, or Debian's.
    load : bool
        Whether to load the configuration's modules. Else call `load`, with parameters.
    modules : sequence of str
        Further modules of the kernel's own, such as vfio_pci, to load at boot.
    xdma : bool
        Whether to build the kernel's own driver for XDMA and its client, for `load`.
    files : mapping of str to Path
        Files of the host to copy to the guest as /run/guest/NAME.
    append : str
        Further kernel parameters.
    memory : int
        MiB of RAM.
    aperture : int
        MiB of memory of the simulated GPU, a power of two.
    processors : int
        With a single one there is no waiting for others: faster where several guests run.
    terminal : bool
        Connect this process's terminal to the guest's /dev/hvc0.

    Attributes
    ----------
    board : Board or None
        The first simulated board that it was started with.
    logs : Path
        Folder of the logs: console.log, qemu.log, board-0.log. Removed at the end unless an error
        referred to it.
    modules : dict of str to str
        Path in the guest of each module that was built.

    Raises
    ------
    GuestError
        If it does not start, or in any method; says why and where the logs are.
    """

    def __init__(
        self,
        configuration: str = "strict",
        *,
        board_options: Sequence[str] | None = (),
        further_boards: Sequence[Sequence[str]] = (),
        kernel: Kernel | None = None,
        load: bool = True,
        modules: Sequence[str] = (),
        xdma: bool = False,
        files: Mapping[str, Path] | None = None,
        append: str = "",
        memory: int = 1024,
        aperture: int = 64,
        processors: int = 2,
        terminal: bool = False,
    ):
        self.configuration = CONFIGURATIONS[configuration]
        self.board: Board | None = None
        #: all boards that were ever plugged in; those in use, by slot
        self._boards: list[Board] = []
        self._slots: dict[int, Board] = {}
        self._boots = 0
        self._marks = 0
        self._agent_lost = False
        self._logs_named = False
        self._resources = contextlib.ExitStack()
        _LOGS.mkdir(parents=True, exist_ok=True)
        self.logs = Path(tempfile.mkdtemp(dir=_LOGS, prefix=f"{configuration}-"))
        # Not in build/: the path of a UNIX socket is limited to about 100 bytes.
        self._sockets = Path(tempfile.mkdtemp(prefix="peerdma-"))
        self._resources.callback(shutil.rmtree, self._sockets, ignore_errors=True)
        self._log = KernelLog(self.logs / "console.log")
        try:
            kernel = kernel or chosen(self.configuration.architecture)
            built = {**build(kernel), **(build_xdma(kernel) if xdma else {})}
            self.modules = {name: f"/run/guest/{path.name}" for name, path in built.items()}
            brought = {path.name: path for path in built.values()}
            sizes = memory, aperture, processors
            plan = Plan(
                self.configuration,
                kernel,
                self._sockets,
                self._log.path,
                *sizes,
                terminal,
                append,
                tuple(modules),
            )
            if board_options is not None:
                self.board = self._new_board(board_options)
            for options in further_boards:
                self._new_board(options)
            self._start(plan, {**brought, **(files or {})})
            if load:
                self._load_all()
        except BaseException as error:
            self._resources.close()
            if isinstance(error, TreeError):
                raise GuestError(f"the guest cannot be made: {error}") from None
            raise

    def _start(self, plan: Plan, files: Mapping[str, Path]) -> None:
        listeners = [
            self._resources.enter_context(_listen(plan.socket(name)))
            for name in ("monitor", "agent")
        ]
        command, environment = plan.command(files, self._boards)
        streams = {"stdin": None, "stdout": None} if plan.terminal else {}
        self._qemu = process.start(command, self.logs / "qemu.log", environment, **streams)
        self._resources.callback(process.end, self._qemu, _END)
        monitor, agent = (self._accept(listener) for listener in listeners)
        with self._with_logs():
            self._monitor = Monitor(monitor)
        self._resources.callback(self._monitor.close)
        self._channel = Channel(agent)
        self._resources.callback(self._channel.close)
        self._wait_for_boot()

    def _new_board(self, options: Sequence[str], checkout: Path = ROOT) -> Board:
        free = [slot for slot in range(BOARD_SLOTS) if slot not in self._slots]
        if not free:
            raise GuestError(f"a guest has {BOARD_SLOTS} slots for boards, and all are in use")
        name = f"board-{len(self._boards)}"
        board = Board(name, self._sockets, self.logs, options, checkout)
        self._boards.append(board)
        self._slots[free[0]] = board
        self._resources.callback(board.end)
        return board

    def _accept(self, listener: socket.socket) -> socket.socket:
        deadline = time.monotonic() + _BOOT
        listener.settimeout(0.1)
        while True:
            self._require_alive()
            with contextlib.suppress(TimeoutError):
                return listener.accept()[0]
            if time.monotonic() > deadline:
                raise self._failed(f"QEMU did not start within {_BOOT:g} s")

    def _wait_for_boot(self) -> None:
        deadline = time.monotonic() + _BOOT
        self._boots += 1
        while self._channel.hellos < self._boots:
            self._channel.wait(0.1)
            self._require_alive()
            if time.monotonic() > deadline:
                raise self._failed(f"the guest did not start within {_BOOT:g} s")
        self._channel.environment(self._environment())

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Ends the guest; see `close`. After an error, without checking for others."""
        if kind is None:
            self.close()
        else:
            self._resources.close()

    def close(self) -> None:
        """Ends the guest; KernelComplaint or GuestError if anything went wrong in it.

        Closing again does nothing.
        """
        if not self._sockets.exists():
            return
        try:
            self.check()
            with self._with_logs():
                self._monitor.command("quit")
            self._qemu.wait(_END)
            for board in self._boards:
                board.check_end()
        finally:
            self._resources.close()
        if not self._logs_named:
            shutil.rmtree(self.logs)

    @property
    def qemu(self) -> int:
        """Id of QEMU's process."""
        return self._qemu.pid

    # Commands --------------------------------------------------------------------------------

    def start(self, command: str | Sequence[str]) -> Running:
        """Starts a shell command, or a program with arguments, and returns at once."""
        words = command if isinstance(command, str) else shlex.join(command)
        return Running(self._channel, "run", words, self._require_alive)

    def start_python(self, code: str) -> Running:
        """Starts Python code, in a process that has already imported numpy and peerdma."""
        return Running(self._channel, "python", textwrap.dedent(code), self._require_alive)

    def prepare(self, *modules: str) -> None:
        """Has modules imported for Python code that is started later; again takes no time."""
        self._channel.prepare(modules)

    def run(self, command: str | Sequence[str], timeout: float = 120.0) -> tuple[int, str]:
        """Runs a shell command, or a program with arguments, as root; (exit status, output).

        The exit status is negative if a signal ended it. After `timeout` seconds it and its
        children are killed, and GuestError is raised.
        """
        return self.finish(self.start(command), timeout)

    def check_run(self, command: str | Sequence[str], timeout: float = 120.0) -> str:
        """As `run`, but GuestError unless the exit status is 0; returns the output."""
        status, text = self.run(command, timeout)
        if status:
            words = command if isinstance(command, str) else shlex.join(command)
            raise self._failed(f"{words} ended with exit status {status}. Its output:\n{text}")
        return text

    def python(self, code: str, timeout: float = 120.0) -> str:
        """Runs Python code as `start_python` does; returns its output. GuestError if it raises."""
        status, text = self.finish(self.start_python(code), timeout)
        if status:
            raise self._failed(f"Python code ended with exit status {status}. Its output:\n{text}")
        return text

    def finish(self, running: Running, timeout: float | None = 120.0) -> tuple[int, str]:
        """Waits for the end of a command, and checks the kernel's log; otherwise as `run`."""
        try:
            result = running.wait(timeout)
        except Overdue as error:
            raise self._failed(str(error)) from None
        self.check()
        return result

    def path(self, path: Path) -> str:
        """The guest's path of a file of the checkout."""
        if self.configuration.architecture == "amd64":
            return str(path)
        return str(Path(CHECKOUT, path.relative_to(ROOT)))

    def _environment(self) -> dict[str, str]:
        root = self.path(ROOT)
        python = (
            Path(sys.executable).parent
            if self.configuration.architecture == "amd64"
            else "/usr/bin"
        )
        return {
            "PATH": f"{python}:{_PATH}",
            "PYTHONPATH": f"{root}/host:{root}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "HOME": "/run",
            "TMPDIR": "/run/tmp",
            "LC_ALL": "C.UTF-8",
        }

    # Modules and devices ---------------------------------------------------------------------

    def load(self, module: str, parameters: str = "") -> None:
        """Loads a module that was built for this guest."""
        self.check_run(f"insmod {self.modules[module]} {parameters}")

    def unload(self, module: str) -> None:
        """Unloads a module."""
        self.check_run(f"rmmod {module}")

    def _load_all(self) -> None:
        for name in self.configuration.modules:
            self.load(name)

    def plug(self, options: Sequence[str] = (), checkout: Path = ROOT) -> Board:
        """Hot-plugs a further board, with the gateware of a checkout."""
        board = self._new_board(options, checkout)
        with self._with_logs():
            self._monitor.command("device_add", **board_device(board, self._slot(board)))
        return board

    def _slot(self, board: Board) -> int:
        return next(slot for slot, there in self._slots.items() if there is board)

    def unplug(self, board: Board) -> None:
        """Hot-unplugs a board; returns when the guest has released it.

        QEMU exits if the board has MSI-X: give it the option ``--no-msix``.
        """
        slot = self._slot(board)
        name = f"board{slot}"
        with self._with_logs():
            self._monitor.command("device_del", id=name)
            self._monitor.wait_for("DEVICE_DELETED", _GONE, device=name)
        del self._slots[slot]

    def report_error(self, board: Board, error: str) -> None:
        """Makes the port above a board report a link error, by its name in QEMU's
        pcie_aer_inject_error: "COMP_TIME" is not fatal, "DLP" is.
        """
        line = f"pcie_aer_inject_error slot{self._slot(board)} {error}"
        self._monitor.command("human-monitor-command", **{"command-line": line})

    def reboot(self, *, load: bool = True) -> None:
        """Reboots the guest by the system call, so drivers shut their devices down first."""
        self.check()
        self.start(["python3", "-c", _RESTART])
        self._wait_for_boot()
        self.check()
        if load:
            self._load_all()

    # The kernel's log ------------------------------------------------------------------------

    def lose_agent(self) -> None:
        """Call it before what may cut the agent off: from now on the log is read without its help.

        What is started then may not report its output or end, other than by the kernel's log. Lines
        behind the last one that `wait_for` has returned may be missed.
        """
        self.check()
        self._agent_lost = True

    def mark(self) -> int:
        """The number of lines that the kernel has logged up to now."""
        self._sync()
        return len(self._log.lines)

    def messages(self, since: int = 0) -> list[str]:
        """The lines that the kernel logged since a `mark`, complete up to now."""
        self._sync()
        return self._log.lines[since:]

    def wait_for(self, pattern: str, since: int = 0, timeout: float = 30.0) -> str:
        """Waits for a line in the kernel's log; GuestError if it does not come."""
        deadline = time.monotonic() + timeout
        while True:
            lines = self.messages(since)
            found = next((line for line in lines if re.search(pattern, line)), None)
            if found is not None:
                return found
            if time.monotonic() > deadline:
                said = "\n".join(lines[-20:])
                raise self._failed(f"the kernel did not log {pattern!r}, but:\n{said}")
            time.sleep(0.05)

    @contextlib.contextmanager
    def expects(self, pattern: str) -> Iterator[None]:
        """Inside the ``with`` block the kernel has to complain, in lines that match `pattern`."""
        self.check()
        since = self.mark()
        self._log.announced.append(re.compile(pattern))
        try:
            yield
            self.wait_for(pattern, since, _ANNOUNCED)
            self._sync()
        finally:
            self._log.announced.pop()
        self.check()

    def check(self) -> None:
        """KernelComplaint if the kernel logged a complaint that was not expected."""
        self._sync()
        if complaints := self._log.take_complaints():
            self._logs_named = True
            raise KernelComplaint(
                f"the guest's kernel complains:\n{complaints}\nThe whole log is {self._log.path}"
            )

    def _sync(self) -> None:
        """Reads all that the kernel has logged so far."""
        if self._agent_lost:
            self._require_alive()
            return
        self._marks += 1
        mark = f"guest: mark {self._marks}"
        self._channel.log(mark)
        deadline = time.monotonic() + _LOG
        while self._log.mark != mark:
            self._require_alive()
            if time.monotonic() > deadline:
                raise self._failed(f"the guest's kernel logged nothing for {_LOG:g} s: it hangs")
            time.sleep(0.002)

    # Failures --------------------------------------------------------------------------------

    def _require_alive(self) -> None:
        """GuestError if the guest has crashed, ended or rebooted."""
        if (status := self._qemu.poll()) is not None:
            raise self._failed(f"QEMU ended with exit status {status}")
        self._log.follow()
        channel = getattr(self, "_channel", None)
        awaited = self._boots - channel.hellos if channel else 1
        if self._log.panic:
            self._log.wait_for_panic(_PANIC)
            kind = BootError if awaited > 0 else GuestError
            raise self._failed(f"the guest's kernel panicked: {self._log.panic}", kind)
        if awaited < 0:
            raise self._failed("the guest rebooted by itself")

    @contextlib.contextmanager
    def _with_logs(self) -> Iterator[None]:
        """Adds boards' and logs' state to errors of the monitor."""
        try:
            yield
        except GuestError as error:
            raise self._failed(str(error)) from None

    def _failed(self, what: str, kind: type[GuestError] = GuestError) -> GuestError:
        self._logs_named = True
        complaints = self._log.complaints()
        boards = [f"{board.name}: {board.why_ended()}" for board in self._boards if not board.alive]
        return kind(
            "\n".join(
                [
                    what,
                    *boards,
                    "QEMU's last output:",
                    process.last_output(self.logs / "qemu.log"),
                    "The kernel's log:",
                    complaints or process.last_output(self._log.path),
                    f"All logs are in {self.logs}",
                ]
            )
        )


@contextlib.contextmanager
def _listen(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield listener
