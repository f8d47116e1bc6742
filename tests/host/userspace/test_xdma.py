# SPDX-License-Identifier: BSD-2-Clause
"""The user-space driver against registers that answer as scripted: what a good board never does."""

import numpy as np
import pytest

import peerdma
from peerdma.memory.scatter import ScatterList
from peerdma.regs import (
    BAR_DMA,
    C2H_CAPTURE_BASE,
    C2H_CHANNEL_BASE,
    C2H_PUSH_BASE,
    CAPTURE,
    CHANNEL,
    DESC_COMPLETED,
    DESC_STOP,
    DESCRIPTOR,
    EXTENSION,
    EXTENSION_MAGIC,
    EXTENSION_VERSION,
    H2C_PUSH_BASE,
    IRQ,
    PUSH_DESCRIPTORS,
    SGDMA,
    Capability,
    ErrorKind,
    Status,
    identifier,
)
from peerdma.userspace.xdma import Direction, Xdma

RING_ADDRESS = 0x1000
GOOD = Status.DESCRIPTOR_STOPPED | Status.DESCRIPTOR_COMPLETED
VERSION = EXTENSION["version"]


class Registers:
    """A board that is its registers: a started channel ends at once, as `outcome` says."""

    def __init__(self):
        self.values = {
            CHANNEL.address("identifier"): identifier(0),
            CHANNEL.address("identifier", base=C2H_CHANNEL_BASE): identifier(1),
            EXTENSION.address("magic"): EXTENSION_MAGIC,
            EXTENSION.address("version"): EXTENSION["version"].reset,
            EXTENSION.address("card_ram_size"): 65536,
            EXTENSION.address("link"): 0x0002_0012,
            EXTENSION.address("clock_khz"): 125000,
            EXTENSION.address("time_scale"): 1,
        }
        self.outcome = int(GOOD)
        self.descriptors_done = 1
        self.writes: list[tuple[int, int]] = []
        self.interrupts = 0
        self.lost = False
        self.lost_writes = None

    @property
    def device(self):
        return self

    def take_lost_writes(self):
        taken, self.lost_writes = self.lost_writes, None
        return taken

    def set(self, block, name, value, base=None):
        self.values[block.address(name, base=base)] = value

    def read32(self, bar, offset):
        assert bar == BAR_DMA[0]
        value = self.values.get(offset, 0)
        if offset & 0xEFFF == CHANNEL.address("status_rc"):
            offset -= CHANNEL["status_rc"].offset - CHANNEL["status"].offset
            value = self.values.get(offset, 0)
            self.values[offset] = value & Status.BUSY
        return value

    def write32(self, bar, offset, value):
        assert bar == BAR_DMA[0]
        self.writes.append((offset, value))
        if offset & 0xEFFF == CHANNEL.address("control") and value & 1:
            base = offset & 0x1000
            self.set(CHANNEL, "status", self.outcome, base)
            self.set(CHANNEL, "completed_count", self.descriptors_done, base)
            self.set(CHANNEL, "perf_cycles_lo", 0xFFFF_FFFF, base)
            self.set(CHANNEL, "perf_cycles_hi", 0x1_0002, base)
            self.interrupts += 1

    def wait_interrupt(self, timeout):
        self.interrupts -= 1
        return self.interrupts >= 0

    def interrupt_done(self):
        pass


@pytest.fixture
def registers():
    return Registers()


def driver(registers: Registers, timeout: float | None = None, descriptors: int = 16) -> Xdma:
    return Xdma(registers, np.zeros(descriptors, DESCRIPTOR), RING_ADDRESS, timeout)


ONE = ScatterList([0x1_0000_0000], [64])


def test_a_transfer_starts_and_stops_the_channel_and_counts_its_cycles(registers):
    xdma = driver(registers)
    registers.writes.clear()
    assert xdma.transfer(Direction.C2H, ONE, 16) == 2 << 32 | 0xFFFF_FFFF
    offsets = [offset for offset, _ in registers.writes]
    written = dict(registers.writes)
    assert written[SGDMA.address("descriptor_lo", base=0x5000)] == RING_ADDRESS
    assert written[SGDMA.address("descriptor_adjacent", base=0x5000)] == 0
    assert (IRQ.address("channel_enable_w1s"), 0b10) in registers.writes
    control = CHANNEL.address("control", base=C2H_CHANNEL_BASE)
    assert [value for offset, value in registers.writes if offset == control] == [0x00FF_FE7F, 0]
    # Everything is set up before Run, and nothing of the other channel is touched.
    assert offsets.index(control) > offsets.index(CHANNEL.address("perf_control", base=0x1000))
    assert not any(offset < 0x1000 for offset in offsets)


