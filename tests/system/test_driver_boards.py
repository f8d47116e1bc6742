# SPDX-License-Identifier: BSD-2-Clause
"""Boards plugged in beside the first: PCIe blocks, interrupts, plain XDMA, faults; how they end.

Each is plugged in for its test and pulled afterwards. Those have no MSI-X: QEMU ends when one that
has is pulled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from peerdma.cli.main import main
from peerdma.trace.capture import read
from peerdma.trace.story import tell
from peerdma.trace.tlp import Kind
from sim.system import Guest
from tests.boards import options
from tests.system.picoevb import PAGE

pytestmark = pytest.mark.system
#: So that a test may use the registers of a board's user block.
GUEST = {"configuration": "identity", "append": "iomem=relaxed"}

_BEGIN = """
import errno, os, threading, time
from peerdma import uapi
from peerdma.uapi import BoardState, Interrupts, Ioctl, Op, Reason
from tests.system.picoevb import *
from pathlib import Path
def lines():
    return [x for x in Path("/proc/interrupts").read_text().splitlines() if x.endswith("peerdma")]
def interrupts():
    return sum(int(n) for x in lines() for n in x.split()[1:3])
"""


@contextlib.contextmanager
def plugged(guest: Guest, *options: str, pull: bool = True) -> Iterator:
    """A board, /dev/picoevb1, within."""
    since = guest.mark()
    board = guest.plug(["--no-msix", *options])
    try:
        guest.wait_for("/dev/picoevb1: ", since)
        yield board
    finally:
        if pull:
            guest.unplug(board)


def within(guest: Guest, code: str) -> str:
    """Runs code in the guest, with the names that tests there use."""
    return guest.python(_BEGIN + code)


_WORKS = """
source, destination = Buffer(3 * GPU_PAGE), Buffer(3 * GPU_PAGE, b"")
with Node(NODE) as node:
    info, before = node.info(), interrupts()
    assert (Interrupts(info.interrupts).name, info.vectors) == KIND, (info.interrupts, info.vectors)
    node.h2c(source.address, 0, 1000)
    node.c2h(0, destination.address, 1000)
    assert destination[:1000] == source[:1000]
    node.h2c2h(source.address, destination.address + 1, 100000)
    assert destination[1:100001] == source[:100000]
    node.load(node.pages(source), 20, 64)
    assert results(node.events(20)) == [(0, 0)] * 20
    assert interrupts() - before >= 20, lines()
    assert node.info().lost_interrupts == info.lost_interrupts
"""


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (("--msi", "0"), ("INTX", 1)),
        (("--msi", "1"), ("MSI", 1)),
        # No other guest has a board behind that block.
        (("--msi", "1", "--block", "ultrascale"), ("MSI", 1)),
    ],
)
def test_kinds_of_interrupt(guest: Guest, options: Sequence[str], kind: tuple[str, int]):
    with plugged(guest, *options):
        within(guest, f"NODE, KIND = '/dev/picoevb1', {kind!r}\n{_WORKS}")


def test_msix(guest: Guest):
    within(guest, f"NODE, KIND = '/dev/picoevb', ('MSIX', 2)\n{_WORKS}")


#: Those of test_driver_frames.py that neither need another board nor wait for seconds.
_FRAMES = (
    "records_are_off_behind_a_ring_and_a_new_one_begins_anew",
    "more_pieces_of_memory_than_credits_at_once",
    "frames_in_gpu_memory_that_is_taken_away",
    "a_ring_ends_with_its_file_and_its_process",
    "a_ring_keeps_its_channel_and_no_other",
)


def test_frames_behind_another_block(guest: Guest, tmp_path: Path):
    """They arrive as behind the first, and the board's capture tells of them."""
    capture, page = tmp_path / "frames.pcapng", tmp_path / "frames.html"
    with plugged(guest, *options("wide sensor"), "--trace", str(capture)) as board:
        within(
            guest,
            f"""
from tests.system import test_driver_frames
for name in {_FRAMES}:
    getattr(test_driver_frames, f"test_{{name}}")()
""",
        )
    assert board.end() == 0
    story = tell(read(capture))
    reads = [row for row in story.rows if row.tlp.kind == Kind.READ]
    assert {row.up for row in reads} == {False, True} and all(row.mate >= 0 for row in reads)
    # All that one of the tests has received.
    told = {row.label.partition(", ")[0] for row in story.rows}
    assert told >= {f"record of frame {number}: {PAGE + 8} bytes" for number in range(257)}
    assert main(["trace", str(capture), "-o", str(page)]) == 0
    assert page.read_text().startswith("<!doctype html>")


