# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues whose plans go one way: to card RAM or the user stream, or from there."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest

import peerdma
from peerdma import USER_STREAM
from peerdma.regs import LaunchStatus
from tests.boards import options
from tests.host.board.launch_helpers import LAUNCHING, controls
from tests.host.programs import HOST, ROOT, run
from tests.hw.stream.bfloat16 import bfloat16

#: Seconds that the library gives a transfer, and a plan that is to end.
PATIENCE = 2.0
#: What is looked at of a slot's control.
KINDS = ("c2h", "pair", "flush", "overlap")


@pytest.fixture(scope="module")
def board():
    with peerdma.open("sim", arguments=LAUNCHING) as board:
        yield board


@pytest.fixture
def converter():
    """Converts float32 to bfloat16, for a program that is impatient."""
    with peerdma.open("sim", arguments=options("converter"), timeout=PATIENCE) as board:
        yield board


# Card RAM ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("memory", "read_back"), [("host", 0), ("device", 1)])
def test_to_card_ram_and_back(board, monkeypatch, memory, read_back):
    """In order, beside copies; what is written to a device is read back before the record."""
    with peerdma.gpu("emulated", memory=memory) as gpu:
        here, there, copied = (gpu.surface(60_000) for _ in range(3))
        write, read = board.prepare_write(here, 77), board.prepare_read(there, 77)
        plans = [write, board.prepare(here, copied), read]
        found = controls(board, monkeypatch, plans, *KINDS)
        assert found == [(0, 0, 0, 0), (0, 1, read_back, 1), (1, 0, read_back, 1)]
        with board.queue(plans, depth=8) as queue:
            for seed in range(4):
                here.fill(seed)
                for index in (0, 1, 2):
                    ticket = queue.submit(index)
                queue.wait(ticket)
                assert (there.get() == here.get()).all() and (copied.get() == here.get()).all()
        # Without a queue, as `write` and `read`.
        here.fill(9)
        write.run()
        transfer = read.submit().result()
        assert (there.get() == here.get()).all() and transfer.through == "card RAM"


def test_as_many_plans_as_there_are_slots(board):
    """A plan of one direction has one, a copy two, of which the first is even."""
    data = np.zeros(64, "u1")
    copy, write = board.prepare(data, np.zeros(64, "u1")), board.prepare_write(data)
    with board.queue([write, *[copy] * 31, write]) as queue:
        assert sorted(queue._run.slots) == [0, 1, *range(2, 64, 2)]
        with pytest.raises(peerdma.UnsupportedError, match=r"1 plans do not fit: .* 0 are free"):
            board.queue([write])
        queue.wait(queue.submit(32))
    with board.queue([write] * 63) as queue:
        queue.wait(queue.submit(62))
        with pytest.raises(peerdma.UnsupportedError, match=r"1 plans do not fit: .* 1 are free"):
            board.queue([copy])


# The user stream -----------------------------------------------------------------------------


def test_what_a_kernel_pushes_and_pulls(converter, monkeypatch, seed):
    """By two queues any amount, also if it is pulled first; by one as much as the stream holds."""
    given = np.random.default_rng(seed).integers(0, 1 << 32, 3000, "u4")
    made, expected = np.zeros(3000, "u2"), bfloat16(given)
    write, read = (
        converter.prepare_write(given, USER_STREAM),
        converter.prepare_read(made, USER_STREAM),
    )
    # In a stream bytes are in their order, whatever is under way.
    assert controls(converter, monkeypatch, [write, read], *KINDS) == [(0, 0, 0, 1), (1, 0, 0, 1)]
    with converter.queue([read]) as pull, converter.queue([write]) as push:
        ticket = pull.submit(0)
        push.wait(push.submit(0))
        pull.wait(ticket)
    assert (made == expected).all()
    made[:] = 0
    plans = [
        converter.prepare_write(given[:128], USER_STREAM),
        converter.prepare_read(made[:100], USER_STREAM),
        converter.prepare_read(made[100:128], USER_STREAM),
    ]
    with converter.queue(plans) as queue:
        for index in (0, 1, 2):
            ticket = queue.submit(index)
        queue.wait(ticket)
        queue.submit(0)
        queue.check()
    assert (made[:128] == expected[:128]).all() and not made[128:].any()
    # What nobody pulled is gone.
    converter.process(given[:128], made[:128])
    assert (made[:128] == expected[:128]).all()
    # Nor does it need a queue.
    job = read.submit()
    assert write.run().through == "user stream"
    job.result()
    assert (made == expected).all()


