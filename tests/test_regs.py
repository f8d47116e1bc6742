# SPDX-License-Identifier: BSD-2-Clause
"""The register map is sound, and the driver's header says the same."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from peerdma import regs
from tools import regs_header

#: What the kernel's headers give to the generated one.
SHIM = {
    "bits.h": """
        #define BIT(n) (1UL << (n))
        #define GENMASK(high, low) (((~0UL) << (low)) & (~0UL >> (63 - (high))))
    """,
    "build_bug.h": "#include <assert.h>\n",
    "types.h": "#include <stdint.h>\ntypedef uint32_t __le32; typedef uint64_t __le64;\n",
}

BLOCKS = [(regs.BAR_DMA, block) for block in (*regs.BLOCKS_DMA, *regs.BLOCKS_LAUNCH)]
BLOCKS += [(regs.BAR_USER, block) for block in regs.BLOCKS_USER]
#: Blocks that only some cores have are no business of the driver's.
ALL_BLOCKS = [*BLOCKS, *((regs.BAR_USER, block) for block in regs.BLOCKS_OPTIONAL)]
each_block = pytest.mark.parametrize(
    ("bar", "block"), ALL_BLOCKS, ids=[block.name for _, block in ALL_BLOCKS]
)


@each_block
def test_registers_have_places_of_their_own_inside_the_block(bar, block):
    offsets = [register.offset for register in block.registers]
    assert offsets == sorted(set(offsets))
    assert all(offset % 4 == 0 and 0 <= offset < block.size for offset in offsets)
    assert len({register.name for register in block.registers}) == len(offsets)
    assert block.size <= block.stride


@each_block
def test_resets_masks_and_fields_fit_the_register(bar, block):
    for register in block.registers:
        assert 0 <= register.reset < 1 << 32, register.name
        assert 0 < register.writable < 1 << 32, register.name
        taken = 0
        for field in register.fields:
            assert field.width > 0 and field.mask < 1 << 32, (register.name, field.name)
            assert not taken & field.mask, (register.name, field.name)
            taken |= field.mask
        assert len({field.name for field in register.fields}) == len(register.fields)


@each_block
def test_an_alias_names_a_register_that_it_can_work_on(bar, block):
    works_on = {
        regs.Access.W1S: regs.Access.RW,
        regs.Access.W1C: regs.Access.RW,
        regs.Access.RC: regs.Access.RW1C,
    }
    for register in block.registers:
        assert (register.alias is not None) == (register.access in works_on), register.name
        if register.alias is not None:
            assert block[register.alias].access is works_on[register.access], register.name


@pytest.mark.parametrize("bar", [regs.BAR_DMA, regs.BAR_USER], ids=["dma", "user"])
def test_blocks_lie_inside_the_bar_and_apart(bar):
    _, size = bar
    spans = {block.name: (block.base, block.size) for where, block in BLOCKS if where == bar}
    if bar == regs.BAR_DMA:
        for block, c2h in (
            (regs.CHANNEL, regs.C2H_CHANNEL_BASE),
            (regs.SGDMA, regs.C2H_SGDMA_BASE),
        ):
            # Four channels are the most that the programming interface has.
            spans[block.name] = (block.base, 4 * block.stride)
            spans[f"C2H {block.name}"] = (c2h, 4 * block.stride)
        for block, count in (
            (regs.LAUNCH_SLOT, regs.LAUNCH_SLOTS),
            (regs.LAUNCH_QUEUE, regs.LAUNCH_QUEUES),
            (regs.LAUNCH_TICKET, regs.LAUNCH_QUEUES * regs.LAUNCH_PLACES),
        ):
            spans[block.name] = (block.base, count * block.stride)
        spans["MSI-X table"] = (regs.MSIX_TABLE_OFFSET, 16 * regs.MSIX_ENTRIES)
        spans["MSI-X PBA"] = (regs.MSIX_PBA_OFFSET, 8 * -(-regs.MSIX_ENTRIES // 64))
    else:
        spans["doorbells"] = (regs.DOORBELL_BASE, regs.LAUNCH_QUEUES * regs.DOORBELL_STRIDE)
        spans["user blocks"] = (regs.USER_BLOCK_BASE, 4 * regs.USER_BLOCK_SIZE)
    end = 0
    for name, (base, length) in sorted(spans.items(), key=lambda item: item[1]):
        assert base >= end, f"{name} overlaps what is before it"
        end = base + length
    assert end <= size


def test_blocks_of_user_blocks_lie_in_their_part():
    for block in regs.BLOCKS_OPTIONAL:
        assert (block.base, block.size) == (regs.USER_BLOCK_BASE, regs.USER_BLOCK_SIZE)


def test_names_of_four_characters():
    assert regs.four_characters("PDMA") == regs.EXTENSION_MAGIC
    assert regs.EXTENSION_MAGIC.to_bytes(4, "little") == b"PDMA"
    with pytest.raises(ValueError, match="four characters, not 'PASSED'"):
        regs.four_characters("PASSED")


def test_address_adds_block_channel_and_register():
    assert regs.CHANNEL.address("status", 2) == 0x240
    assert regs.CHANNEL.address("status", 1, regs.C2H_CHANNEL_BASE) == 0x1140
    with pytest.raises(KeyError, match="block user has no register status"):
        regs.USER.address("status")


def test_fields_pack_and_unpack():
    field = regs.EXTENSION["version"].field("major")
    assert field.get(field.put(3) | 0xFFFF) == 3
    with pytest.raises(ValueError, match="16 bits wide"):
        field.put(1 << 16)
    with pytest.raises(KeyError, match="version has no field patch"):
        regs.EXTENSION["version"].field("patch")


def test_identifiers_are_those_that_drivers_look_for():
    assert regs.identifier(0) == 0x1FC0_0006
    assert regs.identifier(1, channel=3) == 0x1FC1_0306
    assert regs.identifier(0, stream=True) == 0x1FC0_8006
    # The target number is also where the block is.
    for block in (regs.IRQ, regs.CONFIG, regs.SGDMA_COMMON):
        assert block["identifier"].reset == regs.identifier(block.base >> 12)


def test_status_errors_are_all_that_is_not_normal():
    normal = regs.Status.BUSY | regs.Status.DESCRIPTOR_STOPPED
    normal |= regs.Status.DESCRIPTOR_COMPLETED | regs.Status.IDLE_STOPPED
    for status in regs.Status:
        assert bool(status & regs.Status.errors()) != bool(status & normal), status.name


def test_committed_header_is_what_the_map_says():
    assert regs_header.main(["--check"]) == 0


def test_check_finds_a_stale_header_and_writing_mends_it(tmp_path, monkeypatch, capsys):
    header = tmp_path / "peerdma_regs.h"
    monkeypatch.setattr(regs_header, "HEADER", header)
    assert regs_header.main(["--check"]) == 1
    header.write_text(regs_header.render().replace("0x1fc00006", "0x1fc00007"))
    assert regs_header.main(["--check"]) == 1
    assert "run: make regs" in capsys.readouterr().err
    assert regs_header.main([]) == 0
    assert regs_header.main(["--check"]) == 0


def expected_macros() -> dict[str, int]:
    """Every number that the header has to define, computed from the map."""
    expected = {}
    for _, block in BLOCKS:
        for register in block.registers:
            prefix = f"{block.name}_{register.name}"
            expected[f"{prefix}_REG"] = register.offset
            if register.reset:
                expected[f"{prefix}_RESET"] = register.reset
            expected |= {f"{prefix}_{field.name}": field.mask for field in register.fields}
        if block not in (regs.CHANNEL, regs.SGDMA, regs.CAPTURE):
            expected[f"{block.name}_BASE"] = block.base
        if block in regs.BLOCKS_LAUNCH:
            expected[f"{block.name}_STRIDE"] = block.stride
    for name, block, c2h in (
        ("CHANNEL", regs.CHANNEL, regs.C2H_CHANNEL_BASE),
        ("SGDMA", regs.SGDMA, regs.C2H_SGDMA_BASE),
        ("CAPTURE", regs.CAPTURE, regs.C2H_CAPTURE_BASE),
    ):
        expected[f"{name}_STRIDE"] = block.stride
        for direction, base in (("H2C", block.base), ("C2H", c2h)):
            expected[f"{direction}_{name}_BASE"] = base
            if block is not regs.CAPTURE:
                expected[f"{direction}_{name}_IDENTIFIER"] = regs.identifier(base >> 12)
    expected |= {f"STATUS_{status.name}": status.value for status in regs.Status}
    expected["STATUS_ERRORS"] = regs.Status.errors().value
    expected |= {f"CAPABILITY_{each.name}": each.value for each in regs.Capability}
    expected |= {f"ERROR_{kind.name}": kind.value for kind in regs.ErrorKind}
    expected |= {f"WAITS_FOR_{each.name}": each.value for each in regs.WaitsFor}
    expected |= {f"LAUNCH_STATUS_{each.name}": each.value for each in regs.LaunchStatus}
    expected |= {f"LAUNCH_END_{each.name}": each.value for each in regs.LaunchEnd}
    expected |= {f"DOORBELL_{field.name}": field.mask for field in regs.DOORBELL_FIELDS}
    fields = regs.DOORBELL_ENTRY_FIELDS
    expected |= {f"DOORBELL_ENTRY_{field.name}": field.mask for field in fields}
    # Reset values of registers and bases of blocks have other names, given above.
    elsewhere = {"ALIGNMENTS_MM", "EXTENSION_MAGIC"}
    elsewhere |= {name for name in regs.__all__ if name.startswith("C2H_") and "PUSH" not in name}
    values = {name: getattr(regs, name) for name in regs.__all__ if name not in elsewhere}
    expected |= {name: value for name, value in values.items() if isinstance(value, int)}
    expected["PASS_THROUGH"] = int.from_bytes(b"PASS", "little")
    for name in ("BAR_USER", "BAR_DMA"):
        expected[name], expected[f"{name}_SIZE"] = getattr(regs, name)
    expected |= {f"DESC_{field.name}_MASK": field.mask for field in regs.DESC_CONTROL_FIELDS}
    return {f"PEERDMA_{name.upper()}": value for name, value in expected.items()}


def test_header_compiles_and_means_what_the_map_says(tmp_path):
    """The C compiler's view of every macro, and of the structures, is the map's."""
    text = regs_header.HEADER.read_text()
    expected = expected_macros()
    defined = set(re.findall(r"(PEERDMA_\w+)(?:\t| = )", text))
    assert defined == set(expected)
    layout = {}
    for struct, dtype in (
        ("descriptor", regs.DESCRIPTOR),
        ("frame_record", regs.FRAME_RECORD),
        ("launch_entry", regs.LAUNCH_ENTRY),
        ("launch_record", regs.LAUNCH_RECORD),
    ):
        for name, (_, offset) in dtype.fields.items():
            layout[f"offsetof(struct peerdma_{struct}, {name})"] = offset
        layout[f"sizeof(struct peerdma_{struct})"] = dtype.itemsize
    texts = "(const char *[])PEERDMA_WAITS_FOR_TEXTS"
    layout |= {f"strlen(({texts})[{each.value}])": len(each.text) for each in regs.WaitsFor}
    layout[f"sizeof({texts}) / sizeof(char *)"] = len(regs.WaitsFor)
    assert run_c(tmp_path, [*expected, *layout]) == [*expected.values(), *layout.values()]


def run_c(folder: Path, expressions: list[str]) -> list[int]:
    """What `expressions` are in C with the header included; compiled strictly in `folder`."""
    (folder / "linux").mkdir()
    for name, text in SHIM.items():
        (folder / "linux" / name).write_text(text)
    prints = "\n".join(f'printf("%llu\\n", (unsigned long long)({e}));' for e in expressions)
    source = folder / "main.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\n"
        "#include <peerdma_regs.h>\n"
        f"int main(void) {{\n{prints}\nreturn 0;\n}}\n"
    )
    compiler = shutil.which("cc") or shutil.which("c++")
    assert compiler, "no C compiler; `make test` says how to get one"
    options = ["-x", "c", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    includes = [f"-I{folder}", f"-I{regs_header.HEADER.parent}"]
    program = folder / "main"
    subprocess.run([compiler, *options, *includes, "-o", program, source], check=True, timeout=60)
    done = subprocess.run([program], capture_output=True, text=True, check=True, timeout=10)
    return [int(line) for line in done.stdout.split()]
