# SPDX-License-Identifier: BSD-2-Clause
"""Write the driver's register header from the register map: ``make regs``.

`driver/peerdma_regs.h` is committed, so that the driver reads and builds without Python;
``--check`` exits 1 when it differs from the map. Part of the checkout, not of the wheel.
"""

from __future__ import annotations

import argparse
import enum
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from peerdma import regs

__all__ = [
    "C2H_BASES",
    "DESCRIPTOR_DOC",
    "FRAME_RECORD_DOC",
    "HEADER",
    "LAUNCH_ENTRY_DOC",
    "LAUNCH_RECORD_DOC",
    "main",
    "render",
]

#: The header in the checkout.
HEADER = Path(__file__).resolve().parents[1] / "driver" / "peerdma_regs.h"

_TOP = """\
/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Registers and descriptors of the peerdma board.
 *
 * Generated from host/peerdma/regs.py by "make regs"; do not edit. What a register does is
 * described there.
 *
 * A register is at the base of its block, plus n strides for channel n of a block that is
 * repeated, plus its own offset (_REG). All are 32 bits wide.
 */
#ifndef PEERDMA_REGS_H
#define PEERDMA_REGS_H

#include <linux/bits.h>
#include <linux/build_bug.h>
#include <linux/types.h>
"""

#: The blocks that exist per direction: the base of the C2H instances.
C2H_BASES = {
    "channel": regs.C2H_CHANNEL_BASE,
    "sgdma": regs.C2H_SGDMA_BASE,
    "capture": regs.C2H_CAPTURE_BASE,
}

#: The content of the fields of structures in memory, in order.
DESCRIPTOR_DOC = {
    "control": "magic, count of adjacent descriptors and flags, PEERDMA_DESC_*",
    "length": "bytes to move, 1 to PEERDMA_DESC_MAX_LENGTH",
    "source": "bus address for H2C, card address for C2H",
    "destination": "card address for H2C, bus address for C2H",
    "next": "bus address of the next descriptor",
}
FRAME_RECORD_DOC = {
    "cycles": "clock cycles of the board when the frame began",
    "reserved": "anything",
    "bytes": "its length",
    "dropped": "frames that the user block has dropped so far",
    "crc": "CRC-32 of its bytes, as IEEE 802.3 has it",
    "number": "counted from 0, with PEERDMA_FRAME_NUMBER_VALID",
}
LAUNCH_ENTRY_DOC = {
    "ticket": "number of the job in its queue, counted by one",
    "slot": "which job, 0 to PEERDMA_LAUNCH_SLOTS - 1",
}
LAUNCH_RECORD_DOC = {
    "ticket": "that of its entry",
    "status": "how it ended, enum peerdma_launch_status or enum peerdma_error_kind",
}


