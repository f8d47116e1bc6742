# SPDX-License-Identifier: BSD-2-Clause
"""The register and descriptor map: the one source that gateware, driver and host share.

Plain data, no third-party import but numpy. `hw/` elaborates its register banks from these
objects, the library and the simulation import the offsets, and `driver/peerdma_regs.h` is
generated from them (``make regs``).

The DMA BAR follows the programming interface of Xilinx' "DMA/Bridge Subsystem for PCI Express"
(PG195, register space chapter); the extension block at 0x9000 and the user BAR are our own.
All registers are 32 bits wide, all offsets are bytes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

__all__ = [
    "ALIGNMENTS_MM",
    "BAR_DMA",
    "BAR_USER",
    "BLOCKS_DMA",
    "BLOCKS_LAUNCH",
    "BLOCKS_OPTIONAL",
    "BLOCKS_USER",
    "C2H_CAPTURE_BASE",
    "C2H_CHANNEL_BASE",
    "C2H_PUSH_BASE",
    "C2H_SGDMA_BASE",
    "CAPTURE",
    "CARD_RAM_SIZE",
    "CHANNEL",
    "CONFIG",
    "DESCRIPTOR",
    "DESC_COMPLETED",
    "DESC_CONTROL_FIELDS",
    "DESC_EOP",
    "DESC_MAGIC",
    "DESC_MAX_LENGTH",
    "DESC_STOP",
    "DOORBELL_BASE",
    "DOORBELL_ENTRY_FIELDS",
    "DOORBELL_FIELDS",
    "DOORBELL_STRIDE",
    "EXTENSION",
    "EXTENSION_MAGIC",
    "EXTENSION_VERSION",
    "FRAME_NUMBER_VALID",
    "FRAME_RECORD",
    "H2C_PUSH_BASE",
    "IRQ",
    "LAUNCH_ENTRY",
    "LAUNCH_PLACES",
    "LAUNCH_QUEUE",
    "LAUNCH_QUEUES",
    "LAUNCH_RECORD",
    "LAUNCH_SLOT",
    "LAUNCH_SLOTS",
    "LAUNCH_TICKET",
    "MAILBOX",
    "MSIX_ENTRIES",
    "MSIX_PBA_OFFSET",
    "MSIX_TABLE_OFFSET",
    "PASS_THROUGH",
    "PATTERN_SOURCE",
    "PATTERN_SOURCE_NAME",
    "PUSH_DESCRIPTORS",
    "PUSH_STRIDE",
    "QUARANTINE_MS",
    "SGDMA",
    "SGDMA_COMMON",
    "STREAM_WINDOW",
    "USER",
    "USER_BLOCK_BASE",
    "USER_BLOCK_SIZE",
    "Access",
    "Block",
    "Capability",
    "ErrorKind",
    "Field",
    "LaunchEnd",
    "LaunchStatus",
    "Register",
    "Status",
    "WaitsFor",
    "four_characters",
    "identifier",
    "user_block_text",
    "waits_for_text",
]


class Access(enum.Enum):
    """How software may use a register."""

    #: Read only: the value comes from the hardware.
    RO = "ro"
    #: Read and write: the register stores what was written.
    RW = "rw"
    #: Read only, and reading clears what can be cleared.
    RC = "rc"
    #: Read; writing 1 to a bit clears it.
    RW1C = "rw1c"
    #: Write only: 1 bits set the bits of `alias`.
    W1S = "w1s"
    #: Write only: 1 bits clear the bits of `alias`.
    W1C = "w1c"
    #: Write only: the write is a command.
    WO = "wo"
    #: Read; writing adds to the value.
    ADD = "add"


@dataclass(frozen=True)
class Field:
    """Bits ``[lsb + width - 1 : lsb]`` of a register."""

    name: str
    lsb: int
    width: int = 1
    doc: str = ""

    @property
    def mask(self) -> int:
        """The field's bits within the register."""
        return ((1 << self.width) - 1) << self.lsb

    def get(self, value: int) -> int:
        """The field's value in the register value `value`."""
        return (value & self.mask) >> self.lsb

    def put(self, value: int) -> int:
        """`value` shifted to the field's place; ValueError if it does not fit."""
        if value < 0 or value >> self.width:
            raise ValueError(f"{self.name} is {self.width} bits wide, not enough for {value:#x}")
        return value << self.lsb