def test_a_long_list_takes_several_chains(registers):
    xdma = driver(registers)
    registers.descriptors_done = 8  # each direction has half of the ring
    with pytest.raises(peerdma.TransferError, match="after 8 of 4 descriptors"):
        xdma.transfer(Direction.H2C, ScatterList(range(0, 2000, 100), [1] * 20), 0)
    assert registers.interrupts == 0


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("count", [1, PUSH_DESCRIPTORS, PUSH_DESCRIPTORS + 1])
def test_a_short_chain_is_pushed_where_the_board_takes_it(registers, direction, count):
    """All its dwords in order before Run, and nothing in the ring; a longer one is not."""
    registers.set(EXTENSION, "capabilities", Capability.PUSH)
    registers.descriptors_done = count
    xdma = driver(registers)
    registers.writes.clear()
    bus = [0x1_0000_0000 * n for n in range(1, count + 1)]
    xdma.transfer(direction, ScatterList(bus, [64] * count), 16)
    base, sgdma = (H2C_PUSH_BASE, 0x4000) if direction is Direction.H2C else (C2H_PUSH_BASE, 0x5000)
    offsets = [offset for offset, _ in registers.writes]
    descriptor_lo = SGDMA.address("descriptor_lo", base=sgdma)
    if count > PUSH_DESCRIPTORS:
        assert descriptor_lo in offsets
        assert not any(offset >= H2C_PUSH_BASE for offset in offsets)
        return
    dwords = count * DESCRIPTOR.itemsize // 4
    assert offsets[:dwords] == [base + 4 * n for n in range(dwords)]
    assert descriptor_lo not in offsets
    assert not any(xdma.ring_bytes)
    values = np.array([value for _, value in registers.writes[:dwords]], "<u4")
    found = values.view(DESCRIPTOR)
    assert found["source" if direction is Direction.H2C else "destination"].tolist() == bus
    ends = (found["control"] & (DESC_STOP | DESC_COMPLETED)).tolist()
    assert ends == [0] * (count - 1) + [DESC_STOP | DESC_COMPLETED]


def test_an_error_of_a_pushed_descriptor_names_it(registers):
    registers.set(EXTENSION, "capabilities", Capability.PUSH)
    xdma = driver(registers)
    registers.outcome = int(Status.MAGIC_STOPPED | Status.DESCRIPTOR_STOPPED)
    info = EXTENSION["error_info"]
    kind = info.field("kind").put(ErrorKind.MAGIC)
    registers.set(EXTENSION, "error_info", kind | info.field("descriptor").mask)
    registers.set(EXTENSION, "error_address_lo", 2 * DESCRIPTOR.itemsize | 1)
    with pytest.raises(peerdma.TransferError, match="first error magic in pushed descriptor 2\\. "):
        xdma.transfer(Direction.H2C, ONE, 0)


def test_no_engine(registers):
    registers.values.clear()
    with pytest.raises(peerdma.BoardNotFound, match=r"found 0 H2C and 0 C2H .* reads 0x00000000"):
        driver(registers)


def test_one_direction_only(registers):
    registers.set(CHANNEL, "identifier", 0, C2H_CHANNEL_BASE)
    with pytest.raises(peerdma.BoardNotFound, match="found 1 H2C and 0 C2H"):
        driver(registers)


def test_an_older_core_is_an_engine_too(registers):
    registers.set(CHANNEL, "identifier", identifier(0) & ~0xFF | 2)
    assert driver(registers).engine.channel_counts == (1, 1)


@pytest.mark.parametrize("major", [EXTENSION_VERSION[0] - 1, EXTENSION_VERSION[0] + 1])
def test_another_major_version_is_refused_by_naming_both(registers, major):
    registers.set(EXTENSION, "version", VERSION.field("major").put(major))
    known = EXTENSION_VERSION[0]
    with pytest.raises(peerdma.VersionMismatch, match=rf"version {major}\.0, this .* {known}\.x"):
        driver(registers)