#: Has the function send interrupts, or none: then the watchdog sees later what has ended.
_MESSAGES = """
config = Path("/sys/bus/pci/devices") / address_of_board("picoevb1") / "config"
def capability(number):
    data = config.read_bytes()
    at = data[0x34]
    while data[at] != number:
        at = data[at + 1]
    return at
def enable(value):
    at = capability(5) + 2
    with config.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old & ~1 | value]))
"""


def test_lost_interrupts_are_found(guest: Guest):
    """The function is told to send none: the watchdog sees what has ended."""
    with plugged(guest):
        within(
            guest,
            _MESSAGES
            + """
memory = Buffer(PAGE)
with Node("/dev/picoevb1") as node:
    node.h2c(memory.address, 0, PAGE)
    before = node.info()
    enable(0)
    node.h2c(memory.address, 0, PAGE)
    node.c2h(0, memory.address, PAGE)
    enable(1)
    node.h2c(memory.address, 0, PAGE)
    after = node.info()
    assert after.lost_interrupts == before.lost_interrupts + 2, after.lost_interrupts
    assert (after.failures, after.timeouts) == (before.failures, before.timeouts)
""",
        )


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("ur@2", "unsupported request at address"),
        ("ca@2", "completer abort at address"),
        ("poison@2", "poisoned data at address"),
        ("drop@2", "no completion in time at address"),
    ],
)
def test_errors_of_the_board(guest: Guest, fault: str, words: str):
    """The transfer fails and says why; the next one works."""
    with plugged(guest, "--fault", fault):
        within(
            guest,
            f"""
source, destination = Buffer(PAGE), Buffer(PAGE, b"")
with Node("/dev/picoevb1") as node:
    with node.refused(errno.EIO, {words!r}):
        node.h2c(source.address, 0, PAGE)
    node.h2c2h(source.address, destination.address, PAGE)
    assert destination[:] == source[:]
    info = node.info()
    assert (info.failures, info.timeouts, info.generation) == (1, 0, 1)
""",
        )


@pytest.mark.parametrize("way", ["write", "copy", "queued"])
def test_jobs_wait_while_lost_reads_keep_the_room_for_completions(guest: Guest, way: str):
    """Only the transfer whose reads were lost fails. What comes then takes longer, and is right."""
    with plugged(guest, *(word for n in range(2, 6) for word in ("--fault", f"drop@{n}"))):
        code = f"""
source, destination = Buffer(4 * PAGE), Buffer(4 * PAGE, b"")
with Node("/dev/picoevb1") as node, Node("/dev/picoevb1") as other:
    with node.refused(errno.EIO, "no completion in time"):
        node.h2c(source.address, 0, PAGE)
    if {way!r} == "write":
        for at in range(0, 1024, 64):
            other.h2c(source.address + at, at, 64)
        other.c2h(0, destination.address, 1024)
        assert destination[:1024] == source[:1024]
    elif {way!r} == "copy":
        other.h2c2h(source.address, destination.address, 4 * PAGE)
        assert destination[:] == source[:]
    else:
        for each in (node, other):
            s, d = each.pages(source), each.pages(destination)
            for at in range(0, 4 * PAGE, PAGE):
                each.submit(Op.COPY, PAGE, src_handle=s, src_offset=at, dst_handle=d, dst_offset=at)
        for each in (node, other):
            assert results(each.events(4)) == [(0, 0)] * 4
        assert destination[:] == source[:]
    info = node.info()
    assert (info.failures, info.timeouts, info.generation) == (1, 0, 1)
"""
        guest.python(_BEGIN + code, 200)