@dataclass(frozen=True)
class Register:
    """One 32-bit register at byte `offset` from its block's base.

    `writable` masks the bits that a write can change; the others are dropped and read 0.
    `alias` names the register that a W1S/W1C/RC register works on.
    """

    name: str
    offset: int
    access: Access
    doc: str
    reset: int = 0
    writable: int = 0xFFFF_FFFF
    alias: str | None = None
    fields: tuple[Field, ...] = ()

    def field(self, name: str) -> Field:
        """The field called `name`; KeyError if there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(f"{self.name} has no field {name}")


@dataclass(frozen=True)
class Block:
    """A group of registers at byte `base` of its BAR, repeated per channel every `stride` bytes."""

    name: str
    base: int
    registers: tuple[Register, ...]
    doc: str
    size: int = 0x100
    stride: int = 0x100

    def __getitem__(self, name: str) -> Register:
        for register in self.registers:
            if register.name == name:
                return register
        raise KeyError(f"block {self.name} has no register {name}")

    def address(self, name: str, channel: int = 0, base: int | None = None) -> int:
        """Byte offset within the BAR of register `name` of instance `channel`."""
        return (self.base if base is None else base) + self.stride * channel + self[name].offset


def identifier(target: int, channel: int = 0, stream: bool = False) -> int:
    """The identifier register of target block `target` (PG195: version 6 is 2017.1 and later)."""
    return 0x1FC0_0006 | target << 16 | int(stream) << 15 | channel << 8


# BAR numbers and sizes ----------------------------------------------------------------------

#: (BAR number, size in bytes) of the user registers and pages.
BAR_USER = (0, 16 * 1024)
#: (BAR number, size in bytes) of the DMA registers.
BAR_DMA = (1, 64 * 1024)

#: Bytes of card RAM in the default build.
CARD_RAM_SIZE = 64 * 1024
#: Card addresses with bit 63 set select the user stream instead of card RAM.
STREAM_WINDOW = 1 << 63

MSIX_ENTRIES = 32
MSIX_TABLE_OFFSET = 0x8000
MSIX_PBA_OFFSET = 0x8FE0

#: Value of the alignments register of a memory-mapped channel: any byte, any length, 64 bits.
ALIGNMENTS_MM = 0x0001_0140

# Channel blocks (targets 0 and 1) -----------------------------------------------------------


class Status(enum.IntFlag):
    """Bits of the channel status registers (PG195, H2C/C2H channel status)."""

    BUSY = 1 << 0
    DESCRIPTOR_STOPPED = 1 << 1
    DESCRIPTOR_COMPLETED = 1 << 2
    ALIGN_MISMATCH = 1 << 3
    MAGIC_STOPPED = 1 << 4
    INVALID_LENGTH = 1 << 5
    IDLE_STOPPED = 1 << 6
    #: The card address does not decode. H2C also: the data read was answered Unsupported Request,
    #: or not at all.
    READ_UNSUPPORTED = 1 << 9
    READ_ABORT = 1 << 10
    READ_PARITY = 1 << 11
    READ_POISONED = 1 << 12
    READ_UNEXPECTED = 1 << 13
    #: H2C: the card address does not decode.
    WRITE_DECODE = 1 << 14
    WRITE_SLAVE = 1 << 15
    DESC_UNSUPPORTED = 1 << 19
    DESC_ABORT = 1 << 20
    DESC_PARITY = 1 << 21
    DESC_POISONED = 1 << 22
    DESC_UNEXPECTED = 1 << 23

    @classmethod
    def errors(cls) -> Status:
        """Every bit that reports a failure."""
        return cls(0x00FF_FE38)


_CONTROL_FIELDS = (
    Field("run", 0, doc="0 to 1 starts at the first descriptor; 1 to 0 stops"),
    Field("ie_descriptor_stopped", 1),
    Field("ie_descriptor_completed", 2),
    Field("ie_align_mismatch", 3),
    Field("ie_magic_stopped", 4),
    Field("ie_invalid_length", 5),
    Field("ie_idle_stopped", 6),
    Field("ie_read_error", 9, 5),
    Field("ie_write_error", 14, 5),
    Field("ie_desc_error", 19, 5),
    Field("non_inc_mode", 25, doc="fixed card address: not supported, reads 0"),
    Field("pollmode_wb_enable", 26),
    Field("stream_wb_disable", 27),
)
_CONTROL_BITS = 0x0CFF_FE7F
_STATUS_BITS = 0x00FF_FE7E
_WIDE_COUNT = (Field("high", 0, 10), Field("saturated", 16))

CHANNEL = Block(
    "channel",
    0x0000,
    (
        Register("identifier", 0x00, Access.RO, "Block, channel and version"),
        Register(
            "control",
            0x04,
            Access.RW,
            "Run, and which events are logged into status",
            writable=_CONTROL_BITS,
            fields=_CONTROL_FIELDS,
        ),
        Register("control_w1s", 0x08, Access.W1S, "Sets bits of control", alias="control"),
        Register("control_w1c", 0x0C, Access.W1C, "Clears bits of control", alias="control"),
        Register(
            "status",
            0x40,
            Access.RW1C,
            "Busy and sticky events, see Status; cleared when Run rises",
            writable=_STATUS_BITS,
        ),
        Register("status_rc", 0x44, Access.RC, "Status; reading clears bits 23:1", alias="status"),
        Register(
            "completed_count",
            0x48,
            Access.RO,
            "Descriptors finished since Run rose, one that ended in an error included",
        ),
        Register(
            "alignments", 0x4C, Access.RO, "Address and length granularity", reset=ALIGNMENTS_MM
        ),
        Register("writeback_lo", 0x88, Access.RW, "Poll-mode writeback address [31:0]"),
        Register("writeback_hi", 0x8C, Access.RW, "Poll-mode writeback address [63:32]"),
        Register(
            "interrupt_enable",
            0x90,
            Access.RW,
            "Which status bits interrupt, see Status",
            writable=_STATUS_BITS,
        ),
        Register(
            "interrupt_enable_w1s",
            0x94,
            Access.W1S,
            "Sets bits of interrupt_enable",
            alias="interrupt_enable",
        ),
        Register(
            "interrupt_enable_w1c",
            0x98,
            Access.W1C,
            "Clears bits of interrupt_enable",
            alias="interrupt_enable",
        ),
        Register(
            "perf_control",
            0xC0,
            Access.RW,
            "Performance counters",
            writable=0x5,
            fields=(
                Field("auto", 0, doc="stop counting when a Stop descriptor finishes"),
                Field("clear", 1, doc="write 1: counters to 0"),
                Field("run", 2, doc="count while the channel is busy"),
            ),
        ),
        Register("perf_cycles_lo", 0xC4, Access.RO, "Busy clock cycles [31:0]"),
        Register(
            "perf_cycles_hi", 0xC8, Access.RO, "Busy clock cycles [41:32]", fields=_WIDE_COUNT
        ),
        Register("perf_data_lo", 0xCC, Access.RO, "64-bit data beats [31:0]"),
        Register("perf_data_hi", 0xD0, Access.RO, "64-bit data beats [41:32]", fields=_WIDE_COUNT),
    ),
    "One DMA channel. H2C channels at 0x0n00, C2H channels at 0x1n00",
)
#: Byte offset of the C2H channel blocks; the H2C ones are at ``CHANNEL.base``.
C2H_CHANNEL_BASE = 0x1000

# IRQ block (target 2) -----------------------------------------------------------------------


def _vectors(name: str, offset: int, count: int, what: str) -> tuple[Register, ...]:
    return tuple(
        Register(
            f"{name}{index}",
            offset + 4 * index,
            Access.RW,
            f"Vector numbers of {what} interrupts {4 * index} to {4 * index + 3}",
            writable=0x1F1F_1F1F,
        )
        for index in range(count)
    )


IRQ = Block(
    "irq",
    0x2000,
    (
        Register("identifier", 0x00, Access.RO, "Block and version", reset=identifier(2)),
        Register(
            "user_enable", 0x04, Access.RW, "User interrupt enable, a bit each", writable=0xFFFF
        ),
        Register("user_enable_w1s", 0x08, Access.W1S, "Sets bits", alias="user_enable"),
        Register("user_enable_w1c", 0x0C, Access.W1C, "Clears bits", alias="user_enable"),
        Register(
            "channel_enable",
            0x10,
            Access.RW,
            "Channel interrupt enable: H2C channels from bit 0, then C2H channels",
            writable=0xFF,
        ),
        Register("channel_enable_w1s", 0x14, Access.W1S, "Sets bits", alias="channel_enable"),
        Register("channel_enable_w1c", 0x18, Access.W1C, "Clears bits", alias="channel_enable"),
        Register("user_request", 0x40, Access.RO, "User source AND enable"),
        Register("channel_request", 0x44, Access.RO, "Channel source AND enable"),
        Register("user_pending", 0x48, Access.RO, "User source"),
        Register("channel_pending", 0x4C, Access.RO, "Channel source"),
        *_vectors("user_vector", 0x80, 4, "user"),
        *_vectors("channel_vector", 0xA0, 2, "channel"),
    ),
    "Interrupt enables, requests and vector numbers",
)

# Config block (target 3) --------------------------------------------------------------------

CONFIG = Block(
    "config",
    0x3000,
    (
        Register("identifier", 0x00, Access.RO, "Block and version", reset=identifier(3)),
        Register("busdev", 0x04, Access.RO, "Bus, device and function number"),
        Register("max_payload", 0x08, Access.RO, "Max payload size, PCIe encoding"),
        Register("max_read_request", 0x0C, Access.RO, "Max read request size, PCIe encoding"),
        Register("system_id", 0x10, Access.RO, "System id", reset=0xFF01),
        Register("msi_enable", 0x14, Access.RO, "Bit 0 MSI, bit 1 MSI-X enabled"),
        Register("data_width", 0x18, Access.RO, "Data path: 64 << n bits"),
        Register("pcie_control", 0x1C, Access.RW, "Bit 0: relaxed ordering on data reads", 1, 0x1),
        Register(
            "user_max_payload", 0x40, Access.RW, "[2:0] limit, [6:4] effective", 0x55, writable=0x7
        ),
        Register(
            "user_max_read_request",
            0x44,
            Access.RW,
            "[2:0] limit, [6:4] effective",
            0x55,
            writable=0x7,
        ),
        Register("write_flush_timeout", 0x60, Access.RW, "Stream flush timeout", writable=0x1F),
    ),
    "PCIe configuration as the engine sees it",
)

# SGDMA blocks (targets 4 and 5) and common block (target 6) ---------------------------------

SGDMA = Block(
    "sgdma",
    0x4000,
    (
        Register("identifier", 0x00, Access.RO, "Block, channel and version"),
        Register("descriptor_lo", 0x80, Access.RW, "First descriptor [31:0]", writable=0xFFFF_FFE0),
        Register("descriptor_hi", 0x84, Access.RW, "First descriptor [63:32]"),
        Register(
            "descriptor_adjacent",
            0x88,
            Access.RW,
            "How many more descriptors follow the first contiguously",
            writable=0x3F,
        ),
        Register(
            "descriptor_credits",
            0x8C,
            Access.ADD,
            "Descriptors that may be fetched in credit mode",
            writable=0x3FF,
        ),
    ),
    "First descriptor of a channel. H2C channels at 0x4n00, C2H channels at 0x5n00",
)
#: Byte offset of the C2H SGDMA blocks; the H2C ones are at ``SGDMA.base``.
C2H_SGDMA_BASE = 0x5000

_HALT_BITS = 0x000F_000F
SGDMA_COMMON = Block(
    "sgdma_common",
    0x6000,
    (
        Register("identifier", 0x00, Access.RO, "Block and version", reset=identifier(6)),
        Register(
            "halt",
            0x10,
            Access.RW,
            "[3:0] H2C, [19:16] C2H: no descriptor fetch",
            writable=_HALT_BITS,
        ),
        Register("halt_w1s", 0x14, Access.W1S, "Sets bits of halt", alias="halt"),
        Register("halt_w1c", 0x18, Access.W1C, "Clears bits of halt", alias="halt"),
        Register(
            "credit_enable",
            0x20,
            Access.RW,
            "[3:0] H2C, [19:16] C2H: credit mode",
            writable=_HALT_BITS,
        ),
        Register("credit_enable_w1s", 0x24, Access.W1S, "Sets bits", alias="credit_enable"),
        Register("credit_enable_w1c", 0x28, Access.W1C, "Clears bits", alias="credit_enable"),
    ),
    "Descriptor fetch control of all channels",
)

# Extension block (target 9) -----------------------------------------------------------------

#: "PDMA" as little-endian bytes.
EXTENSION_MAGIC = 0x414D_4450
#: (major, minor): another major is refused, a newer minor only adds.
EXTENSION_VERSION = (1, 4)

#: Name of the user block that hands the stream on as it is.
PASS_THROUGH = "PASS"
#: Name of the user block that makes frames of test data.
PATTERN_SOURCE_NAME = "PATN"


def four_characters(text: str) -> int:
    """Four ASCII characters as the register that holds them, in memory order."""
    value = text.encode("ascii")
    if len(value) != 4:
        raise ValueError(f"a name has four characters, not {text!r}")
    return int.from_bytes(value, "little")


class Capability(enum.IntFlag):
    """Bits of the extension block's capabilities register."""

    #: The stream window and full-duplex copies are there.
    STREAM = 1 << 0
    #: The mailbox page timestamps writes.
    MAILBOX = 1 << 1
    #: Poll-mode writeback is there.
    WRITEBACK = 1 << 2
    #: The first descriptors of a run can be pushed, see `PUSH_DESCRIPTORS`.
    PUSH = 1 << 3
    #: The frames of the user block can have records, see `FRAME_RECORD`.
    FRAME_RECORDS = 1 << 4
    #: Each channel has an error capture of its own, see `CAPTURE`.
    CAPTURE = 1 << 6
    #: Launch queues are there, see `LAUNCH_QUEUE`. Bit 5 was that of those of 1.3, which have one
    #: ticket at work at a time: software for these would release the memory of a slot too early.
    LAUNCH = 1 << 7
    #: The gateware was built to have more reads under way than its PCIe block's receive buffer
    #: holds the completions of.
    OVERCOMMIT = 1 << 8
    #: It has stopped that until the next reset: the block's receive port fell too far behind the
    #: link, or a read was not answered.
    OVERCOMMIT_OFF = 1 << 9
    #: A slot of a launch queue can be for a packet of the user stream, see `LAUNCH_SLOT`.
    RECEIVE = 1 << 10


