# SPDX-License-Identifier: BSD-2-Clause
"""The simulated board: serves a PCIe function over vfio-user at a socket.

In a checkout, the first start compiles the core, which takes a minute or two. Prints
``ready: PATH`` to standard output when a client can connect, and events to standard error.
Exit status: 0 normal end, 1 could not start, 2 wrong usage, 3 the core broke a PCIe rule.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import re
import signal
import socket
import stat
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from peerdma import regs
from peerdma.vfio_user.wire import GPU_MEMORY

from .config_space import EXPRESS, MSI, MSIX, ConfigSpace
from .link import parse, raw_mbps
from .loader import Model

__all__ = ["StartError", "main"]

#: PCIe blocks that there are models of.
_BLOCKS = ("series7", "ultrascale", "ultrascale-plus")
_UNLIMITED = "unlimited"
#: Cycles per second that a machine has to simulate for a board to keep its own time scale.
_CYCLES_PER_SECOND = 125_000
#: Milliseconds between checks for signals.
_SLICE_MS = 100
_LOG_ROOM = 1 << 16
#: Where drivers of Vulkan are described.
_VULKAN_FOLDERS = tuple(
    Path(folder, "vulkan/icd.d") for folder in ("/etc", "/usr/local/share", "/usr/share")
)

_NEGOTIATE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_uint,
    ctypes.POINTER(ctypes.c_char),
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_char),
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_uint64),
)


class StartError(Exception):
    """The board cannot start; the message says why and what to do."""


def _say(text: str) -> None:
    print(f"board: {text}", file=sys.stderr, flush=True)


# Options ------------------------------------------------------------------------------------


def _class_code(text: str) -> int:
    if not 0 <= (number := int(text, 0)) < 1 << 24:
        raise argparse.ArgumentTypeError(f"{text} does not fit into 24 bits")
    return number


def _ids(text: str) -> int:
    """The dword that both IDs are in."""
    if not (found := re.fullmatch("([0-9a-fA-F]{1,4}):([0-9a-fA-F]{1,4})", text)):
        raise argparse.ArgumentTypeError(f"{text!r} is not two IDs in hex, for example 10ee:7021")
    return int(found[2], 16) << 16 | int(found[1], 16)


def _link(text: str) -> tuple[int, int] | None:
    """Speed, as Link Status has it, and lanes; None if it is unlimited."""
    try:
        return None if text == _UNLIMITED else parse(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(f"{problem}, or it is {_UNLIMITED}") from None


def _natural(text: str) -> int:
    if (number := int(text, 0)) < 1:
        raise ValueError
    return number


def _timeout(text: str) -> int:
    if (number := int(text, 0)) not in regs.COMPLETION_TIMEOUTS_US:
        raise ValueError
    return number


def _nanoseconds(text: str) -> float:
    if not 0 <= (number := float(text)) <= 1e9:
        raise ValueError
    return number


def _fault(text: str) -> str:
    kind, _, number = text.partition("@")
    kinds = ("ur", "ca", "poison", "drop", "hang", "discard", "illegal")
    if kind not in kinds or not number.isdigit() or number == "0":
        raise argparse.ArgumentTypeError(f"{text!r} is not KIND@N, for example ur@3")
    return text


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--socket", metavar="PATH", required=True, help="UNIX socket to serve at")
    add("--once", action="store_true", help="end when the client disconnects")
    add("--ids", type=_ids, metavar="V:D", help="vendor:device, hex")
    add("--subsystem", type=_ids, metavar="V:D", help="the same")
    add("--class-code", type=_class_code, metavar="N", help="24 bits")
    add("--msi", type=int, choices=(0, 1, 2, 4, 8, 16, 32), help="MSI vectors, 0 for none")
    add("--msix", action=argparse.BooleanOptionalAction, default=True, help="MSI-X capability")
    add(
        "--block",
        choices=_BLOCKS,
        help="PCIe block of the board: the 7 series', with a link of Gen2 x1 (series7), or one "
        "with Gen3 x8, for which the core moves 256 bits a cycle",
    )
    add(
        "--link",
        type=_link,
        metavar="genGxL",
        default=(),
        help=f"generation and lanes, at most those of the block, or {_UNLIMITED} (the block's)",
    )
    add(
        "--rtt-ns",
        type=_nanoseconds,
        metavar="NS",
        default=1000.0,
        help="from read request to first data (1000)",
    )
    add("--rcb", type=int, choices=(64, 128), default=64, help="read completion boundary (64)")
    add(
        "--completion-size",
        type=int,
        choices=(64, 128, 256, 512),
        default=512,
        help="largest completion in bytes (512)",
    )
    add("--reorder", type=_natural, metavar="SEED", help="shuffle completions of different reads")
    add(
        "--fault",
        type=_fault,
        metavar="KIND@N",
        action="append",
        default=[],
        help="answer read request N of a client with ur, ca or poison, drop it (no answer), or "
        "hang (answer none from then on); discard: the PCIe block loses write request N; illegal: "
        "that one breaks a rule of PCIe, for tests of what has to notice it",
    )
    add(
        "--mailbox-page",
        action="store_true",
        help="offer the mailbox registers as a page of memory that a client can map, for a GPU to "
        "write (with QEMU, every register write then waits until it is done)",
    )
    add(
        "--doorbell-pages",
        action="store_true",
        help="offer the doorbells of launch queues in the same way; they are stored by 8 bytes",
    )
    core = parser.add_mutually_exclusive_group()
    core.add_argument("--user", metavar="NAME", help="user block, as for hw.build core (pass)")
    core.add_argument(
        "--plain",
        action="store_true",
        help="a plain XDMA core, such as NVIDIA's design: no user block, no extension block",
    )
    for direction in ("h2c", "c2h"):
        name = f"--{direction}"
        add(name, type=int, choices=range(1, 5), help=f"{direction.upper()} channels (1)")
    add(
        "--ram-size",
        type=_natural,
        metavar="BYTES",
        help="card RAM: a power of two, 4096 to 1048576 (65536); drivers of a plain XDMA core know "
        "no other size",
    )
    add(
        "--launch-queues",
        type=int,
        choices=range(regs.LAUNCH_QUEUES + 1),
        help="queues by which a GPU starts transfers itself (0)",
    )
    add(
        "--completion-timeout-us",
        type=_timeout,
        metavar="US",
        default=regs.COMPLETION_TIMEOUT_US,
        help="after how long, by its own time, a read without an answer has failed: "
        f"{regs.COMPLETION_TIMEOUTS_US[0]} to {regs.COMPLETION_TIMEOUTS_US[-1]} "
        f"({regs.COMPLETION_TIMEOUT_US})",
    )
    add(
        "--time-scale",
        type=_natural,
        metavar="N",
        help="times slower than real time, as reported to drivers (1000, or 2000 of a board with "
        "Gen3)",
    )
    add("--log-tlps", type=Path, metavar="FILE", help="write a line per TLP")
    add(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write a capture (pcapng) for `peerdma trace`, which makes a page to look at",
    )
    add("--waves", type=Path, metavar="FILE", help="write waveforms, an FST file; slow")
    return parser


def _changed(space: ConfigSpace, arguments: argparse.Namespace) -> ConfigSpace:
    """The model's configuration space with the changes that the options ask for."""
    express, msi = space.capabilities[EXPRESS], space.capabilities[MSI]
    for offset, nbytes, value in (
        (0x00, 4, arguments.ids),
        (0x2C, 4, arguments.subsystem),
        (0x09, 3, arguments.class_code),
    ):
        if value is not None:
            space = space.changed(offset, nbytes, value)
    if arguments.link:
        speed, lanes = arguments.link
        space = space.changed(express + 0x12, 2, lanes << 4 | speed, mask=0x03FF)
    if arguments.rcb == 128:
        space = space.changed(express + 0x10, 1, 1 << 3, mask=1 << 3)
    if arguments.msi == 0:
        space = space.without(MSI)
    elif arguments.msi:
        space = space.changed(msi + 2, 1, (arguments.msi.bit_length() - 1) << 1, mask=0x0E)
    return space if arguments.msix else space.without(MSIX)


