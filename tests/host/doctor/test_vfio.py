# SPDX-License-Identifier: BSD-2-Clause
"""The doctor on machines whose boards vfio-pci has: what keeps VFIO from offering them."""

from __future__ import annotations

import resource

import pytest

from peerdma.doctor import vfio
from peerdma.doctor.examine import examine
from peerdma.doctor.machine import boards
from peerdma.doctor.system import Finding, System, Verdict
from peerdma.vfio_pci import place
from tests.host.doctor.machine import Pc

GROUP = "sys/kernel/iommu_groups/13"


@pytest.fixture
def pc(tmp_path):
    """A PC whose board can be opened by VFIO; the driver is not installed."""
    machine = Pc(tmp_path)
    machine.bind(machine.board, "vfio-pci")
    (tmp_path / GROUP / "devices").mkdir(parents=True)
    (tmp_path / machine.board / "iommu_group").symlink_to(tmp_path / GROUP)
    machine.write(f"{machine.board}/reset_method", "flr bus\n")
    machine.write("dev/vfio/vfio", "")
    machine.write("dev/vfio/13", "")
    return machine


def found(pc: Pc) -> dict[str, Finding]:
    """The findings on the board from outside, by subject."""
    return {finding.subject: finding for finding in examine("auto", pc.system)}


def test_a_board_that_can_be_opened(pc):
    said = found(pc)
    subjects = ("driver", "group", "node", "reset")
    assert {said[name].verdict for name in subjects} == {Verdict.OK}
    assert said["driver"].found.endswith(f"open it as vfio:{pc.address}")
    assert said["node"].found.endswith("by VFIO's group 13")
    assert "module" not in said  # nobody needs the driver


def test_a_kernel_with_iommufd(pc):
    (pc.root / pc.board / "vfio-dev/vfio0").mkdir(parents=True)
    pc.write("dev/vfio/devices/vfio0", "")
    pc.write("dev/iommu", "")
    assert found(pc)["node"].found.endswith("can be opened by iommufd")


def test_a_node_of_another_user(pc, monkeypatch):
    monkeypatch.setattr(place, "_may_open", lambda node: node.name != "13")
    node = found(pc)["node"]
    assert (node.verdict, node.exit_code) == (Verdict.FAIL, 3)
    assert node.found.endswith("dev/vfio/13") and "sudo chown $USER" in node.step


def test_a_group_with_another_driver(pc):
    folder = pc.root / GROUP / "devices"
    for function in (pc.board, pc.gpu_port):
        (folder / function.rpartition("/")[2]).symlink_to(pc.root / function)
    assert found(pc)["group"].verdict is Verdict.OK  # a port is no obstacle
    pc.bind(pc.gpu_port, "xhci_hcd")
    group = found(pc)["group"]
    assert group.verdict is Verdict.FAIL
    assert "0000:02:01.0 (xhci_hcd)" in group.found


def test_no_iommu(pc):
    (pc.root / pc.board / "iommu_group").unlink()
    assert "intel_iommu=on" in found(pc)["group"].found


def test_no_way_to_reset_it(pc):
    pc.write(f"{pc.board}/reset_method", "\n")
    reset = found(pc)["reset"]
    assert reset.verdict is Verdict.WARN and "reset_method" in reset.step
    (pc.root / pc.board / "reset_method").unlink()
    assert found(pc)["reset"].verdict is Verdict.WARN
    pc.write(f"{pc.board}/reset", "")  # kernels before 5.15
    assert found(pc)["reset"].verdict is Verdict.OK


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(8 << 20, Verdict.WARN), (1 << 30, Verdict.OK), (resource.RLIM_INFINITY, Verdict.OK)],
)
def test_the_limit_of_locked_memory(pc, monkeypatch, limit, verdict):
    monkeypatch.setattr(System, "here", True)
    monkeypatch.setattr(vfio.resource, "getrlimit", lambda _: (limit, limit))
    (board,) = boards(pc.system)
    said = {each.subject: each for each in vfio.look_at_vfio(pc.system, board)}
    assert said["locked memory"].verdict is verdict
    assert ("sudo prlimit" in said["locked memory"].step) == (verdict is Verdict.WARN)