def test_a_newer_minor_version_only_adds(registers):
    newer = EXTENSION["version"].reset + 1
    registers.set(EXTENSION, "version", newer)
    extension = driver(registers).extension
    assert extension is not None
    assert extension.version == (EXTENSION_VERSION[0], EXTENSION_VERSION[1] + 1)


def test_a_plain_core_is_driven_by_the_subset(registers):
    for offset in list(registers.values):
        if offset >= EXTENSION.base:
            del registers.values[offset]
    xdma = driver(registers)
    assert (xdma.extension, xdma.card_ram_size) == (None, 65536)
    xdma.transfer(Direction.H2C, ONE, 0)
    registers.outcome = Status.MAGIC_STOPPED
    with pytest.raises(peerdma.TransferError, match="MAGIC_STOPPED") as caught:
        xdma.transfer(Direction.H2C, ONE, 0)
    assert (caught.value.kind, caught.value.address) == (None, None)
    assert not any(offset >= EXTENSION.base for offset, _ in registers.writes)


def test_an_error_names_what_the_board_captured_and_stops(registers):
    xdma = driver(registers)
    registers.outcome = Status.DESC_UNSUPPORTED | Status.BUSY
    registers.descriptors_done = 0
    info = EXTENSION["error_info"]
    kind = info.field("kind").put(ErrorKind.UNSUPPORTED_REQUEST)
    registers.set(EXTENSION, "error_info", kind | info.field("descriptor").mask)
    registers.set(EXTENSION, "error_address_lo", 0x89AB_CDE0)
    registers.set(EXTENSION, "error_address_hi", 0x12)
    # The engine goes idle only once it has been reset.
    write32 = registers.write32

    def reset(bar, offset, value):
        write32(bar, offset, value)
        if offset == EXTENSION.address("soft_reset"):
            registers.set(CHANNEL, "status", 0)

    registers.write32 = reset
    registers.writes.clear()
    message = (
        "H2C transfer failed after 0 of 1 descriptors: DESC_UNSUPPORTED; first error unsupported "
        "request at address 0x1289abcde0, fetching a descriptor"
    )
    with pytest.raises(peerdma.TransferError, match=message) as caught:
        xdma.transfer(Direction.H2C, ONE, 0)
    error = caught.value
    assert error.status == Status.DESC_UNSUPPORTED | Status.BUSY
    assert (error.kind, error.address) == (ErrorKind.UNSUPPORTED_REQUEST, 0x12_89AB_CDE0)
    assert (EXTENSION.address("error_clear"), 1) in registers.writes
    assert (EXTENSION.address("soft_reset"), 1) in registers.writes
    assert (CHANNEL.address("control"), 0) in registers.writes
    registers.outcome, registers.descriptors_done = int(GOOD), 1
    xdma.transfer(Direction.H2C, ONE, 0)


