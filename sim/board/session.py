# SPDX-License-Identifier: BSD-2-Clause
"""The simulated board without its socket: in this process, clock by clock, for measurements.

The same core, hard block, link and root complex as behind `sim.board`. Here the caller controls
memory and time: the clock only runs in `run` and in register reads, so all results are repeatable.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from peerdma import regs

from .config_space import EXPRESS, MSI, ConfigSpace
from .loader import Model

__all__ = ["BASE", "EVENT", "Conditions", "Pauses", "Seam", "Session", "Streams"]

#: Bus address of the session's memory: below 4 GiB, so that requests have short headers.
BASE = 0x1000_0000
#: An event that reached the host: a write, or an interrupt if `nbytes` is 0.
EVENT = np.dtype([("cycle", "u8"), ("address", "u8"), ("nbytes", "u4"), ("vector", "u4")])

_FIRST_BAR_ADDRESS, _BAR_STEP = 0x4000_0000, 0x10_0000
_MSI_ADDRESS = 0xFEE0_0000
#: Cycles after which a register read without an answer fails.
_TIMEOUT_CYCLES = 10_000_000
_MOST_EVENTS = 1 << 20


class Seam(NamedTuple):
    """A core without an adapter (`hw/seam.py`), and the PCIe block that it is built for."""

    #: bits of a beat
    width: int
    #: completions that the block's receive buffer holds, and their payload in units of 16 bytes
    completion_headers: int = 36
    completion_credits: int = 461


class Streams(NamedTuple):
    """A core behind the adapter of UltraScale or UltraScale+, and the PCIe block."""

    #: key of `hw.pcie.adapters.ADAPTERS`
    name: str
    #: as of `Seam`
    completion_headers: int
    completion_credits: int
    #: at 256 bits, completions may begin in the middle of a beat
    straddle: bool = True

    @property
    def width(self) -> int:
        """Bits of a beat."""
        return int(self.name.rsplit("-", 1)[1])


@dataclass(frozen=True)
class Conditions:
    """The conditions that a board runs under.

    Attributes
    ----------
    clock_khz : int
        The core's clock.
    link_mbps : float
        Raw 10^6 bytes per second of the link; 0 is no limit.
    speed, lanes : int
        The link's speed and width as Link Status has them, by which the core knows its rate.
    rtt_ns : float
        Time from receiving a read request to sending its first completion.
    max_payload, max_read_request, completion_bytes : int
        In bytes.
    boundary : int
        Read completion boundary in bytes, 64 or 128, as Link Control has it.
    tlp_gap : int
        Idle cycles of the PCIe block between two TLPs that it hands to the core.
    beat_idle : float
        Probability, per cycle, that it has nothing for the core, also within a TLP.
    ack_ns : float
        From a TLP of the board received to its transmit buffer free again.
    transmit_buffers, buffer_lag : int
        TLPs that the hard block keeps until they are acknowledged, 0 for what its parameters say;
        and cycles by which it tells late how many more it takes.
    transmit_stall : float
        Probability, per cycle, that the block takes no transmit beat.
    receive_pause, transmit_pause : (int, int)
        One long pause in either direction, within a TLP: behind so many beats, for so many cycles.
    reorder : int
        Seed by which completions of different reads come in any order, between each other; 0: they
        come as they were asked for.
    block_seed : int
        For what the block does by chance.
    posted, nonposted : (int, int), int
        Credits of the root port: headers and units of 16 bytes, headers; 0 is without limit.
    credit_ns : float
        From a TLP received to its credits back.
    discards : tuple of int
        Memory writes that the block discards, counted from 1.
    illegal : tuple of int
        Memory writes that break a rule of PCIe, counted in the same way.
    discard_lag : int
        Cycles from the last beat of such a one until the block says so, at least 1.
    failures : tuple of (str, int)
        Reads that fail, counted from 1: "ur", "ca" or "poison" as of ``--fault``, and the number.
    tags : int, optional
        Number of reads in flight, if not the default core's; the model has to be of such a core.
    seam : Seam, optional
        The core has no adapter; the model has to be of such a core.
    streams : Streams, optional
        The core is behind such an adapter; the model has to be of such a core.
    """

    clock_khz: int = 125_000
    link_mbps: float = 500.0
    speed: int = 2
    lanes: int = 1
    rtt_ns: float = 1000.0
    max_payload: int = 128
    max_read_request: int = 512
    completion_bytes: int = 512
    boundary: int = 64
    tlp_gap: int = 0
    beat_idle: float = 0.0
    ack_ns: float = 400.0
    transmit_buffers: int = 0
    buffer_lag: int = 0
    transmit_stall: float = 0.0
    receive_pause: tuple[int, int] = (0, 0)
    transmit_pause: tuple[int, int] = (0, 0)
    reorder: int = 0
    block_seed: int = 0
    posted: tuple[int, int] = (0, 0)
    nonposted: int = 0
    credit_ns: float = 0.0
    discards: tuple[int, ...] = ()
    illegal: tuple[int, ...] = ()
    discard_lag: int = 1
    failures: tuple[tuple[str, int], ...] = ()
    tags: int | None = None
    seam: Seam | None = None
    streams: Streams | None = None

    @property
    def wide(self) -> Seam | Streams | None:
        """What the core has in place of the 7-series block, if anything."""
        return self.seam or self.streams

    def options(self) -> str:
        """What of it is the native model's, as its "key=value" lines."""
        lines = {
            key: getattr(self, key)
            for key in (
                "clock_khz",
                "link_mbps",
                "rtt_ns",
                "completion_bytes",
                "tlp_gap",
                "beat_idle",
                "ack_ns",
                "buffer_lag",
                "transmit_stall",
                "block_seed",
                "credit_ns",
                "discard_lag",
            )
        }
        faults = [*(("discard", n) for n in self.discards), *(("illegal", n) for n in self.illegal)]
        faults += self.failures
        lines |= dict(zip(("posted_headers", "posted_data"), self.posted, strict=True))
        for way in ("receive", "transmit"):
            behind, cycles = getattr(self, f"{way}_pause")
            lines |= {f"{way}_pause_after": behind, f"{way}_pause": cycles}
        if self.reorder:
            lines["reorder"] = self.reorder
        lines["completion_boundary"] = self.boundary
        lines["link_speed"] = self.speed
        if self.seam:
            lines["seam_width"] = self.seam.width
        if self.streams:
            lines["streams"] = self.streams.name
            lines["straddle"] = int(self.streams.straddle)
        if self.wide:
            lines["completion_headers"] = self.wide.completion_headers
            lines["completion_credits"] = self.wide.completion_credits
        lines["nonposted_headers"] = self.nonposted
        if self.transmit_buffers:
            lines["transmit_buffers"] = self.transmit_buffers
        pairs = [*lines.items(), *(("fault", f"{kind}@{number}") for kind, number in faults)]
        return "".join(f"{key}={value}\n" for key, value in pairs)


