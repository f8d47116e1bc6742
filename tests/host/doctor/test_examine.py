# SPDX-License-Identifier: BSD-2-Clause
"""What the doctor finds from outside, on made machines: one is well, each other has one trouble."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hw.pcie.series7.parameters import Identity
from hw.pcie.ultrascale.parameters import DEVICES
from peerdma.doctor.examine import examine
from peerdma.doctor.system import Finding, Verdict
from peerdma.errors import BoardLost, BoardNotFound, PeerdmaError
from peerdma.identity import IDENTITIES
from tests.host.doctor.machine import BOARD, CLOSED, Jetson, Machine, Pc, config_space

ROOT = Path(__file__).resolve().parents[3]
ORIN = (
    "Jetson AGX Orin Developer Kit",
    "tegra234",
    "# R36 (release), REVISION: 4.3, GCID: 38968081",
)
THOR = (
    "Jetson AGX Thor Developer Kit",
    "tegra264",
    "# R38 (release), REVISION: 2.0, GCID: 41844464",
)


def findings(machine: Machine) -> list[Finding]:
    """All of them, but the last, that no transfers were tried."""
    found = list(examine("auto", machine.system))
    assert (found[-1].subject, found[-1].verdict) == ("test", Verdict.NOTE)
    assert "`peerdma doctor --board sim` tries" in found[-1].found
    return found[:-1]


def troubles(machine: Machine) -> list[Finding]:
    """What is not as it should be."""
    return [each for each in findings(machine) if each.verdict is not Verdict.OK]


@pytest.fixture(autouse=True)
def by_mode(monkeypatch):
    """Whether a file may be opened is up to its mode, even where the tests run as root."""

    def access(path, mode: int) -> bool:
        return os.stat(path).st_mode & mode == mode

    monkeypatch.setattr("peerdma.doctor.system.os.access", access)


def test_the_identities_are_those_of_driver_and_simulated_board():
    text = (ROOT / "driver/lifecycle/main.c").read_text()
    found = re.findall(r"PCI_DEVICE_SUB\((\w+), (\w+), (\w+), (\w+)\)", text)
    assert {tuple(int(word, 16) for word in words) for words in found} == set(IDENTITIES)
    made = [Identity(), *(Identity(device=device) for device in DEVICES.values())]
    ours = [(each.vendor, each.device, each.subsystem_vendor, each.subsystem) for each in made]
    assert ours[0] == BOARD
    assert ours == [ids for ids, name in IDENTITIES.items() if name.startswith("peerdma")]


def test_all_well(tmp_path):
    found = findings(Pc(tmp_path))
    assert [each for each in found if each.verdict is not Verdict.OK] == []
    assert [each.subject for each in found] == [
        *("board", "module", "driver", "node", "link", "packets", "interrupts", "bus errors"),
        *("IOMMU", "GPU", "BAR1", "provider", "path"),
    ]
    said = {each.subject: each.found for each in found}
    assert said["link"] == "0000:03:00.0 runs at Gen2 x1, the most it supports"
    assert said["packets"].endswith("max payload 256 B, max read request 512 B")
    assert said["interrupts"].endswith("uses MSI-X, 2 vectors")
    assert "RTX 6000 Ada Generation, driver 580.95.05, open kernel modules" in said["GPU"]
    assert said["BAR1"] == "0000:04:00.0 maps 65536 MiB of its memory"
    assert said["path"] == (
        "0000:03:00.0 to 0000:04:00.0: below one switch, 0000:01:00.0, which forwards both"
    )


def unbind(pc: Pc) -> None:
    pc.bind(pc.board, "")


def rebind(pc: Pc) -> None:
    pc.bind(pc.board, "xdma")


def forbid(pc: Pc) -> None:
    pc.node(0o600)


def no_node(pc: Pc) -> None:
    (pc.root / "dev/picoevb").unlink()


def gen1(pc: Pc) -> None:
    pc.speed(pc.board, (1, 1), (2, 1))


def narrow(pc: Pc) -> None:
    pc.speed(pc.board, (2, 1), (2, 4))


def slow_slot(pc: Pc) -> None:
    pc.speed(pc.board, (1, 1), (2, 1))
    pc.speed(pc.port, (1, 1), (1, 4))


def small_payload(pc: Pc) -> None:
    pc.write(f"{pc.board}/config", config_space(payload=128))


def small_request(pc: Pc) -> None:
    pc.write(f"{pc.board}/config", config_space(request=128))


def not_root(pc: Pc) -> None:
    pc.write(f"{pc.board}/config", config_space()[:64])


def gone(pc: Pc) -> None:
    pc.write(f"{pc.board}/config", b"\xff" * 4096)


def no_bars(pc: Pc) -> None:
    pc.write(f"{pc.board}/resource", "0x0 0x3fff 0x40200\n0x0 0xffff 0x40200\n")


def intx(pc: Pc) -> None:
    for path in (pc.root / pc.board / "msi_irqs").iterdir():
        path.unlink()
    pc.write(f"{pc.board}/irq", "16\n")


def no_interrupt(pc: Pc) -> None:
    intx(pc)
    pc.write(f"{pc.board}/irq", "0\n")


def bus_errors(pc: Pc) -> None:
    for kind, count in (("correctable", 12), ("nonfatal", 0), ("fatal", 1)):
        name = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}[kind]
        pc.write(f"{pc.board}/aer_dev_{kind}", f"RxErr {count}\nTOTAL_ERR_{name} {count}\n")


def iommu(pc: Pc) -> None:
    pc.write(f"{pc.board}/iommu_group/type", "DMA\n")


def geforce(pc: Pc) -> None:
    pc.nvidia(pc.gpu_address, "GeForce RTX 4090")


def grace(pc: Pc) -> None:
    pc.nvidia(pc.gpu_address, "NVIDIA GH200 480GB")


def spark(pc: Pc) -> None:
    pc.nvidia(pc.gpu_address, "NVIDIA GB10")


def proprietary(pc: Pc) -> None:
    pc.nvidia(pc.gpu_address, "RTX 6000 Ada Generation", CLOSED)


def nouveau(pc: Pc) -> None:
    (pc.root / "proc/driver/nvidia/version").unlink()
    (pc.root / "sys/module/nvidia").rmdir()
    pc.bind(pc.gpu, "nouveau")


def small_bar(pc: Pc) -> None:
    pc.write(f"{pc.gpu}/resource", "0xf6000000 0xf6ffffff 0x0\n0xe0000000 0xefffffff 0x0\n")


def no_provider(pc: Pc) -> None:
    (pc.root / "sys/module/peerdma_nvp2p").rmdir()


def unbuilt_provider(pc: Pc) -> None:
    no_provider(pc)
    pc.installed("peerdma")


def peermem(pc: Pc) -> None:
    pc.module("nvidia_peermem")


def acs(pc: Pc) -> None:
    pc.write(f"{pc.port}/config", config_space(acs=0x1D))


@pytest.mark.parametrize(
    ("trouble", "subject", "verdict", "found", "step"),
    [
        (unbind, "driver", Verdict.FAIL, "not bound to 0000:03:00.0", "dmesg"),
        (rebind, "driver", Verdict.FAIL, "bound to xdma", "drivers/xdma/unbind; echo 0000:03:00.0"),
        (forbid, "node", Verdict.FAIL, "/dev/picoevb exists, but this user may not", "group"),
        (no_node, "node", Verdict.FAIL, "no /dev/picoevb, though the module is loaded", "dmesg"),
        (
            gen1,
            "link",
            Verdict.WARN,
            "at Gen1 x1, though board and slot support Gen2 x1",
            "another slot",
        ),
        (
            narrow,
            "link",
            Verdict.WARN,
            "at Gen2 x1, though board and slot support Gen2 x4",
            "reseat",
        ),
        (slow_slot, "link", Verdict.NOTE, "Gen1 x1, its slot's most; it supports Gen2 x1", ""),
        (small_payload, "packets", Verdict.WARN, "support a payload of 256 B", "pci=pcie_bus_perf"),
        (
            small_request,
            "packets",
            Verdict.WARN,
            "request 128 B; reads are faster",
            "setpci -s 0000",
        ),
        (not_root, "packets", Verdict.NOTE, "only root sees the sizes", ""),
        (gone, "board", Verdict.FAIL, "does not answer", "rescan"),
        (no_bars, "BARs", Verdict.FAIL, "no address for BAR 0 and 1", "pci=realloc"),
        (intx, "interrupts", Verdict.NOTE, "uses INTx, line 16", ""),
        (no_interrupt, "interrupts", Verdict.FAIL, "neither MSI nor an INTx line", "pci=nomsi"),
        (bus_errors, "bus errors", Verdict.WARN, "12 correctable, 1 fatal", "riser"),
        (iommu, "IOMMU", Verdict.WARN, r"translated \(DMA\); NVIDIA supports nv-p2p", "iommu=pt"),
        (geforce, "GPU", Verdict.WARN, "GeForce RTX 4090, driver 580.95.05", 'memory="host"'),
        (grace, "GPU", Verdict.NOTE, "GH200 480GB is coherent .* a driver of CUDA 12.8", ""),
        (spark, "GPU", Verdict.NOTE, "GB10, driver 580.95.05, integrated: board and GPU share", ""),
        (
            proprietary,
            "GPU",
            Verdict.WARN,
            "with proprietary kernel modules",
            "open kernel modules",
        ),
        (nouveau, "GPU", Verdict.WARN, r"not loaded \(bound to nouveau\)", "nvidia-smi"),
        (
            small_bar,
            "BAR1",
            Verdict.WARN,
            "256 MiB .* about 224 MiB can be pinned",
            "Resizable BAR",
        ),
        (
            no_provider,
            "provider",
            Verdict.NOTE,
            "only be pinned as a dma-buf",
            "modprobe peerdma_nvp2p",
        ),
        (
            unbuilt_provider,
            "provider",
            Verdict.NOTE,
            "only be pinned as a dma-buf",
            "Rebuild the driver",
        ),
        (peermem, "provider", Verdict.NOTE, "network adapters", ""),
        (acs, "path", Verdict.WARN, "of 0000:02:00.0 redirects", "disable_acs_redir=0000:02:00.0"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, Callable) else "",
)
def test_one_trouble(tmp_path, trouble, subject, verdict, found, step):
    pc = Pc(tmp_path)
    trouble(pc)
    (only,) = troubles(pc)
    assert (only.subject, only.verdict) == (subject, verdict)
    assert re.search(found, only.found), only.found
    assert step in only.step
    assert bool(only.step) or verdict is Verdict.NOTE
    assert bool(only.exit_code) is (verdict is Verdict.FAIL)


def test_exit_codes_tell_a_board_that_is_missing_from_one_that_went_away(tmp_path):
    (found,) = troubles(_with(Pc(tmp_path / "one"), forbid))
    assert found.exit_code == BoardNotFound.exit_code
    (found,) = troubles(_with(Pc(tmp_path / "two"), gone))
    assert found.exit_code == BoardLost.exit_code
    (found,) = troubles(_with(Pc(tmp_path / "three"), no_interrupt))
    assert found.exit_code == PeerdmaError.exit_code


def _with(pc: Pc, trouble: Callable[[Pc], None]) -> Pc:
    trouble(pc)
    return pc


def test_nothing_at_all(tmp_path):
    board, module, node, gpu = findings(Machine(tmp_path))
    assert (board.verdict, board.exit_code) == (Verdict.FAIL, BoardNotFound.exit_code)
    assert "is a known board: 10ee:7021, subsystem 10ee:5045 (peerdma); 10ee:8038" in board.found
    assert "none of the 0 PCI functions is a known board" in board.found
    assert (module.verdict, module.step) == (
        Verdict.FAIL,
        "Install it: the package peerdma-dkms, or driver/install.sh (docs/driver.md)",
    )
    assert node.verdict is gpu.verdict is Verdict.NOTE


def test_another_xilinx_design(tmp_path):
    machine = Machine(tmp_path)
    machine.function("pci0000:00/0000:00:01.0", (0x10EE, 0x9034, 0x10EE, 0x0007))
    board = findings(machine)[0]
    assert (
        "but 0000:00:01.0 is 10ee:9034, subsystem 10ee:0007, an unknown Xilinx design"
        in board.found
    )
    assert "new_id" in board.step


@pytest.mark.parametrize("system", ["debian", "ubuntu"])
@pytest.mark.parametrize(
    ("kernel", "secure", "found", "step"),
    [
        ("6.12.41-amd64", b"\6\0\0\0\0", "is installed, but not loaded$", "modprobe peerdma"),
        ("6.12.41-amd64", b"\6\0\0\0\1", "Secure Boot is on", "mokutil --import"),
        ("6.1.0-40-amd64", b"\6\0\0\0\1", "not installed .* but for 6.1.0-40", "dkms autoinstall"),
    ],
    ids=["not loaded", "Secure Boot", "another kernel's"],
)
def test_no_module(tmp_path, kernel, secure, found, step, system):
    machine = Machine(tmp_path)
    machine.write("etc/os-release", f'NAME="x"\nID={system}\nVERSION_ID="24.04"\n'.encode())
    machine.function("pci0000:00/0000:00:01.0", BOARD)
    machine.installed("peerdma", kernel=kernel)
    machine.write("sys/firmware/efi/efivars/SecureBoot-8be4df61", secure)
    module = next(each for each in findings(machine) if each.subject == "module")
    assert module.verdict is Verdict.FAIL
    assert re.search(found, module.found), module.found
    assert step in module.step
    if "mokutil" in step:
        key = {"debian": "dkms/mok.pub", "ubuntu": "shim-signed/mok/MOK.der"}[system]
        assert f"--import /var/lib/{key}, or what" in module.step


@pytest.mark.parametrize(
    ("what", "module", "gpu", "provider"),
    [
        (ORIN, "", r"Orin \(tegra234\): NVIDIA Jetson AGX Orin.*L4T 36.4.3\.", "pinned as pages"),
        (ORIN, "peerdma_nvp2p_tegra", "Orin", "peerdma_nvp2p_tegra is loaded"),
        (THOR, "", r"Thor \(tegra264\).*L4T 38.2.0\.", "Thor has no nv-p2p"),
    ],
    ids=["Orin", "Orin with nv-p2p", "Thor"],
)
def test_jetson(tmp_path, what, module, gpu, provider):
    machine = Jetson(tmp_path, *what)
    if module:
        machine.module(module)
    found = findings(machine)
    assert {each.verdict for each in found} <= {Verdict.OK, Verdict.NOTE}
    said = {each.subject: each.found for each in found}
    assert re.search(gpu, said["GPU"]), said["GPU"]
    assert "cudaHostAlloc" in said["GPU"]
    assert provider in said["provider"]
    assert "translated (DMA); host memory and dma-bufs" in said["IOMMU"]
    assert "path" not in said


def test_two_gpus_behind_different_roots(tmp_path):
    pc = Pc(tmp_path)
    pc.add_gpu("pci0000:00/0000:00:03.0/0000:05:00.0")
    pc.nvidia("0000:05:00.0", "RTX 6000 Ada Generation")
    pc.add_gpu("pci0000:80/0000:80:01.0/0000:81:00.0")
    pc.nvidia("0000:81:00.0", "RTX 6000 Ada Generation")
    near, other_port, other_bridge = [each for each in findings(pc) if each.subject == "path"]
    assert near.verdict is Verdict.OK
    assert other_port.verdict is other_bridge.verdict is Verdict.WARN
    assert "0000:05:00.0: below different root ports of pci0000:00" in other_port.found
    assert "different host bridges, pci0000:00 and pci0000:80" in other_bridge.found


def test_another_driver_is_named_and_the_guide_says_how_to_choose(tmp_path):
    pc = Pc(tmp_path)
    rebind(pc)
    (driver,) = [each for each in troubles(pc) if each.subject == "driver"]
    title = re.search(r"docs/driver.md says how to choose for good \((.*)\)", driver.step)
    assert title
    _, guide = (ROOT / "docs/driver.md").read_text().split(f"\n## {title[1]}\n")
    for ids in IDENTITIES:
        vendor, device, subsystem_vendor, subsystem = (f"{number:04X}" for number in ids)
        (row,) = re.findall(rf"^\| {vendor}:{device}, .*\|$", guide, re.M)
        assert f"{subsystem_vendor}:{subsystem}" in row


def test_acs_that_cannot_be_read(tmp_path):
    pc = Pc(tmp_path)
    pc.write(f"{pc.port}/config", config_space()[:64])
    (path,) = [each for each in troubles(pc) if each.subject == "path"]
    assert path.verdict is Verdict.NOTE
    assert "only root sees whether ACS redirects" in path.found


def test_a_gpu_of_another_vendor(tmp_path):
    pc = Pc(tmp_path)
    pc.write(f"{pc.gpu}/vendor", "0x1002\n")
    gpu = next(each for each in findings(pc) if each.subject == "GPU")
    assert gpu.verdict is Verdict.NOTE
    assert "vendor 1002" in gpu.found
