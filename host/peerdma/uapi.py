# SPDX-License-Identifier: BSD-2-Clause
"""The requests of the kernel driver, as ctypes: a mirror of driver/peerdma_uapi.h.

What they mean is documented there. A test compiles that header and compares every size, offset,
code and constant with these.
"""

from __future__ import annotations

import ctypes
import enum
import functools

__all__ = [
    "UAPI_VERSION",
    "Access",
    "BoardState",
    "C2hDma",
    "Cache",
    "Cancel",
    "CardInfo",
    "Clock",
    "Context",
    "CreateQueue",
    "DestroyQueue",
    "Event",
    "ExportDmabuf",
    "ExportFlag",
    "Feature",
    "Frame",
    "H2c2hDma",
    "H2cDma",
    "Info",
    "Interrupts",
    "Ioctl",
    "LegacyFlag",
    "MapFlag",
    "MapInfo",
    "Op",
    "PinCuda",
    "PinDmabuf",
    "PinFlag",
    "PinPages",
    "Placement",
    "Prepare",
    "PrepareFlag",
    "Query",
    "QueryQueue",
    "QueueWord",
    "Reason",
    "RegisterFlag",
    "ReleaseFrames",
    "Reset",
    "ResumeQueue",
    "RingFlag",
    "StartRing",
    "Submit",
    "SubmitBatch",
    "SubmitFlag",
    "SurfaceFeature",
    "SurfaceState",
    "UnpinCuda",
    "Unprepare",
    "UserRegister",
    "request_code",
]

_u8, _u16, _u32, _u64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
_s32 = ctypes.c_int32

#: (major, minor) that this mirror is of: another major is refused, a newer minor only adds.
UAPI_VERSION = (1, 0)

# NVIDIA's requests --------------------------------------------------------------------------


class PinCuda(ctypes.Structure):
    """struct peerdma_pin_cuda"""

    _fields_ = (("va", _u64), ("size", _u64), ("handle", _u32))


class UnpinCuda(ctypes.Structure):
    """struct peerdma_unpin_cuda"""

    _fields_ = (("handle", _u32),)


class H2c2hDma(ctypes.Structure):
    """struct peerdma_h2c2h_dma"""

    _fields_ = tuple((name, _u64) for name in ("src", "dst", "len", "flags", "dma_time_ns"))


class CardInfo(ctypes.Structure):
    """struct peerdma_card_info"""

    _fields_ = (("fpga_ram_size", _u64),)


class H2cDma(ctypes.Structure):
    """struct peerdma_h2c_dma"""

    _fields_ = tuple((name, _u64) for name in ("src", "dst", "len", "flags", "dma_time_ns"))


class C2hDma(ctypes.Structure):
    """struct peerdma_c2h_dma"""

    _fields_ = tuple((name, _u64) for name in ("dst", "src", "len", "flags", "dma_time_ns"))


class LegacyFlag(enum.IntFlag):
    """PEERDMA_H2C2H_*, PEERDMA_H2C_* and PEERDMA_C2H_*"""

    H2C2H_SRC_IS_HANDLE = 1 << 0
    H2C2H_DST_IS_HANDLE = 1 << 1
    H2C_SRC_IS_HANDLE = 1 << 0
    C2H_DST_IS_HANDLE = 1 << 0


# Our requests -------------------------------------------------------------------------------


class _Sized(ctypes.Structure):
    """A structure that begins with its size, which is filled in when it is made."""

    def __init__(self, *args: object, **kwargs: object):
        super().__init__(*args, **kwargs)
        self.size: int = ctypes.sizeof(self)


class Interrupts(enum.IntEnum):
    """enum peerdma_interrupts"""

    INTX = 0
    MSI = 1
    MSIX = 2


class BoardState(enum.IntEnum):
    """enum peerdma_board_state"""

    LIVE = 0
    FROZEN = 1
    DEAD = 2