class ErrorKind(enum.IntEnum):
    """What a captured error was (`error_info` of the extension block, `info` of `CAPTURE`)."""

    NONE = 0
    MAGIC = 1
    DECODE = 2
    UNSUPPORTED_REQUEST = 3
    COMPLETER_ABORT = 4
    POISONED = 5
    UNEXPECTED_COMPLETION = 6
    COMPLETION_TIMEOUT = 7
    BUS_MASTER_OFF = 8
    #: reads before it were not answered, and the room for their completions is still taken
    NO_COMPLETION_SPACE = 9
    #: by the PCIe block, see `trnterrdrop` of its ports
    WRITE_DROPPED = 10


#: Microseconds after which an unanswered read ends with `ErrorKind.COMPLETION_TIMEOUT`, or up to
#: twice as many.
COMPLETION_TIMEOUT_US = 10_000
#: What it may be on a simulated board: PCIe's default range, as of Device Control 2.
COMPLETION_TIMEOUTS_US = range(50, 50_001)
#: How many such times the completions of a read that has ended may come, and keep their room and
#: the read's tag; two more unless the read has ended by timeout.
QUARANTINE_TIMEOUTS = 4
#: The longest quarantine, in milliseconds of the board's time. Until then other reads may end with
#: `ErrorKind.NO_COMPLETION_SPACE`; register `quarantined` says whether it is over.
QUARANTINE_MS = (2 + QUARANTINE_TIMEOUTS) * COMPLETION_TIMEOUT_US // 1000


