# SPDX-License-Identifier: BSD-2-Clause
"""Boards that the kernel's vfio-pci has, without a driver of ours, behind an IOMMU that translates.

Tests in the guest are run by a user who has no privileges but the nodes of the boards' groups.
"""

from __future__ import annotations

import asyncio
import ctypes
import resource
import sys

import numpy as np
import pytest

import peerdma
from peerdma.identity import IDENTITIES
from peerdma.vfio_pci import device
from sim.system import Guest
from tests.system.vfio import addresses, is_master, opened

#: Two boards: one as it is, and one whose reads are never answered. A third is plugged in.
GUEST = {
    "configuration": "strict",
    "load": False,
    "board_options": ["--launch-queues", "2"],
    "modules": ("vfio_iommu_type1", "vfio_pci"),
    "further_boards": [["--fault", "hang@1", "--time-scale", "1"]],
}
HELPERS = "vfio"
HUNG = 1
pytestmark = [pytest.mark.system, pytest.mark.usefixtures("guest")]


def works(board: peerdma.Board, nbytes: int = 10_000, offset: int = 5) -> None:
    """A copy between arrays that share pages with others, both ends compared."""
    source = np.random.default_rng(1).integers(0, 256, nbytes + offset, np.uint8)
    target = np.zeros(nbytes + 100, np.uint8)
    with board.pin(source) as s, board.pin(target) as t:
        board.copy(s[offset:], t[50 : 50 + nbytes])
    assert (target[50:-50] == source[offset:]).all()
    assert not target[:50].any() and not target[-50:].any()


@pytest.mark.each_block
@pytest.mark.in_guest
@pytest.mark.parametrize(("interrupts", "kind"), [("auto", "MSIX"), ("msi", "MSI")])
def test_copies(interrupts: str, kind: str):
    with opened(interrupts=interrupts) as board:
        info = board.info()
        assert (info.interrupts, info.simulated) == (kind, True)
        assert IDENTITIES[info.identity].startswith("peerdma")
        assert is_master(addresses()[0])
        works(board)
        works(board, 300_001)
        words = np.arange(2000, dtype="u4")
        assert board.write(words, 64).path.to_board == "host memory"
        back = np.zeros_like(words)
        board.read(back, 64)
        assert (back == words).all()
        words.flags.writeable = False
        back[:] = 0
        with board.pin(words) as s, board.pin(back) as t:
            board.copy(s, t)
        assert (back == words).all()
        board.leds(5)
        assert board.leds() == 5


@pytest.mark.in_guest
def test_copies_with_a_level_interrupt_and_registers_by_the_kernel():
    """As on processors that do not keep stores in order."""
    device._ORDERED = False
    with opened(interrupts="intx") as board:
        assert board.info().interrupts == "INTX"
        works(board)


@pytest.mark.in_guest
def test_surfaces_are_filled_and_verified():
    with opened() as board, peerdma.gpu("emulated", memory="host") as gpu:
        source, target = (gpu.surface((64, 64), "u4") for _ in range(2))
        source.fill(seed=1)
        with board.pin(source) as s, board.pin(target) as t:
            board.copy(s, t)
        gpu.verify(target, seed=1)


@pytest.mark.in_guest
def test_memory_of_a_gpu_is_refused():
    with opened() as board, peerdma.gpu("emulated", memory="device") as gpu:
        with pytest.raises(peerdma.PinError, match="Load the driver"):
            board.pin(gpu.surface(4096))
        works(board)


@pytest.mark.each_block
@pytest.mark.in_guest
def test_jobs():
    """Many at once, one after the other, and awaited."""
    sources = [np.full(3000, number, np.uint8) for number in range(16)]
    targets = [np.zeros(3000, np.uint8) for _ in sources]

    async def copied(board: peerdma.Board, *pins: peerdma.Pin) -> None:
        await board.submit(*pins)

    with opened() as board:
        pins = [[board.pin(each) for each in pair] for pair in zip(sources, targets, strict=True)]
        jobs = [board.submit(*pair) for pair in pins]
        assert [job.result(60).bytes for job in jobs] == [3000] * 16
        assert all((s == t).all() for s, t in zip(sources, targets, strict=True))
        asyncio.run(copied(board, pins[0][0], pins[1][1]))
        assert not targets[1].any()