class Feature(enum.IntFlag):
    """PEERDMA_FEATURE_*"""

    STREAM_COPY = 1 << 0
    MAILBOX = 1 << 1
    IOMMU = 1 << 2
    DMABUF = 1 << 3
    CUDA = 1 << 4
    STREAMS = 1 << 5
    CLOCK = 1 << 6
    RECEIVE = 1 << 7
    OVERLAP = 1 << 8


class Info(_Sized):
    """struct peerdma_info"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("uapi_version", _u32),
        ("board_version", _u32),
        ("capabilities", _u32),
        ("features", _u32),
        ("index", _u32),
        ("state", _u32),
        ("vendor", _u16),
        ("device", _u16),
        ("subsystem_vendor", _u16),
        ("subsystem_device", _u16),
        ("interrupts", _u32),
        ("vectors", _u32),
        ("h2c_channels", _u32),
        ("c2h_channels", _u32),
        ("link_speed", _u32),
        ("link_width", _u32),
        ("max_payload", _u32),
        ("max_read_request", _u32),
        ("card_ram_size", _u64),
        ("staging_size", _u64),
        ("stream_window", _u64),
        ("clock_khz", _u32),
        ("time_scale", _u32),
        ("generation", _u32),
        ("last_errno", _u32),
        ("aperture_size", _u64),
        ("pinned_bytes", _u64),
        ("jobs", _u64),
        ("failures", _u64),
        ("timeouts", _u64),
        ("lost_interrupts", _u64),
        ("bus_id", ctypes.c_char * 16),
        ("providers", ctypes.c_char * 64),
        ("last_error", ctypes.c_char * 256),
        ("h2c_waits_for", _u32),
        ("c2h_waits_for", _u32),
        ("user_block", _u32),
        ("user_ratio", _u32),
    )


class Access(enum.IntFlag):
    """PEERDMA_ACCESS_*: what a board may do with pinned memory."""

    #: the memory is a source
    READ = 1 << 0
    #: it is a destination
    WRITE = 1 << 1


class PinFlag(enum.IntFlag):
    """PEERDMA_PIN_*"""

    REQUIRE_PEER = 1 << 0


class Placement(enum.IntEnum):
    """enum peerdma_placement"""

    HOST = 0
    PEER = 1
    MIXED = 2
    OTHER = 3


class PinDmabuf(_Sized):
    """struct peerdma_pin_dmabuf"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("fd", _s32),
        ("access", _u32),
        ("offset", _u64),
        ("length", _u64),
        ("handle", _u32),
        ("placement", _u32),
    )


class PinPages(_Sized):
    """struct peerdma_pin_pages"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("address", _u64),
        ("length", _u64),
        ("access", _u32),
        ("handle", _u32),
    )


class Op(enum.IntEnum):
    """enum peerdma_op"""

    H2C = 0
    C2H = 1
    COPY = 2
    PROCESS = 3


class Submit(_Sized):
    """struct peerdma_submit"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("op", _u32),
        ("generation", _u32),
        ("src_handle", _u32),
        ("dst_handle", _u32),
        ("src_offset", _u64),
        ("dst_offset", _u64),
        ("length", _u64),
        ("user_data", _u64),
        ("job", _u64),
        ("eventfd", _s32),
        ("queue", _u32),
        ("dst_length", _u64),
    )


class SubmitFlag(enum.IntFlag):
    """PEERDMA_SUBMIT_*"""

    EVENTFD = 1 << 0