class WaitsFor(enum.IntEnum):
    """What a channel with a run waits for while it does not move; `text` is for people."""

    text: str

    def __new__(cls, value: int, text: str) -> WaitsFor:
        """A member with its text."""
        member = int.__new__(cls, value)
        member._value_, member.text = value, text
        return member

    #: it moves, or has no run
    NOTHING = 0, "nothing"
    DESCRIPTOR = 1, "the completion of a descriptor fetch"
    CREDIT = 2, "descriptor credits (normal until software gives some)"
    RELEASE = 3, "software to clear its halt bit"
    FLUSH = 4, "the other channel of its pair to end its run, for the user stream to be flushed"
    COMPLETION = 5, "the completion of a read"
    USER_INPUT = 6, "the user block to take data (normal while its output has nowhere to go)"
    USER_OUTPUT = 7, "the user block to give data (normal while there is none)"
    TRANSMIT = 8, "a write to be sent"
    SPACE = 9, "room for completions, which reads of other channels take"
    GRANT = 10, "a run of another owner of the channel to end"


def waits_for_text(value: int) -> str:
    """The text of a field of register `waits_for`; a newer core may have other values."""
    return WaitsFor(value).text if value in set(WaitsFor) else f"something unknown ({value})"


def user_block_text(value: int) -> str:
    """The name of a user block in register `user_block`; "" if there is none."""
    return value.to_bytes(4, "little").rstrip(b"\0").decode("ascii", "replace")