def _require_link(arguments: argparse.Namespace, space: ConfigSpace) -> None:
    """Has the link be what the model's block has, or StartError if the options want more."""
    speed, lanes = space.fastest
    if arguments.link == ():
        arguments.link = speed, lanes
    if arguments.link and not (arguments.link[0] <= speed and arguments.link[1] <= lanes):
        wanted = "gen{}x{}".format(*arguments.link)
        raise StartError(f"the link of this board's PCIe block is gen{speed}x{lanes}, not {wanted}")


def _native_options(arguments: argparse.Namespace, model: Model) -> str:
    """The options of `sim/board/native/options.h` as its "key=value" lines."""
    speed, lanes = arguments.link or model.space.fastest
    pairs = [
        *model.block.items(),
        ("clock_khz", model.clock_khz),
        ("link_mbps", raw_mbps(speed, lanes) if arguments.link else 0),
        ("link_speed", speed),
        ("rtt_ns", arguments.rtt_ns),
        ("completion_boundary", arguments.rcb),
        ("completion_bytes", arguments.completion_size),
        ("time_scale", arguments.time_scale or model.clock_khz * 1000 // _CYCLES_PER_SECOND),
        ("completion_timeout_us", arguments.completion_timeout_us),
        ("once", int(arguments.once)),
        *(("fault", fault) for fault in arguments.fault),
    ]
    pairs.append(("pages_bar", regs.BAR_USER[0]))
    if arguments.mailbox_page:
        words = (r.name for r in regs.MAILBOX.registers if r.access is regs.Access.RW)
        pairs += [("page_register32", regs.MAILBOX.address(name)) for name in words]
    if arguments.doorbell_pages:
        if not arguments.launch_queues:
            raise StartError(
                "--doorbell-pages is for a board with launch queues: add --launch-queues 2"
            )
        pages = range(arguments.launch_queues)
        pairs += [
            ("page_register64", regs.DOORBELL_BASE + page * regs.DOORBELL_STRIDE) for page in pages
        ]
    if arguments.reorder is not None:
        pairs.append(("reorder", arguments.reorder))
    files = (
        ("tlp_log", arguments.log_tlps),
        ("trace", arguments.trace),
        ("waves", arguments.waves),
    )
    pairs += [(key, path) for key, path in files if path]
    pairs += [("vulkan", library) for library in _vulkan_libraries()]
    return "".join(f"{key}={value}\n" for key, value in pairs)


def _vulkan_libraries() -> list[str]:
    """What may have Vulkan: its loader; and the drivers that the loader would find, without it.

    By the variable that the loader takes for this, else in the folders that packages use.
    """
    listed = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
    files = [Path(name) for name in listed.split(":")] if listed else []
    for folder in () if listed else _VULKAN_FOLDERS:
        files += sorted(folder.glob("*.json"))
    # NVIDIA's driver is in two libraries; the one without X windows may not be described.
    libraries = ["libvulkan.so.1", "libEGL_nvidia.so.0"]
    for file in files:
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            name = json.loads(file.read_bytes())["ICD"]["library_path"]
            # A name without a folder is the dynamic loader's to find, others are beside the file.
            libraries.append(str(file.parent / name) if "/" in name else name)
    return libraries


# Protocol version ---------------------------------------------------------------------------


def _capabilities(text: bytes) -> int:
    """The client's limit of bytes per DMA message, from its version data; ValueError if invalid."""
    found = json.loads(text) if text else {}
    offered = found.get("capabilities", {}) if isinstance(found, dict) else None
    if not isinstance(offered, dict):
        raise ValueError("capabilities are not an object")
    most = offered.get("max_data_xfer_size", 1 << 20)
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise ValueError(f"max_data_xfer_size is {most!r}")
    return most


@_NEGOTIATE
def _negotiate(major, minor, text, length, reply, room, most_data):
    if major != 0:
        _say(f"the client speaks vfio-user {major}.{minor}, this board 0.0")
        return -errno.EPROTONOSUPPORT
    try:
        most_data[0] = min(_capabilities(text[:length]), 1 << 20)
    except (ValueError, RecursionError) as problem:
        _say(f"the client's version data is invalid: {problem}")
        return -errno.EINVAL
    ours = {"max_msg_fds": 16, "max_data_xfer_size": 1 << 20, "write_multiple": True}
    ours[GPU_MEMORY] = True
    answer = json.dumps({"capabilities": ours}).encode()
    ctypes.memmove(reply, answer, len(answer))
    return len(answer)


# Socket -------------------------------------------------------------------------------------


def _remove_stale(path: str) -> None:
    """Removes a socket that no process serves any more; StartError if `path` is something else."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise StartError(f"{path} exists and is not a socket: choose another path")
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
                return
        raise StartError(f"{path} is served by a running board: end that one or choose another")


@contextmanager
def _listen(path: str) -> Iterator[socket.socket]:
    """A listening socket at `path`; removes the file at the end unless another replaced it."""
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    with listener:
        try:
            listener.bind(path)
        except OSError as problem:
            raise StartError(f"cannot serve at {path}: {problem.strerror or problem}") from None
        ours = os.stat(path)
        try:
            listener.setblocking(False)
            listener.listen()
            yield listener
        finally:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(path), ours):
                    os.unlink(path)


# Native board -------------------------------------------------------------------------------


class _Board:
    """A board of the native library; a context manager."""

    def __init__(self, model: Model, options: str, space: ConfigSpace, listener: int):
        self._native = model.load()
        self._native.board_open.restype = ctypes.c_void_p
        self._native.board_log.restype = ctypes.c_size_t
        self._native.board_errors.restype = ctypes.c_uint64
        self._text = ctypes.create_string_buffer(_LOG_ROOM)
        self._handle = ctypes.c_void_p(
            self._native.board_open(
                os.fsencode(options),
                space.image,
                space.writable,
                space.clearable,
                listener,
                _negotiate,
                self._text,
                ctypes.c_size_t(_LOG_ROOM),
            )
        )
        if not self._handle:
            raise StartError(os.fsdecode(self._text.value))

    def __enter__(self) -> _Board:
        return self

    def __exit__(self, *_: object) -> None:
        self._native.board_close(self._handle)

    def serve(self) -> bool:
        """Serves for a time slice and prints the log; False when the board is to end."""
        more = self._native.board_serve(self._handle, _SLICE_MS)
        n = self._native.board_log(self._handle, self._text, ctypes.c_size_t(_LOG_ROOM))
        for line in self._text.raw[:n].decode(errors="replace").splitlines():
            _say(line)
        return bool(more)

    @property
    def errors(self) -> int:
        """Number of PCIe rules that the core broke."""
        return self._native.board_errors(self._handle)


def _serve(board: _Board, ended: Callable[[], bool]) -> int:
    """Serves until the board or the program has to end; 1 if something went wrong, else 0."""
    try:
        while not ended() and board.serve():
            pass
    except Exception:
        with suppress(OSError):
            traceback.print_exc()
        return 1
    return 0


def main(make: Callable[..., Model], program: str, argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit status: 3 if the core broke a rule of PCIe.

    However it ends: by its client, by a signal, or by an error of its own, which is 1 otherwise.

    Parameters
    ----------
    make : callable
        Makes a board's model: ``make(user, plain=..., waves=..., block=..., h2c=..., c2h=...,
        ram_size=..., launch_queues=...)``, None where the command does not say; raises StartError
        on failure.
    program : str
        What starts it, for its help.
    """
    arguments = _parser(program).parse_args(argv)
    ended = serving = False

    def end(*_: object) -> None:
        nonlocal ended
        ended = True
        if not serving:
            sys.exit(0)

    signals = signal.SIGTERM, signal.SIGHUP, signal.SIGINT
    for number in signals:
        signal.signal(number, end)
    try:
        model = make(
            arguments.user,
            plain=arguments.plain,
            waves=arguments.waves is not None,
            block=arguments.block,
            h2c=arguments.h2c,
            c2h=arguments.c2h,
            ram_size=arguments.ram_size,
            launch_queues=arguments.launch_queues,
        )
        _require_link(arguments, model.space)
        options = _native_options(arguments, model)
        space = _changed(model.space, arguments)
        with (
            _listen(arguments.socket) as listener,
            _Board(model, options, space, listener.fileno()) as board,
        ):
            # From here on nothing may end the program before the rules that were broken are known.
            serving = True
            print(f"ready: {arguments.socket}", flush=True)
            status = _serve(board, lambda: ended)
            return 3 if board.errors else status
    except StartError as problem:
        _say(str(problem))
        return 1
    finally:
        # Python gives signals their default back when it ends, which is another exit status.
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