class SubmitBatch(_Sized):
    """struct peerdma_submit_batch"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("submits", _u64),
        ("count", _u32),
        ("taken", _u32),
        ("error", _s32),
        ("reserved", _u32),
    )


class Reason(enum.IntEnum):
    """enum peerdma_reason"""

    NONE = 0
    ENGINE = 1
    TIMEOUT = 2
    CANCELLED = 3
    UNPINNED = 4
    REVOKED = 5
    RESET = 6
    LOST = 7
    BUSY = 8
    PARTITION = 9
    FRAMES = 10


class Event(_Sized):
    """struct peerdma_event"""

    _fields_ = (
        ("size", _u32),
        ("result", _s32),
        ("job", _u64),
        ("user_data", _u64),
        ("bytes", _u64),
        ("time_ns", _u64),
        ("cycles", _u64),
        ("reason", _u32),
        ("status", _u32),
        ("address", _u64),
    )


class Cancel(_Sized):
    """struct peerdma_cancel"""

    _fields_ = (("size", _u32), ("flags", _u32), ("job", _u64))


class SurfaceState(enum.IntEnum):
    """enum peerdma_surface_state"""

    LIVE = 0
    REVOKED = 1
    LOST = 2


class SurfaceFeature(enum.IntFlag):
    """PEERDMA_SURFACE_SURVIVES_FREE and PEERDMA_SURFACE_CPU_MAP"""

    SURVIVES_FREE = 1 << 0
    CPU_MAP = 1 << 1


class Query(_Sized):
    """struct peerdma_query"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("handle", _u32),
        ("state", _u32),
        ("placement", _u32),
        ("features", _u32),
        ("length", _u64),
        ("segments", _u32),
        ("jobs", _u32),
        ("aperture_size", _u64),
        ("provider", ctypes.c_char * 16),
        ("peer", ctypes.c_char * 16),
    )


class MapFlag(enum.IntFlag):
    """PEERDMA_MAP_*"""

    MAILBOX = 1 << 0


class Cache(enum.IntEnum):
    """enum peerdma_cache"""

    UNCACHED = 0
    WRITE_COMBINED = 1
    CACHED = 2


class MapInfo(_Sized):
    """struct peerdma_map_info"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("handle", _u32),
        ("cache", _u32),
        ("offset", _u64),
        ("length", _u64),
        ("start", _u64),
    )


class ExportFlag(enum.IntFlag):
    """PEERDMA_EXPORT_*"""

    DOORBELL = 1 << 0


class ExportDmabuf(_Sized):
    """struct peerdma_export_dmabuf"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("queue", _u64),
        ("fd", _s32),
        ("reserved", _u32),
    )


class Reset(_Sized):
    """struct peerdma_reset"""

    _fields_ = (("size", _u32), ("flags", _u32))


class RegisterFlag(enum.IntFlag):
    """PEERDMA_REGISTER_*"""

    WRITE = 1 << 0


class UserRegister(_Sized):
    """struct peerdma_user_register"""

    _fields_ = tuple((name, _u32) for name in ("size", "flags", "block", "offset", "value"))


class Clock(_Sized):
    """struct peerdma_clock"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("before_ns", _u64),
        ("cycles", _u64),
        ("after_ns", _u64),
    )


class Context(_Sized):
    """struct peerdma_context"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("channel", _u32),
        ("reserved", _u32),
        ("ram_length", _u64),
        ("ram_address", _u64),
    )


class Frame(ctypes.Structure):
    """struct peerdma_frame"""

    _fields_ = (("handle", _u32), ("reserved", _u32), ("offset", _u64), ("length", _u64))


class RingFlag(enum.IntFlag):
    """PEERDMA_RING_*"""

    FRESH = 1 << 0


class StartRing(_Sized):
    """struct peerdma_start_ring"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("frames", _u64),
        ("count", _u32),
        ("records_handle", _u32),
        ("records_offset", _u64),
        ("user_data", _u64),
        ("job", _u64),
    )

    def set_frames(self, frames: ctypes.Array[Frame]) -> None:
        """Names the frames, and keeps them for as long as this."""
        self._kept = frames
        self.frames: int = ctypes.addressof(frames)


class ReleaseFrames(_Sized):
    """struct peerdma_release_frames"""

    _fields_ = (("size", _u32), ("flags", _u32), ("job", _u64), ("count", _u64))


class QueueWord(enum.IntEnum):
    """PEERDMA_QUEUE_*: fields of the state word of a launch queue"""

    REASON = 0xFF
    STATUS = 0xFF00
    END = 0xFF0000

    def get(self, word: int) -> int:
        """The field's value in a word."""
        return (word & self) // (self & -self)

    def put(self, value: int) -> int:
        """A word with this value in the field, else 0."""
        return value * (self & -self)


