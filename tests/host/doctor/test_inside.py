# SPDX-License-Identifier: BSD-2-Clause
"""What the doctor finds from inside: transfers each way, versions, what the driver has seen."""

import errno
import json
import mmap
import re

import pytest

from peerdma.cli.main import main
from peerdma.cuda.gpu import CudaGpu
from peerdma.doctor import examine as doctor
from peerdma.doctor.examine import examine
from peerdma.doctor.system import System, Verdict
from peerdma.errors import (
    BoardLost,
    BoardNotFound,
    GpuNotFound,
    Timeout,
    TransferError,
    VerifyError,
    VersionMismatch,
)
from peerdma.kernel.node import KernelNode
from peerdma.regs import Capability
from peerdma.uapi import BoardState, Feature, Ioctl, Placement, Reason
from tests.host.cuda.fake_cuda import Result, fake_driver
from tests.host.doctor.machine import Pc

BROKEN = {"result": -errno.EIO, "reason": Reason.ENGINE, "status": 0x80, "address": 0x1234000}
LATE = {"result": -errno.ETIMEDOUT, "reason": Reason.TIMEOUT}
#: Ends well, but nothing was transferred.
EMPTY = {"bytes": 16384}
HOST = ["read host memory", "write host memory", "copy host memory"]
GPU = ["pin GPU memory", "read GPU memory", "write GPU memory"]


@pytest.fixture
def machine(tmp_path, monkeypatch, node_driver, cuda_api):
    """A PC where all is well, the stand-ins for driver and CUDA behind its node and GPU."""
    pc = Pc(tmp_path / "pc")
    monkeypatch.setattr(System, "here", True)
    monkeypatch.setattr(System, "nodes", [node_driver.path])
    monkeypatch.setattr(System, "may_open", lambda *_: True)
    monkeypatch.setattr(doctor, "is_node", lambda path: path == node_driver.path)
    monkeypatch.setattr(doctor, "gpu", lambda kind: CudaGpu(0, driver=fake_driver(cuda_api)))
    monkeypatch.setattr(KernelNode, "map", lambda *_: mmap.mmap(-1, 4096))
    return pc.system


def examined(machine, board: str = "auto") -> dict:
    """The findings by subject; of several the last one."""
    return {finding.subject: finding for finding in examine(board, machine)}


def test_all_well(machine, node_driver):
    found = list(examine("auto", machine))
    assert {each.verdict for each in found} == {Verdict.OK}
    inside = [each.subject for each in found][-13:]
    before = ["version", "providers", "opened", "gateware", "clock"]
    assert inside == [*before, *HOST, *GPU, "mailbox", "state"]
    said = {each.subject: each.found for each in found}
    assert said["read GPU memory"] == "works, through peer-to-peer"
    assert said["gateware"].startswith("register map 1.0, PCIe Gen2 x1")
    assert not node_driver.pins


@pytest.mark.parametrize(
    ("ends", "failing", "kind", "step"),
    [
        ([BROKEN], HOST[:2], TransferError, "the board's read requests"),
        ([{}, BROKEN], HOST[1:2], TransferError, "reads work, writes do not"),
        ([{}, EMPTY], HOST[1:2], VerifyError, "IOMMU"),
        ([{}, {}, EMPTY], HOST[2:], VerifyError, "docs/driver.md"),
        ([{}, {}, {}, BROKEN], GPU[1:2], TransferError, "does not forward peer-to-peer reads"),
        ([{}, {}, {}, EMPTY], GPU[1:2], VerifyError, "does not forward peer-to-peer reads"),
        ([{}, {}, {}, {}, {}, {}, LATE], GPU[2:], Timeout, "another slot"),
        ([{}, {}, {}, {}, {}, {}, EMPTY], GPU[2:], VerifyError, "another slot"),
    ],
    ids=["reads", "writes", "lost", "copy", "P2P reads", "P2P lost", "P2P writes", "P2P late"],
)
def test_each_way_fails_by_itself(machine, node_driver, ends, failing, kind, step):
    node_driver.ends = list(ends)
    found = examined(machine)
    failed = [name for name, each in found.items() if each.verdict is Verdict.FAIL]
    assert failed == failing
    first = found[failing[0]]
    assert first.exit_code == kind.exit_code
    assert first.found.startswith(kind.__name__)
    assert step in first.step
    tried_gpu = GPU[0] in found
    assert tried_gpu is (failing[0] in GPU)
    assert tried_gpu or "host memory does not work" in found["test"].found
    assert not node_driver.pins