def test_each_error_is_told_with_its_own_kind_and_place(guest: Guest):
    """The board keeps what it has captured of the first one until the driver has read that."""
    with plugged(guest, "--fault", "ur@2", "--fault", "ca@60"):
        within(
            guest,
            r"""
import re
memory, errors = Buffer(2 * PAGE), []
def failed(at):
    try:
        node.h2c(memory.address + at, 0, PAGE)
    except OSError:
        words = node.info().last_error.decode()
        errors.append(re.search(r": (.*) at address 0x(\w+)", words).groups())
        return True
with Node("/dev/picoevb1") as node:
    for at in (0, PAGE):
        until(lambda: failed(at))
(first, at), (second, then) = errors
assert (first, second) == ("unsupported request", "completer abort"), errors
assert at[:-3] != then[:-3], errors
""",
        )


@pytest.mark.parametrize("late", [False, True])
def test_each_direction_has_its_own_error(guest: Guest, late: bool):
    """Both fail at once, each in a job of its own. Without messages nobody looks for a while."""
    with plugged(guest, "--fault", "ur@30", "--fault", "discard@400"):
        within(
            guest,
            f"LATE = {late}"
            + _MESSAGES
            + r"""
import re
size, words = 15 * PAGE, {}
memory = Buffer(size)
def fail(name, node, job):
    try:
        job()
    except OSError as error:
        assert error.errno == errno.EIO, error
        words[name] = node.info().last_error.decode()
with Node("/dev/picoevb1") as into, Node("/dev/picoevb1") as out:
    enable(not LATE)
    threads = [
        threading.Thread(target=fail, args=(name, node, job))
        for name, node, job in (
            ("H2C", into, lambda: into.h2c(memory.address, 0, size)),
            ("C2H", out, lambda: out.c2h(0, memory.address, size)),
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    enable(1)
    assert re.search(": unsupported request at address 0x", words["H2C"]), words
    assert re.search(": write dropped by the PCIe block, status", words["C2H"]), words
    into.h2c(memory.address, 0, size)
    out.c2h(0, memory.address, size)
    assert out.info().failures == 2
""",
        )


@pytest.mark.parametrize("channel", [0, 1])
def test_short_chains_are_pushed(guest: Guest, channel: int):
    """The board's first read fails, and all that C2H reads are descriptors."""
    count = str(channel + 1)
    with plugged(guest, "--fault", "ur@1", "--h2c", count, "--c2h", count):
        within(
            guest,
            f"CHANNEL = {channel}"
            """
import ctypes, resource
# Memory is pinned in parts of an eighth of that; kernels before 5.16 start with 64 KiB.
resource.setrlimit(resource.RLIMIT_MEMLOCK, (16 * 8 * PAGE,) * 2)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.mmap.restype = ctypes.c_void_p
READ_WRITE, SHARED_FIXED = 3, 0x11
# One page of memory again and again, so that each needs a descriptor of its own.
memory, file = Buffer(8 * PAGE), os.memfd_create("page")
os.ftruncate(file, PAGE)
for at in range(memory.address, memory.address + len(memory), PAGE):
    assert libc.mmap(at, PAGE, READ_WRITE, SHARED_FIXED, file, 0) == at
with Node("/dev/picoevb1") as node:
    node.request(Ioctl.SET_CONTEXT, uapi.Context(channel=CHANNEL))
    for pages in range(1, 5):
        node.c2h(0, memory.address, pages * PAGE)
    with node.refused(errno.EIO, "unsupported request at address"):
        node.c2h(0, memory.address, 5 * PAGE)
    node.c2h(0, memory.address, 8 * PAGE)
    assert node.info().failures == 1
""",
        )