@pytest.mark.each_block
@pytest.mark.in_guest
def test_a_job_that_hangs_is_cancelled_or_late():
    a, b = np.ones(4096, np.uint8), np.zeros(4096, np.uint8)
    with opened(HUNG) as board:
        job = board.submit(board.pin(a), board.pin(b))
        assert not job.done()
        job.cancel()
        with pytest.raises(peerdma.Cancelled):
            job.result(60)
    with opened(HUNG, timeout=1) as board, pytest.raises(peerdma.Timeout, match="no interrupt"):
        board.write(a)


@pytest.mark.each_block
@pytest.mark.in_guest
def test_a_reset_while_jobs_run():
    """By VFIO_DEVICE_RESET, behind the library's back: it ends in its time what the reset met."""
    large = [np.ones(2 << 20, np.uint8) for _ in range(2)]
    source, target = np.arange(3000, dtype="u2"), np.zeros(3000, "u2")
    with opened(timeout=8) as board:
        met = board.submit(*map(board.pin, large))
        next_one = board.submit(board.pin(source), board.pin(target))
        assert board._backend._function.device.reset()  # type: ignore[attr-defined]
        with pytest.raises(peerdma.Timeout, match="no interrupt"):
            met.result(60)
        next_one.result(60)
        assert (target == source).all()
        works(board)


@pytest.mark.each_block
@pytest.mark.in_guest
def test_mailbox():
    with opened() as board, board.mailbox() as mailbox:
        mailbox.write("first", 7)
        mailbox.write("done", 9)
        stamps = mailbox.read()
        assert (stamps.first.value, stamps.done.value) == (7, 9)
        assert 0 < stamps.first.cycle < stamps.done.cycle
        works(board)


@pytest.mark.each_block
@pytest.mark.in_guest
def test_a_launch_queue_that_is_rung_by_its_page():
    """By stores of 8 bytes, as a GPU's: neither its ring nor its shadow tail is written."""
    source, target = (np.zeros(5000, np.uint8) for _ in range(2))
    with opened() as board, board.queue([board.prepare(source, target)], depth=8) as queue:
        device, memory = queue.device, queue._memory
        assert queue.doorbell == "page of registers"
        word = ctypes.c_uint64.from_address(device.doorbell)
        for number in range(1, 4):
            source[:] = number
            ticket = memory.drawn()
            after = ticket + 1
            memory._row["next"] = after
            entry = ticket >> 16 << 16 | device.slots[0]
            word.value = entry << 32 | device.generation << 16 | after & 0xFFFF
            queue.wait(ticket)
            assert (target == number).all()
        assert queue.stats().ignored == 0


@pytest.mark.in_guest
def test_arrays_in_one_page():
    """They have one virtual page, and a bus address each."""
    memory = np.arange(4096, dtype=np.uint8)
    with opened() as board:
        pins = [board.pin(memory[at : at + 512]) for at in range(0, 4096, 512)]
        board.copy(pins[0], pins[7])
        for pin in pins:
            pin.close()
        works(board)
    assert (memory[-512:] == memory[:512]).all()


@pytest.mark.in_guest
def test_the_limit_of_locked_memory():
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))
    with opened() as board:
        with pytest.raises(peerdma.PinError, match=r"1048576 bytes.*sudo prlimit --pid \d+"):
            board.pin(np.zeros(2 << 20, np.uint8))
        works(board)
        for _ in range(8):  # each is unlocked again
            works(board, 300_000)


@pytest.mark.in_guest
def test_one_program_at_a_time():
    with opened() as board:
        with pytest.raises(peerdma.BoardNotFound, match="another program uses the board"):
            opened()
        works(board)


_LEFT_OPEN = """
import sys
import numpy as np, peerdma
board = peerdma.open(sys.argv[1])
arrays = [np.ones(1 << 20, np.uint8) for _ in range(2)]
pins = [board.pin(each) for each in arrays]
job = board.submit(*pins)
print("leaving")
"""


def as_nobody(code: str) -> str:
    return f"from tests.system.vfio import *\nbecome_nobody()\n{code}"


def test_a_program_that_ends_without_closing(guest: Guest):
    """Its board loses the bus, and the next program has it."""
    name = guest.python(as_nobody("print('vfio:' + addresses()[0])")).strip()
    said = guest.check_run([sys.executable, "-c", _LEFT_OPEN, name])
    assert said == "leaving\n"
    guest.python(as_nobody("assert not is_master(addresses()[0]); opened().close()"))