def test_memory_that_cannot_be_pinned(machine, node_driver):
    node_driver.failures = {Ioctl.PIN_DMABUF: (0, errno.EINVAL)}
    found = examined(machine)[GPU[0]]
    assert (found.verdict, found.exit_code) == (Verdict.FAIL, 9)
    assert "the driver's words on PIN_DMABUF" in found.found


def test_who_pinned_gpu_memory_and_why(machine, node_driver):
    assert examined(machine)[GPU[0]].found.endswith(", peer-to-peer, by dmabuf")
    node_driver.failures = {Ioctl.PIN_DMABUF: (0, errno.EOPNOTSUPP)}
    found = examined(machine)[GPU[0]]
    assert found.verdict is Verdict.OK
    assert ", by nvp2p, as this failed: " in found.found
    assert "the driver's words on PIN_DMABUF" in found.found
    # Neither way works: both are told.
    node_driver.failures = {
        Ioctl.PIN_DMABUF: (0, errno.EOPNOTSUPP),
        Ioctl.PIN_CUDA: (0, errno.EOPNOTSUPP),
    }
    found = examined(machine)[GPU[0]]
    assert found.verdict is Verdict.FAIL
    assert "the driver's words on PIN_CUDA" in found.found
    assert "Tried before: cannot pin" in found.found
    assert "the driver's words on PIN_DMABUF" in found.found
    node_driver.info.features = Feature.DMABUF
    node_driver.failures = {Ioctl.PIN_DMABUF: (0, errno.EOPNOTSUPP)}
    found = examined(machine)[GPU[0]]
    assert found.verdict is Verdict.FAIL
    assert "the driver's words on PIN_DMABUF" in found.found


def test_gpu_memory_that_is_not_where_it_should_be(machine, node_driver):
    node_driver.placement = Placement.HOST
    assert examined(machine)[GPU[1]].found == "works, through host memory"


def test_a_mailbox_that_kernels_of_the_gpu_cannot_reach(machine, cuda_api):
    """Transfers work without it, so it is no failure."""
    cuda_api.failures["cuMemHostRegister"] = 0, Result.CUDA_ERROR_INVALID_VALUE
    found = examined(machine)["mailbox"]
    assert (found.verdict, found.exit_code) == (Verdict.NOTE, 0)
    assert "CUDA_ERROR_INVALID_VALUE" in found.found
    assert "docs/cuda.md, Mailbox" in found.found


@pytest.mark.parametrize(
    ("bits", "verdict", "said"),
    [
        (Capability(0), None, ""),
        (Capability.OVERCOMMIT, Verdict.OK, "on: "),
        (Capability.OVERCOMMIT | Capability.OVERCOMMIT_OFF, Verdict.WARN, "off until the next"),
    ],
)
def test_more_reads_than_there_is_room_for(machine, node_driver, bits, verdict, said):
    node_driver.info.capabilities |= bits
    found = examined(machine).get("overcommit")
    assert (found and found.verdict) is verdict
    assert found is None or found.found.startswith(said)


def test_the_doorbell_of_a_launch_queue(machine, node_driver, cuda_api):
    node_driver.info.capabilities |= Capability.LAUNCH
    found = examined(machine)["doorbell"]
    assert (found.verdict, found.exit_code) == (Verdict.NOTE, 0)
    assert "no launch queues" in found.found
    node_driver.launch_count = 1
    found = examined(machine)["doorbell"]
    assert found.verdict is Verdict.NOTE and "doorbell_pages=1" in found.found
    node_driver.doorbell = 1 << 41
    found = examined(machine)["doorbell"]
    assert (found.verdict, found.found) == (Verdict.OK, "page of registers")
    # After the mailbox and the memory of the queue
    before = len(cuda_api.named("cuMemHostRegister"))
    examined(machine)
    each = len(cuda_api.named("cuMemHostRegister")) - before
    cuda_api.failures["cuMemHostRegister"] = each - 1, Result.CUDA_ERROR_NOT_SUPPORTED
    found = examined(machine)["doorbell"]
    assert found.verdict is Verdict.NOTE and found.found.startswith("shadow tail: cannot map")


def test_no_compiler_is_needed(machine, monkeypatch):
    monkeypatch.setattr("tests.host.cuda.fake_nvrtc.FakeNvrtc.nvrtcVersion", None)
    found = examined(machine)
    assert {each.verdict for each in found.values()} == {Verdict.OK}


def test_no_cuda(machine, monkeypatch):
    def none(kind):
        raise GpuNotFound("use a CUDA GPU", "there is none here", "Install one")

    monkeypatch.setattr(doctor, "gpu", none)
    found = examined(machine)
    assert GPU[0] not in found
    assert found["test"].verdict is Verdict.NOTE
    assert "there is none here" in found["test"].found