def test_a_pushed_descriptor_has_no_address(guest: Guest):
    """Somebody else writes to the window as well, which makes what is there invalid."""
    with plugged(guest):
        within(
            guest,
            """
import mmap
from peerdma.regs import H2C_PUSH_BASE
memory = Buffer(PAGE)
resource = Path("/sys/bus/pci/devices") / address_of_board("picoevb1") / "resource1"
def disturb():
    with resource.open("r+b") as file, mmap.mmap(file.fileno(), 0) as registers:
        window = memoryview(registers).cast("I")
        while True:
            window[H2C_PUSH_BASE // 4 + 3] = 0
def failed():
    node.submit(Op.H2C, 64, src_handle=handle)
    events[:] = node.events(1)
    return events[0].result
def refused():
    try:
        node.h2c(memory.address, 0, 64)
    except OSError as error:
        return error.errno == errno.EIO
with Node("/dev/picoevb1") as node:
    handle, events = node.pages(memory), []
    # A process, as a thread would share the interpreter's lock, and so seldom write in between.
    other = spawn(disturb)
    try:
        until(failed)
        (event,) = events
        assert (event.result, event.reason, event.address) == (-errno.EIO, Reason.ENGINE, 0)
        until(refused)
        assert "bad descriptor, pushed by the driver, status" in node.info().last_error.decode()
    finally:
        os.kill(other, signal.SIGKILL)
        assert ended(other) == -signal.SIGKILL
    node.h2c(memory.address, 0, 64)
""",
        )


def test_events_of_errors_have_the_place(guest: Guest):
    with plugged(guest, "--fault", "ur@2"):
        within(
            guest,
            """
with Node("/dev/picoevb1") as node:
    node.load(node.pages(Buffer(PAGE)), 1, PAGE)
    (event,) = node.events(1)
    assert (event.result, event.reason) == (-errno.EIO, Reason.ENGINE)
    assert event.status and event.address % PAGE < PAGE and event.address > 0
    assert event.bytes == 0
""",
        )


def test_bus_addresses_are_not_for_everybody(guest: Guest):
    """Without an IOMMU they are physical. What counts is who opened the node."""
    with plugged(guest, "--fault", "ur@2"):
        within(
            guest,
            """
memory = Buffer(PAGE)
with user(1000):
    node = Node("/dev/picoevb1")
with node:
    node.load(node.pages(memory), 1, PAGE)
    (event,) = node.events(1)
    assert (event.result, event.reason) == (-errno.EIO, Reason.ENGINE)
    assert event.status and event.address == 0
""",
        )
    with plugged(guest, "--fault", "ur@2"):
        within(
            guest,
            """
memory = Buffer(PAGE)
with user(1000):
    node = Node("/dev/picoevb1")
with node, node.refused(errno.EIO, "unsupported request, status 0x"):
    node.h2c(memory.address, 0, PAGE)
""",
        )


_COPIES = """
source, destination = Buffer(400000), Buffer(400000, b"")
def copies():
    for start, end, length in ((0, 0, 16384), (3, 5, 399990), (1, 0, 8191), (7, 3, 8193)):
        destination[:] = bytes(400000)
        other.h2c2h(source.address + start, destination.address + end, length)
        expected = bytes(end) + source[start:start + length]
        assert destination[:end + length] == expected, length
        assert not any(destination[end + length:])
with Node("/dev/picoevb1") as node, Node("/dev/picoevb1") as other:
"""


def test_an_image_of_ours_without_a_stream(guest: Guest):
    """Copies go through a part of card RAM that is kept for them, and change nothing else of it."""
    with plugged(guest, "--user", "none"):
        within(
            guest,
            _COPIES
            + """
    info = node.info()
    assert info.board_version and not info.stream_window
    assert (info.card_ram_size, info.staging_size) == (49152, 16384)
    assert node.request(Ioctl.CARD_INFO, uapi.CardInfo()).fpga_ram_size == 49152
    with node.refused(errno.EINVAL, "beyond the card RAM, which has 49152"):
        node.h2c(source.address, 49152, 1)
    node.h2c(source.address, 0, 49152)
    copies()
    node.c2h(0, destination.address, 49152)
    assert destination[:49152] == source[:49152]
""",
        )