def test_what_keeps_a_board_from_being_opened(guest: Guest):
    """Each error says what to run, and that helps."""
    guest.python("""
        import os, re, subprocess, pytest
        from peerdma.vfio_pci.place import Place
        from tests.system.vfio import *
        import_all()
        first = addresses()[0]
        place = Place(first)

        def refused(words):
            child = os.fork()
            if child:
                assert os.waitpid(child, 0)[1] == 0
                return
            os.setresuid(NOBODY, NOBODY, NOBODY)
            try:
                with pytest.raises(peerdma.BoardNotFound, match=words) as caught:
                    opened()
                print(caught.value)
            except BaseException as error:
                print(error)
                os._exit(1)
            os._exit(0)

        bind(first)
        os.chown(place.group_node, 0, 0)
        refused(f"sudo chown .USER {place.group_node}")
        (Path("/sys/bus/pci/devices") / first / "driver/unbind").write_text(first)
        refused("has no driver; VFIO needs it bound to vfio-pci. Run .sudo driverctl")
        with pytest.raises(peerdma.BoardNotFound) as caught:
            opened()
        command = re.search("or `sudo modprobe vfio-pci; (.*)`", str(caught.value))[1]
        subprocess.run(command.replace("sudo ", ""), shell=True, check=True)
        opened().close()
        with pytest.raises(peerdma.BoardNotFound, match="there is no PCI function 0000:7f:1f.7"):
            peerdma.open("vfio:7f:1f.7")
    """)


def test_a_board_without_a_way_to_reset_it(guest: Guest):
    """The engine's own reset is used, and said; the doctor warns."""
    found = guest.python("""
        import logging
        from tests.system.vfio import *
        from peerdma.cli.main import main
        logging.basicConfig()
        first = addresses()[0]
        bind(first)
        method = Path("/sys/bus/pci/devices", first, "reset_method")
        before = method.read_text()
        method.write_text("\\n")
        try:
            opened().close()
            main(["list"])
            main(["doctor", "--board", f"vfio:{first}"])
        finally:
            method.write_text(before.replace(" ", ","))
    """)
    assert "used the soft reset of its engine" in found
    assert "vfio:0000:" in found
    assert "no way to reset" in found
    assert "copy host memory: works" in found


#: Opens the board that was plugged in, and writes to it again and again.
_WRITES = """
import numpy as np, time
from tests.system.vfio import *
wait_for_boards(3)
become_nobody()
with opened(2) as board:
    idle = board.pin(np.zeros(4096, np.uint8))
    print("now", flush=True)
    try:
        for _ in range(1000):
            board.write(np.zeros(4096, np.uint8))
            time.sleep(0.05)
    except peerdma.BoardLost as error:
        print(error)
"""
#: The same, but does nothing until the board is gone.
_WAITS = _WRITES.replace("    try:\n", "    wait_until_lost(board)\n    try:\n")
#: With pages of registers mapped, which are stored to afterwards.
_MAPS = """
import ctypes
import numpy as np
from tests.system.vfio import *
wait_for_boards(3)
become_nobody()
with opened(2) as board:
    mailbox = board.mailbox()
    queue = board.queue([board.prepare(np.zeros(64, np.uint8), np.zeros(64, np.uint8))])
    doorbell = queue.device.doorbell
    assert doorbell
    print("now", flush=True)
    wait_until_lost(board)
    until(lambda: queue.stats().ended)
    ctypes.c_uint64.from_address(doorbell).value = 1
    ctypes.c_uint32.from_address(mailbox.address).value = 1
    mailbox.close()
    queue.close()
    try:
        board.write(np.zeros(64, np.uint8))
    except peerdma.BoardLost as error:
        print(error)
"""


@pytest.mark.parametrize("program", [_WRITES, _WAITS, _MAPS], ids=["busy", "idle", "mapped"])
def test_a_board_that_is_unplugged(guest: Guest, program: str):
    """The kernel waits until the program has given it back, which a thread does at once."""
    board = guest.plug(["--no-msix", "--launch-queues", "2"])
    job = guest.start_python(program)
    job.wait_for("now")
    guest.unplug(board)
    status, text = job.wait(120)
    assert status == 0 and "the system asked for it back" in text, text