class Pauses(ctypes.Structure):
    """Of the native model, see `sim/board/native/block.h`."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("in_received", "in_sent", "long_receive", "long_transmit", "interleaved")
    )


class Session:
    """A board with MSI on, and a memory of `nbytes` at `BASE`; a context manager.

    At its end it raises RuntimeError if the core broke a rule of PCIe.

    It is the platform of a `peerdma.userspace.xdma.Xdma`.

    Parameters
    ----------
    model : Model
    conditions : Conditions
    nbytes : int
        Size of `memory`.
    log, capture : Path, optional
        Text log of the TLPs; and a file of them for `peerdma trace`.

    Raises
    ------
    ValueError
        If the model refuses the conditions.
    """

    def __init__(
        self,
        model: Model,
        conditions: Conditions,
        nbytes: int,
        *,
        log: Path | None = None,
        capture: Path | None = None,
    ):
        self.memory = np.zeros(nbytes, np.uint8)
        self.lost = False
        self._native = model.load()
        for name in ("session_cycle", "session_run", "session_errors", "session_events"):
            getattr(self._native, name).restype = ctypes.c_uint64
        self._native.session_open.restype = ctypes.c_void_p
        files = {"tlp_log": log, "trace": capture}
        text = conditions.options() + "".join(f"{key}={at}\n" for key, at in files.items() if at)
        link_status = model.space.capabilities[EXPRESS] + 0x12
        link = conditions.lanes << 4 | conditions.speed
        space = model.space.changed(link_status, 2, link, mask=0x03FF)
        error = ctypes.create_string_buffer(500)
        self._handle = ctypes.c_void_p(
            self._native.session_open(
                text.encode(),
                space.image,
                space.writable,
                space.clearable,
                ctypes.c_uint64(BASE),
                self.memory.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_uint64(nbytes),
                error,
                ctypes.c_size_t(len(error)),
            )
        )
        if not self._handle:
            raise ValueError(error.value.decode())
        self._set_up(space, conditions)

    def _set_up(self, space: ConfigSpace, conditions: Conditions) -> None:
        """Configures the board as firmware and operating system would."""
        bars = (regs.BAR_DMA[0], regs.BAR_USER[0])
        for bar in bars:
            self._config(0x10 + 4 * bar, _FIRST_BAR_ADDRESS + bar * _BAR_STEP, 4)
        payload, request = (
            (size // 128).bit_length() - 1
            for size in (conditions.max_payload, conditions.max_read_request)
        )
        express, msi = space.capabilities[EXPRESS], space.capabilities[MSI]
        # Extended tags.
        self._config(express + 8, request << 12 | 1 << 8 | payload << 5, 2)
        # Link Control, the root complex's read completion boundary.
        self._config(express + 0x10, 8 if conditions.boundary == 128 else 0, 2)
        self._config(msi + 4, _MSI_ADDRESS, 4)
        self._config(msi + 2, 1, 2)
        # Memory space, bus master, no INTx.
        self._config(0x04, 0x406, 2)

    def _config(self, offset: int, value: int, nbytes: int) -> None:
        self._native.session_config(
            self._handle, ctypes.c_uint64(offset), ctypes.c_uint32(value), ctypes.c_size_t(nbytes)
        )

    # The platform ----------------------------------------------------------------------------

    @property
    def device(self) -> Session:
        """This, as the registers of a function."""
        return self

    def read32(self, bar: int, offset: int) -> int:
        """The register at byte `offset` of a BAR; TimeoutError if the board does not answer."""
        return self.read(bar, offset, 4)

    def read(self, bar: int, offset: int, nbytes: int) -> int:
        """As `read32`, of 1 to 8 bytes at any offset."""
        value = ctypes.c_uint64()
        arguments = (
            bar,
            ctypes.c_uint64(offset),
            ctypes.c_size_t(nbytes),
            ctypes.c_uint64(_TIMEOUT_CYCLES),
            ctypes.byref(value),
        )
        if not self._native.session_read(self._handle, *arguments):
            raise TimeoutError(f"BAR{bar} {offset:#x} was not answered in {_TIMEOUT_CYCLES} cycles")
        return value.value

    def write32(self, bar: int, offset: int, value: int) -> None:
        """Writes the register at byte `offset` of a BAR; arrives once the clock runs."""
        self.write(bar, offset, value, 4)

    def write64(self, bar: int, offset: int, value: int) -> None:
        """Writes two registers at once, as `write32` one."""
        self.write(bar, offset, value, 8)

    def write(self, bar: int, offset: int, value: int, nbytes: int) -> None:
        """As `write32`, of 1 to 8 bytes at any offset."""
        arguments = (bar, ctypes.c_uint64(offset), ctypes.c_uint64(value), ctypes.c_size_t(nbytes))
        self._native.session_write(self._handle, *arguments)

    def wait_interrupt(self, timeout: float) -> bool:
        """Runs until an interrupt; False if none comes. `timeout` is ignored: time is simulated."""
        return bool(self._native.session_wait(self._handle, ctypes.c_uint64(_TIMEOUT_CYCLES)))

    def interrupt_done(self) -> None:
        """Nothing to do for MSI."""

    # Time and events -------------------------------------------------------------------------

    @property
    def cycle(self) -> int:
        """Clock cycles since the session began."""
        return self._native.session_cycle(self._handle)

    def run(self, cycles: int) -> int:
        """Runs so many cycles, fewer if nothing is left to do; returns how many."""
        return self._native.session_run(self._handle, ctypes.c_uint64(cycles))

    def acknowledge_after(self, ns: float) -> None:
        """Changes `Conditions.ack_ns` of what the board sends from now on."""
        self._native.session_acknowledge_after(self._handle, ctypes.c_double(ns))

    def events(self) -> np.ndarray:
        """Writes and interrupts that reached the host since the last call, as `EVENT`."""
        events = np.empty(_MOST_EVENTS, EVENT)
        count = self._native.session_events(
            self._handle, events.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(len(events))
        )
        if count > len(events):
            raise OverflowError(f"{count} events, but room for {len(events)}: call events() more")
        return events[:count].copy()

    @property
    def errors(self) -> int:
        """Number of PCIe rules that the core broke; also flushes the log."""
        return self._native.session_errors(self._handle)

    @property
    def pauses(self) -> Pauses:
        """What the PCIe block has done so far that is hard on a core."""
        pauses = Pauses()
        self._native.session_pauses(self._handle, ctypes.byref(pauses))
        return pauses

    def close(self) -> None:
        """Ends the board. Can be called again."""
        if self._handle:
            self._native.session_close(self._handle)
            self._handle = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        broken = self.errors if self._handle else 0
        self.close()
        if broken and kind is None:
            raise RuntimeError(f"the core broke {broken} rule(s) of PCIe")