def test_a_board_of_a_newer_major_version(machine, node_driver):
    node_driver.info.board_version = 0x20000
    found = examined(machine)["board"]
    assert (found.verdict, found.exit_code) == (Verdict.FAIL, VersionMismatch.exit_code)
    assert re.search(r"register map 2\.0, this library knows 1\.\d", found.found)


def test_a_board_of_a_newer_minor_version(machine, node_driver):
    node_driver.info.board_version = 0x10063
    found = examined(machine)["gateware"]
    assert found.verdict is Verdict.NOTE
    assert "register map 1.99, newer than this library's 1." in found.found


def test_plain_xdma(machine, node_driver):
    node_driver.info.board_version = 0
    assert "plain XDMA" in examined(machine)["gateware"].found


def test_a_clock_that_is_not_what_the_gateware_was_generated_for(machine, node_driver):
    assert examined(machine)["clock"].found.startswith("125 MHz")
    node_driver.info.clock_khz = 62_500
    found = examined(machine)["clock"]
    assert found.verdict is Verdict.WARN
    assert re.match(r"12[45]\.\d MHz, and the gateware was generated for 62\.5 MHz", found.found)
    assert "--clock-khz" in found.step
    # A board or a driver that does not tell one of the two.
    node_driver.info.clock_khz = 0
    assert "clock" not in examined(machine)
    node_driver.info.clock_khz = 62_500
    node_driver.info.features &= ~Feature.CLOCK
    assert "clock" not in examined(machine)


def test_a_driver_of_another_version(machine, node_driver):
    node_driver.info.uapi_version = 0x10007
    assert examined(machine)["version"].verdict is Verdict.NOTE
    node_driver.info.uapi_version = 0x20000
    found = examined(machine)["board"]
    assert found.exit_code == VersionMismatch.exit_code
    assert "its driver's interface has version 2.0" in found.found


@pytest.mark.parametrize(
    ("members", "verdict", "said"),
    [
        ({"state": BoardState.DEAD}, Verdict.FAIL, "has stopped using the board"),
        ({"state": BoardState.FROZEN}, Verdict.NOTE, "currently suspended or being reset"),
        ({"lost_interrupts": 3, "jobs": 9}, Verdict.WARN, "9 .*; 3 ended without their interrupt"),
        (
            {"jobs": 9, "failures": 2, "timeouts": 1},
            Verdict.OK,
            "9 .*, 2 failed, 1 of these timed out",
        ),
    ],
    ids=["dead", "frozen", "lost interrupts", "counts"],
)
def test_what_the_driver_has_seen(machine, node_driver, members, verdict, said):
    for name, value in members.items():
        setattr(node_driver.info, name, value)
    found = examined(machine)["state"]
    assert found.verdict is verdict
    assert re.search(said, found.found)
    assert found.exit_code == (BoardLost.exit_code if verdict is Verdict.FAIL else 0)


def test_a_node_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr(System, "here", True)
    found = examined(Pc(tmp_path).system, "/dev/peerdma-none")["board"]
    assert found.exit_code == BoardNotFound.exit_code
    assert "cannot open the board at /dev/peerdma-none" in found.found


def test_the_simulated_board(capsys):
    assert main(["doctor", "--board", "sim"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0].split(" ", 1)[1].strip() for line in lines[:-1]] == [
        *("opened", "gateware", *HOST, *GPU, "mailbox"),
    ]
    assert all(line.startswith("ok ") for line in lines[:-2])
    assert lines[-2].startswith("note  mailbox: ") and "--mailbox-page" in lines[-2]
    assert lines[-1] == "no problems found"


def test_nothing_here(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "System", lambda: System(tmp_path))
    assert main(["doctor"]) == BoardNotFound.exit_code
    out = capsys.readouterr().out
    assert "fail  board: none of the " in out
    assert "\n      next: " in out
    assert out.endswith("2 failed, 0 warnings\n")


def test_json(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "System", lambda: System(tmp_path))
    assert main(["doctor", "--json"]) == BoardNotFound.exit_code
    said = json.loads(capsys.readouterr().out)
    assert said["exit_code"] == BoardNotFound.exit_code
    first = said["findings"][0]
    assert (first["subject"], first["verdict"]) == ("board", "fail")
    assert first["step"]


def test_exit_codes_are_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["doctor", "--help"])
    out = capsys.readouterr().out
    assert "exit code is that of\nthe first check that fails" in out
    assert "16 KiB of card RAM" in out