def _capture(offset: int, doc: str) -> tuple[Register, ...]:
    """The registers of an error capture: what, and where."""
    return (
        Register(
            "error_info",
            offset,
            Access.RO,
            doc,
            fields=(
                Field("kind", 0, 4, "ErrorKind"),
                Field("channel", 8, 2),
                Field("c2h", 12, 1),
                Field("descriptor", 13, 1, "while fetching a descriptor"),
                Field(
                    "count",
                    16,
                    16,
                    "runs of any channel that ended by an error since the last `error_clear`, "
                    "saturating",
                ),
            ),
        ),
        Register(
            "error_address_lo",
            offset + 4,
            Access.RO,
            "Failing address [31:0]; of a pushed descriptor: bit 0 is 1, [6:5] which one, rest 0",
        ),
        Register("error_address_hi", offset + 8, Access.RO, "Failing address [63:32]"),
    )


EXTENSION = Block(
    "extension",
    0x9000,
    (
        Register("magic", 0x00, Access.RO, "Says that this block is there", EXTENSION_MAGIC),
        Register(
            "version",
            0x04,
            Access.RO,
            "Version of this map",
            EXTENSION_VERSION[0] << 16 | EXTENSION_VERSION[1],
            fields=(Field("minor", 0, 16), Field("major", 16, 16)),
        ),
        Register("capabilities", 0x08, Access.RO, "See Capability"),
        Register(
            "channels",
            0x0C,
            Access.RO,
            "Channels in this build",
            fields=(
                Field("h2c", 0, 4),
                Field("c2h", 4, 4),
                Field("tags", 8, 8),
                Field("launch_queues", 16, 4),
            ),
        ),
        Register("card_ram_size", 0x10, Access.RO, "Bytes of card RAM from card address 0"),
        Register("stream_window_lo", 0x14, Access.RO, "Card address of the user stream [31:0]"),
        Register("stream_window_hi", 0x18, Access.RO, "Card address of the user stream [63:32]"),
        Register(
            "link",
            0x1C,
            Access.RO,
            "Link and configuration state",
            fields=(
                Field("speed", 0, 4, "PCIe generation"),
                Field("width", 4, 6, "lanes"),
                Field("max_payload", 12, 3, "128 << n bytes"),
                Field("max_read_request", 16, 3, "128 << n bytes"),
                Field("rcb", 20, 1, "read completion boundary: 1 is 128 bytes"),
                Field("bus_master", 24),
            ),
        ),
        Register("clock_khz", 0x20, Access.RO, "Frequency of the engine's clock"),
        Register(
            "time_scale", 0x24, Access.RO, "How much slower than real time this board runs", 1
        ),
        *_capture(0x28, "Error that ended a run, the first one since the last clear"),
        Register(
            "error_clear",
            0x34,
            Access.WO,
            "Any write clears `error_info` with its address, but no channel's own capture",
        ),
        Register(
            "soft_reset",
            0x38,
            Access.WO,
            "Bit 0: stop all channels and return them to reset; until then they are busy",
            writable=0x1,
        ),
        Register("cycles_lo", 0x40, Access.RO, "Free-running clock cycles [31:0]; latches high"),
        Register("cycles_hi", 0x44, Access.RO, "Free-running clock cycles [63:32] as latched"),
        Register(
            "quarantined",
            0x48,
            Access.RO,
            "Tags that wait for a late completion; bit n: tag n, or n + 32 if there are 64",
        ),
        Register("user_block", 0x4C, Access.RO, "Name of the user block, 4 characters; 0 is none"),
        Register(
            "user_ratio",
            0x50,
            Access.RO,
            "How many bytes the user block makes of how many",
            fields=(Field("bytes_in", 0, 8, "0: it is a source"), Field("bytes_out", 8, 8)),
        ),
        Register(
            "stream_flush",
            0x54,
            Access.WO,
            "Bit n: pair n drops all that is in it, once both its channels are idle",
            writable=0xF,
        ),
        Register(
            "reads",
            0x58,
            Access.RW,
            "How memory is read",
            reset=8,
            writable=0x1F,
            fields=(
                Field(
                    "in_flight",
                    0,
                    4,
                    "data that may be asked for at the same time, in units of 512 bytes, or of "
                    "1024 or 2048 where the data path has 128 or 256 bits; 0: as much as the PCIe "
                    "block has room for",
                ),
                Field(
                    "tolerant",
                    4,
                    1,
                    "for bring-up: take completions whose Byte Count or Lower Address is wrong",
                ),
            ),
        ),
        Register(
            "waits_for",
            0x5C,
            Access.RO,
            "What each channel waits for, see WaitsFor",
            fields=tuple(
                Field(f"{way}{number}", first + 4 * number, 4)
                for way, first in (("h2c", 0), ("c2h", 16))
                for number in range(4)
            ),
        ),
        Register(
            "frame_records",
            0x60,
            Access.RW,
            "Bit n: the frames of pair n have records, see FRAME_RECORD; without that capability 0",
            writable=0xF,
        ),
    ),
    "What this core has beyond XDMA",
)

