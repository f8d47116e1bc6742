# SPDX-License-Identifier: BSD-2-Clause
"""Requests and structures of VFIO and iommufd against the kernel's headers, by compiling them."""

from __future__ import annotations

import shutil
import struct
import subprocess

import pytest

from peerdma.vfio import structures
from peerdma.vfio.structures import DeviceFlag, Irq, IrqSetFlag, MapFlag, RegionFlag
from peerdma.vfio_pci import ioctls
from peerdma.vfio_pci.ioctls import GroupFlag, IoasMapFlag, Iommufd, IommuFlag, Vfio
from tools.kernel_headers import headers

#: Members of the kernel's structures, by the name of ours; in the order of our fields.
MEMBERS = {
    "DeviceInfo": "vfio_device_info argsz flags num_regions num_irqs",
    "RegionInfo": "vfio_region_info argsz flags index cap_offset size offset",
    "SparseMmap": "vfio_region_info_cap_sparse_mmap header.id header.version header.next nr_areas "
    "reserved",
    "Area": "vfio_region_sparse_mmap_area offset size",
    "IrqInfo": "vfio_irq_info argsz flags index count",
    "IrqSet": "vfio_irq_set argsz flags index start count",
    "DmaMap": "vfio_iommu_type1_dma_map argsz flags vaddr iova size",
    "DmaUnmap": "vfio_iommu_type1_dma_unmap argsz flags iova size",
    "GroupStatus": "vfio_group_status argsz flags",
    "CapabilityHeader": "vfio_info_cap_header id version next",
    "IommuInfo": "vfio_iommu_type1_info argsz flags iova_pgsizes cap_offset pad",
    "RangesCapability": "vfio_iommu_type1_info_cap_iova_range header.id header.version header.next "
    "nr_iovas reserved",
    "BindIommufd": "vfio_device_bind_iommufd argsz flags iommufd out_devid",
    "AttachIommufd": "vfio_device_attach_iommufd_pt argsz flags pt_id",
    "IoasAlloc": "iommu_ioas_alloc size flags out_ioas_id",
    "IoasRange": "iommu_iova_range start last",
    "IoasRanges": "iommu_ioas_iova_ranges size ioas_id num_iovas __reserved allowed_iovas "
    "out_iova_alignment",
    "IoasMap": "iommu_ioas_map size flags ioas_id __reserved user_va length iova",
    "IoasUnmap": "iommu_ioas_unmap size ioas_id iova length",
}
#: Ours is the start of the kernel's, which takes that: `argsz` says how much there is.
SHORTER = ("DeviceInfo",)
PREFIXES = {
    "VFIO_": Vfio,
    "IOMMU_": Iommufd,
    "VFIO_DEVICE_FLAGS_": DeviceFlag,
    "VFIO_GROUP_FLAGS_": GroupFlag,
    "VFIO_IOMMU_INFO_": IommuFlag,
    "VFIO_IRQ_SET_": IrqSetFlag,
    "VFIO_DMA_MAP_FLAG_": MapFlag,
    "IOMMU_IOAS_MAP_": IoasMapFlag,
}
CONSTANTS = {
    f"{prefix}{member.name}": int(member) for prefix, kind in PREFIXES.items() for member in kind
} | {
    "VFIO_TYPE1v2_IOMMU": ioctls.TYPE1V2,
    "VFIO_REGION_INFO_FLAG_READ": RegionFlag.READ,
    "VFIO_REGION_INFO_FLAG_WRITE": RegionFlag.WRITE,
    "VFIO_REGION_INFO_FLAG_MMAP": RegionFlag.MMAP,
    "VFIO_REGION_INFO_FLAG_CAPS": RegionFlag.CAPABILITIES,
    "VFIO_REGION_INFO_CAP_SPARSE_MMAP": structures.SparseMmap.KIND,
    "VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE": ioctls.RangesCapability.ID,
    "VFIO_PCI_CONFIG_REGION_INDEX": structures.CONFIG_REGION,
    "VFIO_PCI_INTX_IRQ_INDEX": Irq.INTX,
    "VFIO_PCI_MSI_IRQ_INDEX": Irq.MSI,
    "VFIO_PCI_MSIX_IRQ_INDEX": Irq.MSIX,
    "VFIO_PCI_ERR_IRQ_INDEX": Irq.ERROR,
    "VFIO_PCI_REQ_IRQ_INDEX": Irq.REQUEST,
    "VFIO_API_VERSION": 0,
}


def ours() -> dict[str, type]:
    """Our structures, by name."""
    found = {**vars(structures), **vars(ioctls)}
    return {name: kind for name, kind in found.items() if hasattr(kind, "FORMAT")}


def assertions() -> list[str]:
    """C expressions that hold if the kernel's headers say what ours do."""
    held = [f"({name}) == {int(value)}" for name, value in CONSTANTS.items()]
    for name, kind in ours().items():
        tag, *members = MEMBERS[name].split()
        tag = f"struct {tag}"
        assert len(members) == len(kind._fields)
        at = 0
        for member, code in zip(members, kind.FORMAT.format[1:], strict=True):
            held.append(f"offsetof({tag}, {member}) == {at}")
            at += struct.calcsize(f"<{code}")
            held.append(f"sizeof((({tag} *)0)->{member}) == {struct.calcsize(f'<{code}')}")
        if name not in SHORTER:
            held.append(f"sizeof({tag}) == {at}")
    return held


@pytest.fixture(scope="module")
def include(tmp_path_factory):
    """A folder with the kernel's two headers; what they include is the compiler's own."""
    folder = tmp_path_factory.mktemp("include")
    (folder / "linux").mkdir()
    build = headers("6.12").build
    common = next(build.parent.glob("linux-headers-*-common"))
    for name in ("vfio.h", "iommufd.h"):
        shutil.copy(common / "include/uapi/linux" / name, folder / "linux")
    return folder


def compiled(include, tmp_path, held: list[str]) -> subprocess.CompletedProcess[str]:
    lines = [f'_Static_assert({each}, "{each}");' for each in held]
    text = "#include <stddef.h>\n#include <linux/vfio.h>\n#include <linux/iommufd.h>\n"
    source = tmp_path / "check.c"
    source.write_text(text + "\n".join(lines))
    command = ["cc", "-fsyntax-only", "-D__user=", f"-I{include}", source]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_headers_say_what_we_say(include, tmp_path):
    assert set(MEMBERS) == set(ours())
    done = compiled(include, tmp_path, assertions())
    assert done.returncode == 0, done.stderr


def test_a_difference_is_found(include, tmp_path):
    wrong = [each.replace("== 24", "== 25") for each in assertions()]
    assert wrong != assertions()
    done = compiled(include, tmp_path, wrong)
    assert "static assertion failed" in done.stderr