class CreateQueue(_Sized):
    """struct peerdma_create_queue"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("depth", _u32),
        ("handle", _u32),
        ("entries", _u64),
        ("records", _u64),
        ("shadow", _u64),
        ("word", _u64),
        ("user_data", _u64),
        ("queue", _u64),
        ("generation", _u32),
        ("first", _u32),
        ("reserved", _u64),
        ("doorbell", _u64),
    )


class DestroyQueue(_Sized):
    """struct peerdma_destroy_queue"""

    _fields_ = (("size", _u32), ("flags", _u32), ("queue", _u64))


class ResumeQueue(_Sized):
    """struct peerdma_resume_queue"""

    _fields_ = (("size", _u32), ("flags", _u32), ("queue", _u64))


class PrepareFlag(enum.IntFlag):
    """PEERDMA_PREPARE_*"""

    DONE = 1 << 0
    RECEIVE = 1 << 1
    OVERLAP = 1 << 2


class Prepare(_Sized):
    """struct peerdma_prepare"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("queue", _u64),
        ("op", _u32),
        ("src_handle", _u32),
        ("dst_handle", _u32),
        ("slot", _u32),
        ("src_offset", _u64),
        ("dst_offset", _u64),
        ("length", _u64),
        ("done", _u64),
        ("record_handle", _u32),
        ("reserved", _u32),
        ("record_offset", _u64),
    )


class Unprepare(_Sized):
    """struct peerdma_unprepare"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("queue", _u64),
        ("slot", _u32),
        ("reserved", _u32),
    )


class QueryQueue(_Sized):
    """struct peerdma_query_queue"""

    _fields_ = (
        ("size", _u32),
        ("flags", _u32),
        ("queue", _u64),
        ("state", _u32),
        ("ignored", _u32),
        ("slots", _u64),
    )


# Codes --------------------------------------------------------------------------------------

_WRITE, _READ = 1, 2


def request_code(magic: str, number: int, direction: int = 0, structure: type | None = None) -> int:
    """What the kernel's _IOC() makes of these (include/uapi/asm-generic/ioctl.h).

    `direction` is 1 for a request that the driver reads the structure of, 2 for one that it writes
    it of, 3 for both.
    """
    size = ctypes.sizeof(structure) if structure else 0
    return direction << 30 | size << 16 | ord(magic) << 8 | number


_code = functools.partial(request_code, "P")


class Ioctl(enum.IntEnum):
    """PEERDMA_IOC_*"""

    LED = _code(0, _WRITE, ctypes.c_uint32)
    PIN_CUDA = _code(1, _WRITE | _READ, PinCuda)
    UNPIN_CUDA = _code(2, _WRITE, UnpinCuda)
    H2C2H_DMA = _code(3, _WRITE | _READ, H2c2hDma)
    CARD_INFO = _code(4, _READ, CardInfo)
    H2C_DMA = _code(5, _WRITE | _READ, H2cDma)
    C2H_DMA = _code(6, _WRITE | _READ, C2hDma)
    GET_INFO = _code(0x20)
    PIN_DMABUF = _code(0x21)
    PIN_PAGES = _code(0x22)
    SUBMIT = _code(0x23)
    CANCEL = _code(0x24)
    QUERY = _code(0x25)
    MAP_INFO = _code(0x26)
    RESET = _code(0x27)
    USER_REGISTER = _code(0x28)
    SUBMIT_BATCH = _code(0x29)
    SET_CONTEXT = _code(0x2A)
    START_RING = _code(0x2B)
    RELEASE_FRAMES = _code(0x2C)
    EXPORT_DMABUF = _code(0x2D)
    READ_CLOCK = _code(0x2E)
    CREATE_QUEUE = _code(0x30)
    DESTROY_QUEUE = _code(0x31)
    RESUME_QUEUE = _code(0x32)
    PREPARE = _code(0x33)
    UNPREPARE = _code(0x34)
    QUERY_QUEUE = _code(0x35)