#: Where the extension block has Capability.CAPTURE, each channel has an error capture of its own,
#: beside that of the extension block, which is of the first run of any channel that failed.
#:
#: * It is of the channel's last run, as status and completed count are: it begins anew when that
#:   does, and holds the error that ended it, the one that status tells of. Nothing but a soft reset
#:   clears it otherwise. Of a run that was stopped, or ended well, the kind is NONE.
#: * The address is that of the descriptor, if the error was met while fetching one; the card
#:   address, if that does not decode; for other errors of H2C channels the address of the read, and
#:   for others of C2H channels 0.
#:
#: Cores without it have the capture of the extension block only, which is of an error as it
#: happens: it may be what a run met that was stopped, and stays until it is cleared.
CAPTURE = Block(
    "capture",
    0x9100,
    _capture(0x08, "Error that ended the channel's last run"),
    "Error capture of a channel. H2C channels from 0x9100, C2H channels from 0x9180",
    size=0x20,
    stride=0x20,
)
#: Byte offset of the C2H channels' captures; the H2C ones are at ``CAPTURE.base``.
C2H_CAPTURE_BASE = 0x9180

# User BAR -----------------------------------------------------------------------------------

USER = Block(
    "user",
    0x0000,
    (
        Register("led", 0x00, Access.RW, "LEDs, a bit each", writable=0x7),
        Register("gpio", 0x08, Access.RO, "Auxiliary inputs"),
        Register("scratch", 0x10, Access.RW, "Holds what was written"),
        Register(
            "raise_interrupts",
            0x18,
            Access.RW,
            "User interrupts, a bit each, that software raises by 1 and ends by 0",
            writable=0xFFFF,
        ),
    ),
    "User registers; LED where NVIDIA's design has it",
)
MAILBOX = Block(
    "mailbox",
    0x1000,
    (
        Register("first", 0x00, Access.RW, "A GPU writes here when the first word arrived"),
        Register("last", 0x04, Access.RW, "... when the last word arrived"),
        Register("done", 0x08, Access.RW, "... when it has processed the data"),
        Register("first_time_lo", 0x20, Access.RO, "Cycle count when `first` was written [31:0]"),
        Register("first_time_hi", 0x24, Access.RO, "[63:32]"),
        Register("last_time_lo", 0x28, Access.RO, "Cycle count when `last` was written [31:0]"),
        Register("last_time_hi", 0x2C, Access.RO, "[63:32]"),
        Register("done_time_lo", 0x30, Access.RO, "Cycle count when `done` was written [31:0]"),
        Register("done_time_hi", 0x34, Access.RO, "[63:32]"),
    ),
    "Mailbox page: a GPU reports its progress, the board timestamps it",
)
#: Byte offset in the user BAR of the registers of pair 0's user block; those of the next pair
#: follow.
USER_BLOCK_BASE = 0x0100
#: Bytes that each pair's user block has there.
USER_BLOCK_SIZE = 0x100
PATTERN_SOURCE = Block(
    "pattern_source",
    USER_BLOCK_BASE,
    (
        Register("frame_words", 0x00, Access.RW, "32-bit words of a frame; 0: no frames"),
        Register(
            "interval",
            0x04,
            Access.RW,
            "Clock cycles from the start of a frame to that of the next; 0: one after the other",
        ),
        Register(
            "seed", 0x08, Access.RW, "Pattern seed of the first frame; one more for each after it"
        ),
        Register("frames", 0x0C, Access.RO, "Frames begun since the pair was flushed"),
        Register("dropped", 0x10, Access.RO, "Frames dropped since then: there was no room"),
    ),
    "User block PATN: frames of test data, a stand-in for a sensor",
)
#: Byte offset in the user BAR of the doorbell of launch queue 0, and from there to the next one's.
#: A doorbell is the first dword of a page, or its first two, and the page has nothing else.
DOORBELL_BASE = 0x2000
DOORBELL_STRIDE = 0x1000
#: What a doorbell and a shadow tail hold.
DOORBELL_FIELDS = (
    Field("tail", 0, 16, "lower half of the first ticket that is not submitted"),
    Field("generation", 16, 16, "that of the queue"),
)
#: What the upper half of a doorbell of 64 bits holds: the entry of the ticket in front of the tail.
DOORBELL_ENTRY_FIELDS = (
    Field("slot", 0, 6),
    Field("ticket", 16, 16, "upper half of the ticket"),
)