@contextlib.contextmanager
def waiting(board, pin):
    """A queue with a ticket at work that waits for data, and one behind it; and its tickets."""
    data = np.ones(64, "u1")
    queue = board.queue([board.prepare_read(pin, USER_STREAM), board.prepare_write(data)])
    tickets = [queue.submit(index) for index in (0, 1)]
    with pytest.raises(peerdma.Timeout):
        queue.wait(tickets[0], timeout=0.1)
    yield queue, tickets
    queue.close()
    found = [queue._memory.record(ticket)[1] for ticket in tickets]
    assert set(found) <= {LaunchStatus.ABORTED, LaunchStatus.FLUSHED}


def test_data_that_does_not_come(converter):
    """Whatever of it is closed, that ends in bounded time, and the board goes on."""
    data, there = np.arange(4096, dtype="u1"), np.zeros(4096, "u1")
    with converter.pin(np.zeros(64, "u1")) as pin, waiting(converter, pin) as (queue, tickets):
        # What else needs the channel learns why it has to wait, and the other one goes on.
        with pytest.raises(peerdma.Timeout, match="waits for a run of another owner"):
            converter.read(there)
        converter.write(data)
        pin.close()
        for call in (lambda: queue.submit(1), lambda: queue.wait(tickets[0])):
            with pytest.raises(peerdma.PeerdmaError, match=r"did not end in time\. Open another"):
                call()
        assert queue.stats().ended
        converter.read(there)
        assert (there == data).all()
    with converter.pin(np.zeros(64, "u1")) as pin, waiting(converter, pin) as (queue, _):
        pass
    with converter.queue([converter.prepare_read(there, 0)]) as queue:
        queue.wait(queue.submit(0))
    pin = converter.pin(np.zeros(64, "u1"))
    with waiting(converter, pin):
        converter.close()


_LEAVING = """
import os, sys, numpy as np, peerdma
board = peerdma.open(sys.argv[1])
queue = board.queue([board.prepare_read(np.zeros(64, "u1"), peerdma.USER_STREAM)])
ticket = queue.submit(0)
try:
    queue.wait(ticket, timeout=0.1)
except peerdma.Timeout:
    os._exit(7)
"""


def test_a_program_that_leaves_while_data_does_not_come(tmp_path):
    """The next one finds the board as ever."""
    path = str(tmp_path / "board.sock")
    command = [sys.executable, "-m", "sim.board", "--socket", path, *options("converter")]
    with subprocess.Popen(
        command, cwd=ROOT, env={"PYTHONPATH": str(HOST)}, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout.readline().startswith("ready: ")
            left = run(path, program=("-c", _LEAVING), PYTHONPATH=str(HOST))
            assert left.returncode == 7, left.stderr
            given, made = np.arange(256, dtype="u4") << 16, np.zeros(256, "u2")
            with peerdma.open(path) as board:
                board.process(given, made)
                assert (made == given >> 16).all()
                plans = [board.prepare_write(given), board.prepare_read(given)]
                with board.queue(plans) as queue:
                    queue.wait(queue.submit(1))
        finally:
            server.terminate()


def test_what_is_refused(board, converter):
    data = np.zeros(64, "u1")
    passes = "copies of this board go through it, as its user block is PASS"
    for call, kind, words in (
        (lambda: board.prepare_write(data, USER_STREAM), peerdma.UnsupportedError, passes),
        (lambda: board.prepare_read(data, USER_STREAM), peerdma.UnsupportedError, passes),
        (lambda: board.prepare_write(data, 1 << 16), peerdma.TransferError, "not all inside"),
        (lambda: board.prepare_read(data, USER_STREAM + 1), peerdma.TransferError, "not all in"),
        (lambda: board.prepare_read(bytes(64)), peerdma.PinError, "read-only"),
        (lambda: board.prepare_read([data, data]), TypeError, "an array, a pin or a span"),
        (
            lambda: converter.queue([converter.prepare(data, np.zeros(64, "u1"))]),
            peerdma.UnsupportedError,
            "its user block is BF16. .* prepare_write",
        ),
        (
            lambda: converter.queue(
                [converter.prepare_read(np.zeros((1 << 20) + 1, "u1"), USER_STREAM)]
            ),
            peerdma.UnsupportedError,
            "at most 1048576",
        ),
    ):
        with pytest.raises(kind, match=words):
            call()


def test_user_streams_that_are_not_there(sensor, without):
    """A source takes nothing; and a core without launch queues says so."""
    data = np.zeros(64, "u1")
    with pytest.raises(peerdma.UnsupportedError, match="user block PATN takes no bytes"):
        sensor.prepare_write(data, USER_STREAM)
    with pytest.raises(peerdma.UnsupportedError, match="--launch-queues 2"):
        sensor.queue([sensor.prepare_read(data, USER_STREAM)])
    with pytest.raises(peerdma.UnsupportedError, match="this board has no user block"):
        without.prepare_read(data, USER_STREAM)
