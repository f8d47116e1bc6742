# SPDX-License-Identifier: BSD-2-Clause
"""The register map as pages: one of all registers by address, and one for each block."""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Iterator

import numpy as np

from peerdma import regs
from tools.regs_header import (
    C2H_BASES,
    DESCRIPTOR_DOC,
    FRAME_RECORD_DOC,
    LAUNCH_ENTRY_DOC,
    LAUNCH_RECORD_DOC,
)
from tools.site.markdown import anchored, code, contents, link, plain, slug, table

__all__ = ["BLOCKS", "pages"]

#: Blocks by the BAR that they are in.
BLOCKS = {
    "DMA": (*regs.BLOCKS_DMA, *regs.BLOCKS_LAUNCH),
    "user": (*regs.BLOCKS_USER, *regs.BLOCKS_OPTIONAL),
}
_BARS = {"DMA": regs.BAR_DMA, "user": regs.BAR_USER}
#: What fills a register or field, where its description names the type.
_VALUES = (
    regs.Status,
    regs.Capability,
    regs.ErrorKind,
    regs.WaitsFor,
    regs.LaunchStatus,
    regs.LaunchEnd,
)

_ACCESS = {
    regs.Access.RO: "read only",
    regs.Access.RW: "read and write",
    regs.Access.RC: "read only; reading clears",
    regs.Access.RW1C: "read; writing 1 clears the bit",
    regs.Access.W1S: "write only; writing 1 sets the bit",
    regs.Access.W1C: "write only; writing 1 clears the bit",
    regs.Access.WO: "write only: a command",
    regs.Access.ADD: "read; writing adds to the value",
}

_INDEX = f"""\
# Register map

Version {regs.EXTENSION_VERSION[0]}.{regs.EXTENSION_VERSION[1]}, made from `host/peerdma/regs.py`,
which gateware, library and driver use as well. All registers are 32 bits wide. The DMA BAR follows
the programming interface of Xilinx' DMA/Bridge Subsystem for PCI Express (PG195); the extension
block and the user BAR are this project's own.

"""

_PUSH = f"""\
Where the extension block has `Capability.PUSH`, software can write up to {regs.PUSH_DESCRIPTORS}
descriptors into a window of the channel, which then does not fetch them from memory:
[how](../docs/gateware.md#pushed-descriptors).

"""


def pages() -> dict[str, str]:
    """Markdown by the name of its file."""
    found = {_page(each): _block(each, bar) for bar, blocks in BLOCKS.items() for each in blocks}
    index = _INDEX + "".join(_maps()) + _structures() + _values()
    return {"registers.md": index + contents("", found), **found}


def _page(block: regs.Block) -> str:
    return f"registers-{slug(block.name)}.md"


def _bases(block: regs.Block) -> dict[str, int]:
    """The address of the block's first instance, by direction where there are two."""
    if block.name in C2H_BASES:
        return {"H2C": block.base, "C2H": C2H_BASES[block.name]}
    return {"": block.base}


def _addresses(block: regs.Block, register: regs.Register) -> str:
    return ", ".join(
        f"{way} {code(f'{base + register.offset:#06x}')}".strip()
        for way, base in _bases(block).items()
    )


def _maps() -> Iterator[str]:
    """A table of each BAR's areas, then one of all its registers."""
    for bar, blocks in BLOCKS.items():
        number, size = _BARS[bar]
        yield f"## BAR {number}: {bar} ({size // 1024} KiB)\n\n"
        areas = [
            (base, _size(block), f"[{block.name}]({_page(block)}) {way}".strip(), block.doc)
            for block in blocks
            for way, base in _bases(block).items()
        ]
        areas += [(at, f"{length:#x}", name, doc) for at, length, name, doc in _others(bar)]
        rows = [
            (code(f"{at:#06x}"), length, name, plain(doc))
            for at, length, name, doc in sorted(areas)
        ]
        yield table(("at", "bytes", "area", "description"), rows)
        yield f"### All registers of the {bar} BAR\n\n"
        yield table(
            ("at", "register", "access", "description"),
            (
                (
                    code(f"{base + register.offset:#06x}"),
                    link(
                        code(f"{block.name}.{register.name}"),
                        slug(block.name, register.name),
                        _page(block),
                    )
                    + (f" {way}" if way else ""),
                    register.access.value,
                    _text(register.doc),
                )
                for block in blocks
                for way, base in _bases(block).items()
                for register in block.registers
            ),
        )


def _size(block: regs.Block) -> str:
    each = f"{block.stride:#x}"
    return f"{each} a channel" if block.name in C2H_BASES else each


def _others(bar: str) -> Iterator[tuple[int, int, str, str]]:
    """Areas of a BAR that are no registers of a block: address, bytes, name, description."""
    if bar == "DMA":
        entries = regs.MSIX_ENTRIES
        yield regs.MSIX_TABLE_OFFSET, 16 * entries, "MSI-X table", f"{entries} entries"
        yield regs.MSIX_PBA_OFFSET, entries // 8, "MSI-X pending bits", "one for each entry"
        for way, base in (("H2C", regs.H2C_PUSH_BASE), ("C2H", regs.C2H_PUSH_BASE)):
            name = f"[push window](#pushed-descriptors) {way}"
            yield base, regs.PUSH_STRIDE, name, "of the first channel; the next ones follow it"
    else:
        base, size = regs.USER_BLOCK_BASE, regs.USER_BLOCK_SIZE
        yield base, size, "user block", "registers of the first pair's; those of the next follow"
        size = regs.LAUNCH_QUEUES * regs.DOORBELL_STRIDE
        text = f"[how a GPU starts jobs](../docs/queue.md): a page of {regs.DOORBELL_STRIDE} bytes"
        yield regs.DOORBELL_BASE, size, "doorbells", f"{text} for each launch queue"