# Launch queues ------------------------------------------------------------------------------

#: Slots for prepared jobs, and the most queues that a core can have.
LAUNCH_SLOTS = 64
LAUNCH_QUEUES = 2


class LaunchStatus(enum.IntEnum):
    """How a ticket ended (status of its record); 1 to 10 are as in `ErrorKind`."""

    OK = 0
    #: the slot is not valid, is another queue's, or names a channel or pair that is not there
    SLOT = 16
    #: an earlier ticket failed, and this one was not started
    FLUSHED = 17
    #: the queue was disarmed, or the other half of the copy failed
    ABORTED = 18
    #: the packet was longer than its memory, which has the first bytes of it: no failure
    LONG = 19


class LaunchEnd(enum.IntEnum):
    """Why a queue takes no more tickets until it is armed anew."""

    NONE = 0
    #: a tail was more than the depth ahead
    TAIL = 1
    #: an entry never had the ticket that came next
    ENTRY = 2
    #: the ring or the shadow tail could not be read
    READ = 3
    #: a record or a done word was lost, as Bus Master is off
    RECORD = 4


def _address(name: str, offset: int, what: str) -> tuple[Register, Register]:
    return (
        Register(f"{name}_lo", offset, Access.WO, f"{what} [31:0]"),
        Register(f"{name}_hi", offset + 4, Access.WO, f"{what} [63:32]"),
    )


LAUNCH_SLOT = Block(
    "launch_slot",
    0xA000,
    (
        Register("descriptor", 0x00, Access.WO, "First descriptor of the job: its control dword"),
        Register("length", 0x04, Access.WO, "... its length"),
        *_address("source", 0x08, "... its source"),
        *_address("destination", 0x10, "... its destination"),
        *_address("next", 0x18, "... the address of the next one, unless this one has Stop"),
        Register(
            "control",
            0x20,
            Access.WO,
            "What the job is, and who may launch it",
            fields=(
                Field("valid", 0),
                Field("c2h", 1, doc="direction"),
                Field("pair", 2, doc="copy through the stream; its C2H half is the slot after it"),
                Field("channel", 4, 2, "number in its direction; of a copy, that of the pair"),
                Field("flush", 6, doc="read the dword at `flush` before the record is written"),
                Field("done", 7, doc="write 1 to the dword at `done` after the record"),
                Field("queue", 8, 3, "the queue that may launch it"),
                Field("overlap", 11, doc="its run may overlap with those of others that may, too"),
                Field("receive", 12, doc="take a packet; the next slot has the second descriptor"),
            ),
        ),
        *_address("flush", 0x28, "Address of a dword of the destination, a multiple of 4"),
        *_address("done", 0x30, "Address of the done word, a multiple of 4"),
    ),
    "A job that a launch queue can start; slot n is n strides further",
    size=0x40,
    stride=0x40,
)
LAUNCH_QUEUE = Block(
    "launch_queue",
    0xB000,
    (
        Register(
            "control",
            0x00,
            Access.WO,
            "Everything else of a queue is written while it is neither armed nor busy",
            fields=(
                Field("armed", 0, doc="take doorbells and run jobs; 1 to 0 aborts"),
                Field("polls", 1, doc="poll the shadow tail"),
                Field("mask", 8, 8, "entries of the ring less 1: 7, 15, 31, 63, 127 or 255"),
                Field("generation", 16, 16, "of its doorbells, not 0"),
            ),
        ),
        Register("first", 0x04, Access.WO, "Lower half of the first ticket", writable=0xFFFF),
        *_address("ring", 0x08, "Address of the submission ring, a multiple of its size"),
        *_address("records", 0x10, "Address of the ring of records, a multiple of its size"),
        *_address("shadow", 0x18, "Address of the shadow tail, a multiple of 4"),
        Register(
            "state",
            0x20,
            Access.RO,
            "What the queue does, and how it has ended",
            fields=(
                Field("status", 0, 5, "LaunchStatus of the ticket that failed, if `failed`"),
                Field("failed", 5, doc="a ticket failed: later ones are flushed until `resume`"),
                Field("busy", 6, doc="a ticket is at work, or a read of the queue's under way"),
                Field("armed", 7, doc="as in `control`, and 0 after a soft reset"),
                Field("end", 8, 3, "LaunchEnd"),
                Field("place", 16, 3, "`LAUNCH_TICKET` of the first ticket without a record"),
                Field("recorded", 19, doc="the ticket before that has its done word to come"),
                Field("ending", 20, doc="the run of the oldest one at work has ended"),
                Field("running", 21, 3, "so many behind that have begun their runs"),
                Field("starting", 24, doc="and the next one was looked up"),
            ),
        ),
        Register("ignored", 0x24, Access.RO, "Doorbells that were ignored, all queues; up to 255"),
        Register("resume", 0x28, Access.WO, "Any write: start tickets again after a failed one"),
    ),
    "A launch queue; queue n is n strides further",
    size=0x40,
    stride=0x40,
)
#: Places for the tickets at work of a queue.
LAUNCH_PLACES = 8
LAUNCH_TICKET = Block(
    "launch_ticket",
    0xB800,
    (
        Register(
            "slot", 0x00, Access.RO, "Slot of the last ticket of this place that was looked up"
        ),
    ),
    "A place for tickets at work; place p of queue n is LAUNCH_PLACES * n + p strides further",
    size=0x08,
    stride=0x08,
)