def test_plain_xdma(guest: Guest):
    """NVIDIA's published design: all of card RAM is for programs, and copies go through its end."""
    identity = ("--ids", "10de:0001", "--subsystem", "10de:0001")
    with plugged(guest, "--plain", *identity):
        within(
            guest,
            _COPIES
            + """
    info = node.info()
    assert (info.board_version, info.stream_window, info.time_scale) == (0, 0, 1)
    assert (info.card_ram_size, info.staging_size) == (65536, 16384)
    assert not info.features & uapi.Feature.STREAM_COPY
    assert not info.features & uapi.Feature.MAILBOX
    assert node.request(Ioctl.CARD_INFO, uapi.CardInfo()).fpga_ram_size == 65536
    with node.refused(errno.EINVAL, "beyond the card RAM, which has 65536"):
        node.h2c(source.address, 65536, 1)
    with node.refused(errno.EOPNOTSUPP, "no mailbox page"):
        node.mailbox()
    # In pieces: with a time scale of 1 the simulation has seconds for each.
    pieces = range(0, 65536, 16384)
    for at in pieces:
        node.h2c(source.address + at, at, 16384)
    for at in pieces:
        node.c2h(at, destination.address + at, 16384)
    assert destination[:65536] == source[:65536]
    copies()
    for at in pieces:
        node.c2h(at, destination.address + at, 16384)
    assert destination[:49152] == source[:49152]
    assert destination[49152:65536] != source[49152:65536]
    s, d = node.pages(source), node.pages(destination)
    for at in range(0, 400000, 50000):
        node.submit(Op.COPY, 50000, src_handle=s, dst_handle=d, src_offset=at, dst_offset=at)
    assert results(node.events(8)) == [(0, 0)] * 8
    assert destination[:] == source[:]
    # Nothing but a reset of the function there is for it.
    node.request(Ioctl.RESET, uapi.Reset())
    assert (node.info().state, node.info().generation) == (BoardState.LIVE, 2)
    node.h2c2h(source.address, destination.address + 1, 1000)
    assert destination[1:1001] == source[:1000]
""",
        )


def test_a_stream_that_is_longer_than_what_is_pinned_at_a_time(guest: Guest):
    """Memory given by pointer is pinned piece by piece; the stream stays where it is."""
    with plugged(guest, "--user", "pattern"):
        within(
            guest,
            """
import mmap
from peerdma.testing.pattern import fill_bytes
from peerdma.regs import PATTERN_SOURCE
size = (8 << 20) + PAGE
target = Buffer(size, b"")
bar = Path("/sys/bus/pci/devices") / address_of_board("picoevb1") / "resource0"
with Node("/dev/picoevb1") as node, bar.open("r+b") as file:
    registers = memoryview(mmap.mmap(file.fileno(), PAGE)).cast("I")
    for name, value in (("seed", 5), ("frame_words", size // 4)):
        registers[PATTERN_SOURCE.address(name) // 4] = value
    node.c2h(STREAM, target.address, size)
    assert target[:] == fill_bytes(5, 0, size).tobytes()
    registers[PATTERN_SOURCE.address("frame_words") // 4] = 0
    node.request(Ioctl.RESET, uapi.Reset())
""",
        )


def test_two_boards_at_once(guest: Guest):
    with plugged(guest):
        within(
            guest,
            """
source = Buffer(GPU_PAGE)
with Node() as node, Node("/dev/picoevb1") as other:
    assert [x.info().index for x in (node, other)] == [0, 1]
    targets = [Buffer(GPU_PAGE, b"") for _ in range(2)]
    for board, target in zip((node, other), targets):
        board.submit(
            Op.COPY, GPU_PAGE, src_handle=board.pages(source), dst_handle=board.pages(target)
        )
    for board, target in zip((node, other), targets):
        assert results(board.events(1)) == [(0, 0)]
        assert target[:] == source[:]
""",
        )