def _define(name: str, value: str, comment: str = "") -> str:
    line = f"#define PEERDMA_{name.upper()}"
    line += "\t" * max(1, 6 - len(line) // 8) + value
    return f"{line}\t/* {comment} */" if comment else line


def _bits(lsb: int, width: int) -> str:
    return f"BIT({lsb})" if width == 1 else f"GENMASK({lsb + width - 1}, {lsb})"


def _value(value: int) -> str:
    return f"{value:#x}" if value < 1 << 32 else f"{value:#x}ULL"


def _constants() -> Iterator[str]:
    yield "/* BARs, and what is at fixed places in them and on the card */"
    for name in ("BAR_USER", "BAR_DMA"):
        number, size = getattr(regs, name)
        yield _define(name, str(number))
        yield _define(f"{name}_SIZE", _value(size))
    for name in (
        "USER_BLOCK_BASE",
        "USER_BLOCK_SIZE",
        "DOORBELL_BASE",
        "DOORBELL_STRIDE",
        "MSIX_TABLE_OFFSET",
        "MSIX_PBA_OFFSET",
        "H2C_PUSH_BASE",
        "C2H_PUSH_BASE",
        "PUSH_STRIDE",
    ):
        yield _define(name, _value(getattr(regs, name)))
    for name in ("PUSH_DESCRIPTORS", "LAUNCH_SLOTS", "LAUNCH_QUEUES", "LAUNCH_PLACES"):
        yield _define(name, str(getattr(regs, name)))
    yield _define("MSIX_ENTRIES", str(regs.MSIX_ENTRIES))
    yield _define("CARD_RAM_SIZE", _value(regs.CARD_RAM_SIZE), "default build")
    yield _define("STREAM_WINDOW", _value(regs.STREAM_WINDOW))
    yield _define("QUARANTINE_MS", str(regs.QUARANTINE_MS), "of the board's time, at most")
    name = regs.four_characters(regs.PASS_THROUGH)
    yield _define("PASS_THROUGH", _value(name), "in register user_block")


def _block(block: regs.Block, bar: str) -> Iterator[str]:
    name = block.name
    yield f"/* {block.doc} (PEERDMA_{bar}) */"
    bases = {name: block.base}
    if name in C2H_BASES:
        bases = {f"H2C_{name}": block.base, f"C2H_{name}": C2H_BASES[name]}
    if name in C2H_BASES or block in regs.BLOCKS_LAUNCH:
        yield _define(f"{name}_STRIDE", _value(block.stride))
    for instance, base in bases.items():
        yield _define(f"{instance}_BASE", f"{base:#06x}")
    for register in block.registers:
        prefix = f"{name}_{register.name}"
        yield _define(f"{prefix}_REG", f"{register.offset:#04x}", register.access.value)
        if name in C2H_BASES and register.name == "identifier":
            # The target number in an identifier is bits 15:12 of the block's address.
            for instance, base in bases.items():
                reset = regs.identifier(base >> 12)
                yield _define(f"{instance}_IDENTIFIER", _value(reset), "channel 0")
        elif register.reset:
            yield _define(f"{prefix}_RESET", _value(register.reset))
        for field in register.fields:
            yield _define(f"{prefix}_{field.name}", _bits(field.lsb, field.width))


def _flags(prefix: str, flags: Iterable[enum.IntFlag]) -> Iterator[str]:
    for flag in flags:
        yield _define(f"{prefix}_{flag.name}", _bits(flag.value.bit_length() - 1, 1))


def _status() -> Iterator[str]:
    yield "/* Bits of the channel status and interrupt enable registers */"
    yield from _flags("STATUS", regs.Status)
    yield _define("STATUS_ERRORS", _value(regs.Status.errors().value))


def _capabilities() -> Iterator[str]:
    yield "/* Bits of the extension block's capabilities register */"
    yield from _flags("CAPABILITY", regs.Capability)


def _enum(name: str, doc: str, prefix: str, members: type[enum.IntEnum]) -> Iterator[str]:
    yield f"/**\n * enum peerdma_{name} - {doc}"
    for member in members:
        yield f" * @PEERDMA_{prefix}_{member.name}: {member.name.lower().replace('_', ' ')}"
    yield f" */\nenum peerdma_{name} {{"
    yield from (f"\tPEERDMA_{prefix}_{member.name} = {member.value}," for member in members)
    yield "};"


def _error_kinds() -> Iterator[str]:
    doc = "kind in the extension block's error_info register"
    return _enum("error_kind", doc, "ERROR", regs.ErrorKind)


def _waits_for() -> Iterator[str]:
    doc = "what a channel waits for, in the extension block's waits_for register"
    yield from _enum("waits_for", doc, "WAITS_FOR", regs.WaitsFor)
    yield "\n/* Texts of enum peerdma_waits_for, in its order */"
    yield "#define PEERDMA_WAITS_FOR_TEXTS { \\"
    yield from (f'\t"{each.text}", \\' for each in regs.WaitsFor)
    yield "}"


def _launch() -> Iterator[str]:
    yield "/* A doorbell, and a shadow tail */"
    for field in regs.DOORBELL_FIELDS:
        yield _define(f"DOORBELL_{field.name}", _bits(field.lsb, field.width))
    yield ""
    yield "/* The upper half of a doorbell of 64 bits */"
    for field in regs.DOORBELL_ENTRY_FIELDS:
        yield _define(f"DOORBELL_ENTRY_{field.name}", _bits(field.lsb, field.width))
    yield ""
    yield from _enum("launch_status", "status of a record", "LAUNCH_STATUS", regs.LaunchStatus)
    yield ""
    doc = "end in the state register of a launch queue"
    yield from _enum("launch_end", doc, "LAUNCH_END", regs.LaunchEnd)
    yield ""
    doc = "what a GPU writes into a submission ring"
    yield from _struct("launch_entry", doc, regs.LAUNCH_ENTRY, LAUNCH_ENTRY_DOC)
    yield ""
    doc = "what the board writes when a job has ended"
    yield from _struct("launch_record", doc, regs.LAUNCH_RECORD, LAUNCH_RECORD_DOC)


def _descriptor() -> Iterator[str]:
    yield "/* Control word and length of a descriptor */"
    yield from (
        _define(name, _bits(getattr(regs, name).bit_length() - 1, 1))
        for name in ("DESC_STOP", "DESC_COMPLETED", "DESC_EOP")
    )
    for field in regs.DESC_CONTROL_FIELDS:
        yield _define(f"DESC_{field.name}_MASK", _bits(field.lsb, field.width))
    yield _define("DESC_MAGIC", _value(regs.DESC_MAGIC))
    yield _define("DESC_MAX_LENGTH", _value(regs.DESC_MAX_LENGTH))
    yield ""
    doc = "one piece of a transfer, in host memory"
    yield from _struct("descriptor", doc, regs.DESCRIPTOR, DESCRIPTOR_DOC)


def _frame_record() -> Iterator[str]:
    yield "/* Set in the number of each record of a frame */"
    valid = regs.FRAME_NUMBER_VALID
    yield _define("FRAME_NUMBER_VALID", _bits(valid.bit_length() - 1, 1))
    yield ""
    doc = "what a frame was, written behind its data"
    yield from _struct("frame_record", doc, regs.FRAME_RECORD, FRAME_RECORD_DOC)


def _struct(name: str, doc: str, dtype: np.dtype, fields: dict[str, str]) -> Iterator[str]:
    names = dtype.names or ()
    assert names == tuple(fields), f"a field of {name} has no description"
    yield "/**"
    yield f" * struct peerdma_{name} - {doc}"
    yield from (f" * @{field}: {what}" for field, what in fields.items())
    yield " *"
    yield f" * Aligned to its size, {dtype.itemsize} bytes."
    yield " */"
    yield f"struct peerdma_{name} {{"
    yield from (f"\t{_c_type(dtype[field])} {field};" for field in names)
    yield "};"
    yield f"static_assert(sizeof(struct peerdma_{name}) == {dtype.itemsize});"


def _c_type(dtype: np.dtype) -> str:
    return {"<u4": "__le32", "<u8": "__le64"}[dtype.newbyteorder("<").str]


def render() -> str:
    """The text of the header."""
    parts = [_constants()]
    parts += [_block(block, "BAR_DMA") for block in regs.BLOCKS_DMA]
    parts += [_block(block, "BAR_DMA") for block in regs.BLOCKS_LAUNCH]
    parts += [_block(block, "BAR_USER") for block in regs.BLOCKS_USER]
    parts += [_status(), _capabilities(), _error_kinds(), _waits_for()]
    parts += [_descriptor(), _frame_record(), _launch()]
    body = "\n\n".join("\n".join(part) for part in parts)
    return f"{_TOP}\n{body}\n\n#endif /* PEERDMA_REGS_H */\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the header, or compare it; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    if not parser.parse_args(arguments).check:
        HEADER.write_text(render())
    elif not HEADER.exists() or HEADER.read_text() != render():
        print(f"{HEADER.name} differs from host/peerdma/regs.py; run: make regs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