#: What a GPU writes into a submission ring: that of ticket t is at place t modulo the entries.
LAUNCH_ENTRY = np.dtype([("ticket", "<u4"), ("slot", "<u4")])
#: What the board writes, at the same place of the ring of records, when a ticket has completed.
LAUNCH_RECORD = np.dtype([("ticket", "<u4"), ("status", "<u4")])

#: Blocks of every core, and those that a core has only with a certain user block.
BLOCKS_DMA = (CHANNEL, IRQ, CONFIG, SGDMA, SGDMA_COMMON, EXTENSION, CAPTURE)
BLOCKS_USER = (USER, MAILBOX)
BLOCKS_OPTIONAL = (PATTERN_SOURCE,)
#: Blocks of the DMA BAR that a core has only with `Capability.LAUNCH`.
BLOCKS_LAUNCH = (LAUNCH_SLOT, LAUNCH_QUEUE, LAUNCH_TICKET)

# Descriptor (PG195, descriptor format) ------------------------------------------------------

DESC_MAGIC = 0xAD4B
DESC_STOP = 1 << 0
DESC_COMPLETED = 1 << 1
DESC_EOP = 1 << 4
DESC_MAX_LENGTH = (1 << 28) - 1
#: What `control` holds beside the flags above.
DESC_CONTROL_FIELDS = (
    Field("adjacent", 8, 6, "how many more descriptors follow the next one contiguously"),
    Field("magic", 16, 16, "DESC_MAGIC"),
)

#: 32 bytes, 32-byte aligned in host memory. `control` is magic [31:16], Nxt_adj [13:8], flags.
DESCRIPTOR = np.dtype(
    [
        ("control", "<u4"),
        ("length", "<u4"),
        ("source", "<u8"),
        ("destination", "<u8"),
        ("next", "<u8"),
    ]
)

# Pushed descriptors -------------------------------------------------------------------------

#: Most descriptors that can be pushed for a run. Where the extension block has Capability.PUSH,
#: software can write the first descriptors of a run into the board, instead of leaving them in
#: memory for the board to fetch. Each channel has a write-only window for them.
#:
#: * The window is written in ascending order from its first dword on, by writes of 32 or 64 bits or
#:   larger ones, while the channel is not busy. Then setting Run begins with these descriptors. The
#:   last one's `next` and Nxt_adj say where the list goes on, unless it has Stop; those of the
#:   others are not looked at.
#: * A run uses them up. Writing `descriptor_lo` drops them, too: of both places where a run can
#:   begin, the one that software wrote last counts.
#: * If the last descriptor is not complete, or a dword came out of order or while the channel was
#:   busy, the next run, or one that still waits for its turn, moves nothing and ends with "magic
#:   stopped". Writing the first dword of the window begins anew.
#: * What is pushed is not fetched: it takes no credits, and the halt bit does not hold it back.
#:   Everything else is as for fetched descriptors.
PUSH_DESCRIPTORS = 4
#: Bytes of a channel's window.
PUSH_STRIDE = PUSH_DESCRIPTORS * DESCRIPTOR.itemsize
#: Byte offsets in the DMA BAR of the windows of the first channels.
H2C_PUSH_BASE = 0x9400
C2H_PUSH_BASE = 0x9600

# Records of frames --------------------------------------------------------------------------

#: What a frame was: 32 bytes that follow its last byte in the user stream, where the extension
#: block has Capability.FRAME_RECORDS and the pair's bit of `frame_records` is set.
#:
#: * Software gives a record a descriptor of its own, of 32 bytes, behind those of the frame's data.
#:   So it is written behind the data, in PCIe's order: who sees it, in the same memory, has both.
#: * At an address that is a multiple of 32 a record is one write. Its last dword is `number` with
#:   `FRAME_NUMBER_VALID`: once it is there, all of the record is.
#: * Each frame that the user block ends has one, in order. What a flush cuts off has none.
#: * The bit counts when the last byte of a frame leaves the user block. To begin with a whole
#:   frame, set it, then flush the pair.
#:
#: `cycles`: when the frame began, as the counter in `cycles_lo` and `cycles_hi` has it. `bytes`:
#: its length, modulo 2**32. `dropped`: frames that the user block has dropped so far. `crc`: the
#: CRC-32 of its bytes, that of zlib. `number`: 0 for the first frame since the pair was flushed,
#: modulo 2**31. `reserved` may be anything.
FRAME_RECORD = np.dtype(
    [
        ("cycles", "<u8"),
        ("reserved", "<u8"),
        ("bytes", "<u4"),
        ("dropped", "<u4"),
        ("crc", "<u4"),
        ("number", "<u4"),
    ]
)
#: Set in `number` of each record.
FRAME_NUMBER_VALID = 1 << 31