def _block(block: regs.Block, bar: str) -> str:
    number, _ = _BARS[bar]
    places = ", ".join(
        f"{way} from {code(f'{base:#06x}')}".strip() for way, base in _bases(block).items()
    )
    repeated = (
        f"; that of channel *n* is {code(f'{block.stride:#x}')} × *n* further on"
        if block.name in C2H_BASES
        else ""
    )
    lines = [f"# Registers: {block.name}\n\n{_text(block.doc)}. "]
    lines += [f"In BAR {number}, {places}{repeated}. [All blocks](registers.md)\n\n"]
    rows = (
        (
            code(f"{register.offset:#04x}"),
            link(code(register.name), slug(block.name, register.name)),
            register.access.value,
            _text(register.doc),
        )
        for register in block.registers
    )
    lines += [table(("offset", "register", "access", "description"), rows)]
    return "".join(lines) + "".join(_register(block, each) for each in block.registers)


def _register(block: regs.Block, register: regs.Register) -> str:
    name = slug(block.name, register.name)
    facts = [_addresses(block, register), _ACCESS[register.access]]
    if register.alias:
        facts.append(f"works on {link(code(register.alias), slug(block.name, register.alias))}")
    if register.reset:
        facts.append(f"after reset {code(f'{register.reset:#x}')}")
    if register.access is not regs.Access.RO and register.writable != 0xFFFF_FFFF:
        facts.append(f"bits that can be written {code(f'{register.writable:#010x}')}")
    text = f"({name})=\n## {register.name}\n\n{_text(register.doc)}.\n\n{'; '.join(facts)}.\n\n"
    if register.fields:
        rows = (
            (_bits(field), anchored(code(field.name), f"{name}-{slug(field.name)}"),
             _text(field.doc))
            for field in register.fields
        )  # fmt: skip
        text += table(("bits", "field", "description"), rows)
    return text


def _bits(field: regs.Field) -> str:
    return str(field.lsb) if field.width == 1 else f"{field.lsb + field.width - 1}:{field.lsb}"


def _text(doc: str) -> str:
    """A description, with links to the types that it names."""
    names = "|".join(each.__name__ for each in _VALUES)
    return re.sub(
        rf"\b({names})\b", lambda found: link(found[1], slug(found[1]), "registers.md"), plain(doc)
    )


def _structures() -> str:
    """Structures in memory."""
    flags = [
        regs.Field(name, getattr(regs, f"DESC_{name.upper()}").bit_length() - 1)
        for name in ("stop", "completed", "eop")
    ]
    control = (
        (_bits(field), code(field.name), plain(field.doc))
        for field in (*flags, *regs.DESC_CONTROL_FIELDS)
    )
    return (
        _structure("Descriptor", regs.DESCRIPTOR, DESCRIPTOR_DOC)
        + f"`control` (`DESC_MAGIC` is {code(f'{regs.DESC_MAGIC:#x}')}, `DESC_MAX_LENGTH` "
        + f"{code(f'{regs.DESC_MAX_LENGTH:#x}')}):\n\n"
        + table(("bits", "field", "description"), control)
        + f"### Pushed descriptors\n\n{_PUSH}"
        + _structure("Frame record", regs.FRAME_RECORD, FRAME_RECORD_DOC)
        + _structure("Entry of a launch queue", regs.LAUNCH_ENTRY, LAUNCH_ENTRY_DOC)
        + _structure("Record of a launch queue", regs.LAUNCH_RECORD, LAUNCH_RECORD_DOC)
    )


def _structure(title: str, dtype: np.dtype, docs: dict[str, str]) -> str:
    """A section with the fields of a structure in memory."""
    fields = dtype.fields or {}
    rows = ((str(fields[name][1]), code(name), str(8 * fields[name][0].itemsize), plain(doc))
            for name, doc in docs.items())  # fmt: skip
    text = f"## {title}\n\n{dtype.itemsize} bytes in memory, aligned to their size.\n\n"
    return text + table(("byte", "field", "bits", "description"), rows)


def _values() -> str:
    """Tables of the types whose values registers have."""
    text = "## Values of registers\n\n"
    for each in _VALUES:
        flags, comments = issubclass(each, enum.IntFlag), _comments(each)
        rows = (
            (str(member.bit_length() - 1 if flags else int(member)),
             anchored(code(str(member.name)), slug(each.__name__, str(member.name))),
             plain(getattr(member, "text", comments.get(str(member.name), ""))))
            for member in each
        )  # fmt: skip
        summary = plain((each.__doc__ or "").splitlines()[0])
        text += f"({slug(each.__name__)})=\n### {each.__name__}\n\n{summary}\n\n"
        text += table(("bit" if flags else "value", "name", "description"), rows)
    return text


def _comments(kind: type) -> dict[str, str]:
    """The comments `#:` above the members of an enumeration, by the member's name."""
    source = inspect.getsource(kind)
    found = re.findall(r"((?:^ +#: .*\n)+) +(\w+) =", source, flags=re.MULTILINE)
    return {name: re.sub(r"^ +#: ", "", text, flags=re.MULTILINE) for text, name in found}