def capture(registers, kind, *, channel=0, c2h=0, own=False):
    """Has the board hold an error of a channel: in its own capture, or in that of an older core."""
    block, base = EXTENSION, None
    if own:
        block, base = CAPTURE, C2H_CAPTURE_BASE if c2h else CAPTURE.base
    fields = {"kind": kind, "channel": channel, "c2h": c2h}
    info = block["error_info"]
    value = sum(info.field(name).put(value) for name, value in fields.items())
    registers.set(block, "error_info", value, base)
    registers.set(block, "error_address_lo", 0x1000 * (1 + c2h), base)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize(("channel", "c2h"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_an_older_core_explains_only_the_channel_that_it_names(registers, direction, channel, c2h):
    """Another's error is neither reported as its, nor cleared: it may still be asked for."""
    xdma = driver(registers)
    registers.outcome = int(Status.READ_UNSUPPORTED | Status.DESCRIPTOR_STOPPED)
    capture(registers, ErrorKind.POISONED, channel=channel, c2h=c2h)
    registers.writes.clear()
    mine = channel == 0 and c2h == (direction is Direction.C2H)
    with pytest.raises(peerdma.TransferError) as caught:
        xdma.transfer(direction, ONE, 0)
    found = (ErrorKind.POISONED, 0x1000 * (1 + c2h)) if mine else (None, None)
    assert (caught.value.kind, caught.value.address) == found
    assert ("first error poisoned" in str(caught.value)) == mine
    assert ((EXTENSION.address("error_clear"), 1) in registers.writes) == mine


@pytest.mark.parametrize("direction", Direction)
def test_an_older_core_keeps_nothing_of_a_run_that_was_stopped(registers, direction):
    """What it met on its end would explain the next run's error; what another met stays."""
    xdma = driver(registers)
    for c2h in (0, 1):
        capture(registers, ErrorKind.POISONED, c2h=c2h)
        registers.writes.clear()
        xdma.engine.stop([direction])
        mine = c2h == (direction is Direction.C2H)
        assert ((EXTENSION.address("error_clear"), 1) in registers.writes) == mine


@pytest.mark.parametrize("direction", Direction)
def test_each_channel_has_an_error_of_its_own_that_needs_no_clearing(registers, direction):
    registers.set(EXTENSION, "capabilities", Capability.CAPTURE)
    xdma = driver(registers)
    registers.outcome = int(Status.READ_UNSUPPORTED | Status.DESCRIPTOR_STOPPED)
    capture(registers, ErrorKind.MAGIC, c2h=direction is Direction.C2H)
    capture(registers, ErrorKind.POISONED, c2h=0, own=True)
    capture(registers, ErrorKind.WRITE_DROPPED, c2h=1, own=True)
    registers.writes.clear()
    with pytest.raises(peerdma.TransferError) as caught:
        xdma.transfer(direction, ONE, 0)
    found = (caught.value.kind, caught.value.address)
    assert (
        found
        == {
            Direction.H2C: (ErrorKind.POISONED, 0x1000),
            Direction.C2H: (ErrorKind.WRITE_DROPPED, 0x2000),
        }[direction]
    )
    assert not any(offset == EXTENSION.address("error_clear") for offset, _ in registers.writes)


def test_an_unknown_error_kind_is_shown_as_its_number(registers):
    xdma = driver(registers)
    registers.outcome = Status.READ_ABORT
    registers.set(EXTENSION, "error_info", 15)
    with pytest.raises(peerdma.TransferError, match="READ_ABORT; first error 15 at address 0x0"):
        xdma.transfer(Direction.H2C, ONE, 0)


def test_a_count_that_is_short_is_no_success(registers):
    xdma = driver(registers)
    registers.descriptors_done = 0
    with pytest.raises(peerdma.TransferError, match="after 0 of 1 descriptors: unexpected"):
        xdma.transfer(Direction.H2C, ONE, 0)


def test_no_interrupt_is_a_timeout_that_tells_the_state(registers):
    xdma = driver(registers, timeout=0.25)
    registers.interrupts = -10
    message = r"H2C transfer of 64 bytes: no interrupt within 0\.25 s; status .*, 1 descriptors"
    with pytest.raises(peerdma.Timeout, match=message):
        xdma.transfer(Direction.H2C, ONE, 0)
    assert registers.writes[-1] == (CHANNEL.address("control"), 0)
    registers.interrupts = 0
    xdma.transfer(Direction.H2C, ONE, 0)


def test_timeouts_grow_with_size_and_time_scale(registers):
    limits = []
    registers.wait_interrupt = lambda timeout: limits.append(timeout) is not None
    for scale in (1, 1000):
        registers.set(EXTENSION, "time_scale", scale)
        xdma = driver(registers)
        for nbytes in (64, 1 << 20):
            with pytest.raises(peerdma.Timeout):
                xdma.transfer(Direction.H2C, ScatterList([0], [nbytes]), 0)
    assert limits == pytest.approx([10, 10, 100, 1149], abs=1)


def test_an_interrupt_without_a_cause_is_not_the_end(registers):
    xdma = driver(registers, timeout=5)
    done = []
    registers.interrupt_done = lambda: done.append(1)
    outcomes = [0, 0, int(GOOD)]

    def wait(timeout):
        registers.set(CHANNEL, "status", outcomes.pop(0))
        return True

    registers.wait_interrupt = wait
    xdma.transfer(Direction.H2C, ONE, 0)
    assert len(done) == 3


def test_a_channel_that_does_not_stop_ends_all_transfers(registers):
    xdma = driver(registers)
    registers.outcome = Status.BUSY | Status.MAGIC_STOPPED
    with pytest.raises(peerdma.TransferError, match="MAGIC_STOPPED"):
        xdma.transfer(Direction.H2C, ONE, 0)
    with pytest.raises(peerdma.TransferError, match="does not stop, so no transfer can be made"):
        xdma.transfer(Direction.C2H, ONE, 0)


def test_a_lost_board_is_not_asked_to_stop(registers):
    xdma = driver(registers)

    def lose(timeout):
        registers.lost = True
        raise peerdma.BoardLost("gone")

    registers.wait_interrupt = lose
    with pytest.raises(peerdma.BoardLost):
        xdma.transfer(Direction.H2C, ONE, 0)
    assert (CHANNEL.address("control"), 0) not in registers.writes[-3:]


class TestRun:
    """A copy that is laid out once does what one that is not does."""

    SOURCE = ScatterList([0x1_0000_0000, 0x3000], [64, 100])
    TARGET = ScatterList([0x2_0000_0000], [164])

    def prepared(self, registers, timeout=None):
        xdma = driver(registers, timeout)
        step = xdma.rings.stream(self.SOURCE, self.TARGET)
        registers.writes.clear()
        return xdma, step

    def finish(self, registers):
        """Each side has as many descriptors as it should."""
        real = registers.write32

        def write32(bar, offset, value):
            registers.descriptors_done = 1 if offset & 0x1000 else 2
            real(bar, offset, value)

        registers.write32 = write32

    def test_the_same_accesses_and_descriptors(self, registers):
        self.finish(registers)
        xdma, step = self.prepared(registers)
        cycles = xdma.stream(self.SOURCE, self.TARGET)
        expected, ring = list(registers.writes), bytes(xdma.ring_bytes)
        assert any(ring)
        for _ in range(2):
            registers.writes.clear()
            xdma.ring_bytes[:] = bytes(len(ring))
            assert xdma.run(step) == cycles
            assert registers.writes == expected
            assert bytes(xdma.ring_bytes) == ring

    def test_a_failure_stops_both_sides(self, registers):
        xdma, step = self.prepared(registers)
        registers.outcome |= int(Status.READ_ABORT)
        with pytest.raises(peerdma.TransferError, match=r"C2H transfer failed.*READ_ABORT"):
            xdma.run(step)
        ends = [CHANNEL.address("control", base=base) for base in (0, C2H_CHANNEL_BASE)]
        assert {offset for offset, value in registers.writes[-6:] if not value} >= set(ends)

    def test_too_few_descriptors_is_a_failure(self, registers):
        xdma, step = self.prepared(registers)
        registers.descriptors_done = 1
        with pytest.raises(peerdma.TransferError, match="H2C transfer failed after 1 of 2"):
            xdma.run(step)

    def test_no_interrupt_is_a_timeout(self, registers):
        xdma, step = self.prepared(registers, timeout=0.01)
        registers.wait_interrupt = lambda timeout: False
        with pytest.raises(peerdma.Timeout, match=r"C2H transfer of 164 bytes: no interrupt"):
            xdma.run(step)

    def test_an_interrupt_for_one_side_only_is_waited_behind(self, registers):
        self.finish(registers)
        xdma, step = self.prepared(registers)
        real, status = registers.read32, CHANNEL.address("status_rc")
        late = [0, 0]

        def read32(bar, offset):
            if offset == status and late:
                return late.pop()
            return real(bar, offset)

        registers.read32 = read32
        registers.interrupts = 5
        assert xdma.run(step) == xdma.engine.channels[Direction.C2H].busy_cycles()
        assert not late

    def test_a_side_of_many_pieces_runs_one_chain_after_the_other(self, registers):
        """Ten pieces in half a ring of 16: chains of 8 and 2, while the other side is one of 1."""
        xdma = driver(registers)
        many = ScatterList([0x1000 * n for n in range(0, 20, 2)], [10] * 10)
        step = xdma.rings.stream(many, ScatterList([1 << 32], [100]))
        done = iter([1, 8, 2] * 2)
        real, count = registers.read32, CHANNEL.address("completed_count")

        def read32(bar, offset):
            return next(done) if offset & 0xFFF == count else real(bar, offset)

        registers.read32 = read32
        run = CHANNEL.address("control")
        for _ in range(2):
            registers.writes.clear()
            registers.interrupts = 2
            xdma.run(step)
            starts = [
                offset for offset, value in registers.writes if offset & 0xFFF == run and value
            ]
            assert starts == [run | C2H_CHANNEL_BASE, run, run]
        assert next(done, None) is None