_LOSES = """
import ctypes
outcome = []
memory = Buffer(PAGE)
def touches(at):  # by the kernel's hand, which says so instead of a signal
    with open("/dev/zero", "rb", buffering=0) as zero:
        return ctypes.CDLL(None).read(zero.fileno(), ctypes.c_void_p(at), 8) == 8
def attempt(what):
    try:
        what()
    except OSError as error:
        outcome.append(errno.errorcode[error.errno])
with Gpu() as gpu, Node("/dev/picoevb1") as node, Node("/dev/picoevb1") as other:
    # With card RAM for itself.
    own = node.request(Ioctl.SET_CONTEXT, uapi.Context(ram_length=PAGE)).ram_address
    with other.refused(errno.EACCES, "another open file has for itself"):
        other.h2c(memory.address, own, PAGE)
    handle = node.cuda(gpu.alloc(GPU_PAGE), GPU_PAGE)
    mailbox = node.mailbox()
    page = ctypes.addressof(ctypes.c_char.from_buffer(mailbox))
    assert touches(page)
    running = node.endless(handle)
    waiting = node.submit(Op.C2H, PAGE, dst_handle=handle)
    threads = [
        threading.Thread(target=attempt, args=(what,))
        for what in (
            lambda: other.c2h(0, memory.address, PAGE),
            lambda: os.read(other.fd, 64),
        )
    ]
    for thread in threads:
        thread.start()
    until(lambda: node.info().pinned_bytes == GPU_PAGE + PAGE)
    print("now", flush=True)
    for thread in threads:
        thread.join()
    assert outcome == ["ENODEV", "ENODEV"], outcome
    lost = (errno.ENODEV, Reason.LOST)
    assert results(node.events(2)) == [lost, lost]
    info = node.info()
    assert info.state == BoardState.DEAD
    until(lambda: not touches(page))
    assert (info.link_speed, info.link_width, info.max_payload, info.max_read_request) == (0,) * 4
    with node.refused(errno.ENODEV, "the board is gone"):
        node.load(handle, 1)
    for file in (node, other):
        file.refuses(errno.ENODEV, "the board is gone", Ioctl.SET_CONTEXT, uapi.Context())
    until(lambda: node.query(handle).state == uapi.SurfaceState.LOST or DIES)
    node.unpin(handle)
    assert gpu.counts()[1:3] == (0, 0)
"""


def test_a_board_that_dies(guest: Guest):
    """Its power fails: registers read as ones. Afterwards the dead one is pulled."""
    with plugged(guest) as board:
        job = guest.start(["python3", "-c", f"{_BEGIN}DIES = True\n{_LOSES}"])
        job.wait_for("now")
        board.kill()
        assert job.wait(120) == (0, "now\n")


def test_a_board_that_is_pulled(guest: Guest):
    with plugged(guest, pull=False) as board:
        job = guest.start(["python3", "-c", f"{_BEGIN}DIES = False\n{_LOSES}"])
        job.wait_for("now")
        guest.unplug(board)
        assert job.wait(120) == (0, "now\n")
    with plugged(guest):
        code = "node = Node('/dev/picoevb1'); info = node.request(Ioctl.CARD_INFO, uapi.CardInfo())"
        within(guest, f"{code}; assert info.fpga_ram_size == node.info().card_ram_size")


def test_a_dead_board_is_told_at_probe(guest: Guest):
    """It says which of the reasons for reading ones it may be."""
    with plugged(guest) as board:
        within(guest, '(DRIVER / "unbind").write_text(address_of_board("picoevb1"))')
        since = guest.mark()
        board.kill()
        within(
            guest,
            """
addresses = [x.name for x in Path("/sys/bus/pci/devices").iterdir()
             if (x / "vendor").read_text() == "0x10ee\\n" and not (x / "driver").exists()]
try:
    (DRIVER / "bind").write_text(addresses[0])
except OSError as error:
    assert error.errno == errno.ENODEV
else:
    raise AssertionError
""",
        )
        guest.wait_for("answers all reads with ones: it is not powered, its link", since)
