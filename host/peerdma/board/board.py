# SPDX-License-Identifier: BSD-2-Clause
"""Boards: pinning memory and moving it through the FPGA, the same on every backend."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, overload

from ..arguments import integer
from ..memory.mailbox import Mailbox
from ..memory.surface import Gpu
from ..process import OneProcess
from ..regs import USER, USER_BLOCK_SIZE
from ..uapi import Access
from ..waiting import OwnLock
from .arrays import Arrays, memory_of
from .backend import Backend, BoardInfo, Progress, require_user_block
from .clock import Bracket, ClockRate, measure_rate
from .job import Job
from .job_runner import JobRunner
from .ordered import Ordered
from .pin import CLOSED, READ_WRITE, Pin, PinTable, Side, allowed, read_only
from .plan import Plan, Planner
from .queue import Queue
from .queue_registry import QueueRegistry
from .streaming import Frames, Place, fill_frames, require_ring
from .transfer import Transfer

__all__ = ["Board"]


class Board(OneProcess):
    """A board. Use it as a context manager, or `close` it.

    Not to be built directly: use `peerdma.open`. All methods can be called from any thread, also
    while another one waits for a transfer: a `write` and a `read` go on at once.
    """

    def __init__(self, backend: Backend):
        self._backend = backend
        self._lock = OwnLock()
        self._pins = PinTable(backend, self._lock)
        self._arrays = Arrays(self._lock, self._pins)
        self._jobs = JobRunner(backend.transfers, self._lock, self._arrays)
        self._queues = QueueRegistry(self._jobs, backend, self._pins)
        self._pins.users = (self._queues, self._jobs)
        self._ordered = Ordered(self._jobs, self._arrays)
        self._plans = Planner(backend, self._jobs, self._ordered, self._arrays, self._pins)
        self._stream: Frames | None = None
        #: whether it was closed to the end
        self._ended = False

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._pins)} pins"
        return f"<Board {self._backend.info.name}, {state}>"

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._pins.closed

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancels jobs, closes all pins and the board, in seconds. Closing again does nothing.

        Nor does it in a child that was forked: the board is its parent's.
        """
        if self._lock.foreign:
            return
        # Closing that was interrupted goes on where it was.
        with self._lock:
            if not self._ended:
                self._end()
        self._queues.join()
        self._jobs.join()
        self._ordered.join()

    def _end(self) -> None:
        """All of `close` but the end of the threads. The lock is held."""
        self._pins.closed = True
        if self._stream is not None:
            self._stream.close()
        self._queues.close()
        self._jobs.refuse(CLOSED)
        self._jobs.close()
        self._ordered.close()
        self._arrays.close()
        self._pins.reap()
        self._backend.close()
        self._jobs.forget()
        self._pins.close()
        self._arrays.end()
        self._ended = True

    def info(self) -> BoardInfo:
        """What is known about the board."""
        self._lock.require_own()
        return self._backend.info

    def leds(self, value: int | None = None) -> int:
        """Sets the LEDs, a bit each, unless `value` is None; returns what is lit."""
        mask = USER["led"].writable
        if value is not None and not 0 <= integer(value, "the LEDs' value") <= mask:
            raise ValueError(f"the board's LEDs are the bits of a number 0 to {mask}, not {value}")
        with self._lock:
            self._pins.require_open()
            return self._backend.leds(value)

    def measure_clock(self) -> ClockRate | None:
        """Measures the rate of the board's clock by the host's, for a tenth of a second.

        It should be `BoardInfo.extension.clock_khz`: the core's timeouts count in it. None where
        that cannot be told: of plain XDMA, a simulated board, or a board that was reset meanwhile.
        """
        return measure_rate(self._read_clock)

    def _read_clock(self) -> Bracket | None:
        with self._lock:
            self._pins.require_open()
            return None if self._backend.info.simulated else self._backend.read_clock()

    def mailbox(self) -> Mailbox:
        """The registers that a GPU writes as data arrives, see `Gpu.map_mailbox`.

        Raises
        ------
        UnsupportedError
            If the board has no mailbox, or does not offer it as a page.
        """
        with self._lock:
            self._pins.require_open()
            return Mailbox(self._backend.mailbox())

    def export_mailbox(self) -> int:
        """The mailbox page as a dma-buf, for the driver of another device: a file descriptor.

        It is the caller's, who closes it. docs/driver.md says who can import it, and that it ends
        with the board.

        Raises
        ------
        UnsupportedError
            If the board has no mailbox, or its driver is not the kernel's.
        """
        with self._lock:
            self._pins.require_open()
            return self._backend.export_mailbox()

    def pin(self, memory: Any, *, access: Access | None = None) -> Pin:
        """Pins memory for this board's DMA.

        Transfers take arrays without that, and pin them by themselves (docs/arrays.md). A pin of
        one's own has a lifetime of one's own, and spans.

        Parameters
        ----------
        memory : Surface, DmaBuf, or an array
            A C-contiguous array of numpy, PyTorch, CuPy, Numba, or anything else with DLPack,
            ``__cuda_array_interface__`` or the buffer protocol. It stays alive at least as long as
            the pin.
        access : Access, optional
            What the board may do: READ from it, as the source of a transfer, WRITE to it, as the
            destination, or both (READ | WRITE). By default all that the memory allows: a read-only
            array can only be a source. Transfers that need more are refused.

        Raises
        ------
        PinError
            If the memory is not of a kind that can be pinned, is closed, or is read-only and
            `access` has WRITE.
        """
        self._lock.require_own()
        found = memory_of(memory, self._arrays.cuda)
        if access is None:
            access = allowed(found)
        elif found.readonly and Access.WRITE in access:
            raise read_only("pin", found.nbytes, found.address)
        with self._lock:
            return self._pins.pin(found, access)

    @overload
    def copy(
        self, source: Side, destination: Side, *, progress: Progress | None = None
    ) -> Transfer:
        """Waits for the end of the copy."""

    @overload
    def copy(self, source: Side, destination: Side, *, stream: Any) -> Job:
        """In the order of a stream."""

    def copy(
        self,
        source: Side,
        destination: Side,
        *,
        progress: Progress | None = None,
        stream: Any = None,
    ) -> Transfer | Job:
        """Copies memory to memory through the board.

        Parameters
        ----------
        source, destination : array, Pin, Span (``pin[start:stop]``), or a sequence of them
            Arrays are what `pin` takes; work that their libraries have queued on them is waited
            for. A sequence is taken as one memory, piece after piece. Both sides have the same
            length in bytes, but may be divided differently.
        progress : callable, optional
            Called with (bytes done, bytes in all) during the copy.
        stream : optional
            A CUDA stream: of PyTorch, CuPy, Numba, cuda.core, or its handle. The copy starts after
            the stream's work so far, and its later work after the copy; this returns a `Job` at
            once, and waits for no other stream. While the stream is captured, the copy becomes part
            of the graph (docs/jobs.md).

        Raises
        ------
        TransferError
            If lengths differ or source and destination overlap (nothing has been transferred then),
            or the transfer failed (the content of the destination is then undefined).
        PinError
            If the board cannot reach an array, a pin is closed or another board's, or something is
            pinned without the access that the transfer needs, as a read-only destination (nothing
            has been transferred then).
        BoardLost, Timeout
            If the board went away or did not finish; it accesses no memory any more.
        """
        plan = self._plans.copy(source, destination)
        if stream is not None:
            if progress is not None:
                raise TypeError("a copy in a stream reports no progress; leave out one of the two")
            return plan.submit(stream=stream)
        return self._run(plan, progress)

    def submit(self, source: Side, destination: Side) -> Job:
        """Starts a copy and returns at once; else as `copy`, which is ``submit().result()``.

        What is wrong with the arguments is raised here, what goes wrong later by `Job.result`. The
        job holds arrays until it has ended.
        """
        return self._plans.copy(source, destination).submit()

    def submit_batch(self, pairs: Iterable[tuple[Side, Side]]) -> list[Job]:
        """Starts a copy for each pair of source and destination, or none if one of them is wrong.

        >>> jobs = board.submit_batch([(s[:4096], d[:4096]), (t, e)])
        >>> transfers = [job.result() for job in jobs]
        """
        plans = [self._plans.copy(*sides) for sides in pairs]
        for plan in plans:
            plan.order()
        jobs = [Job(self._jobs, plan) for plan in plans]
        self._jobs.submit(*jobs)
        return jobs

    def prepare(self, source: Side, destination: Side) -> Plan:
        """Checks and prepares a copy, to be made any number of times; arguments as for `copy`.

        >>> plan = board.prepare(s, d)
        >>> plan.run()  # as board.copy(s, d), but the work of checking it is done
        >>> job = plan.submit()
        """
        return self._plans.copy(source, destination)

    def prepare_write(self, source: Any, card_address: int = 0) -> Plan:
        """Checks and prepares a `write`, to be made any number of times.

        >>> plan = board.prepare_write(s, peerdma.USER_STREAM)
        >>> queue = board.queue([plan])  # a kernel pushes s into the user block

        Parameters
        ----------
        source : array, Pin or Span
            As for `copy`, in one piece.
        card_address : int
            A byte of card RAM; or `peerdma.USER_STREAM`, for what the user block takes, whenever it
            does. What it makes of that stays in the stream until something is read from there,
            or the last queue with such plans is closed.

        Raises
        ------
        TransferError
            If it does not fit card RAM.
        UnsupportedError
            If the user stream is asked for, and the board has none, its user block takes no bytes,
            or the board's copies go through it (user block PASS).
        """
        return self._plans.write(source, card_address)

    def prepare_read(self, destination: Any, card_address: int = 0) -> Plan:
        """Checks and prepares a `read`, to be made any number of times; as `prepare_write`.

        From the `peerdma.USER_STREAM` it takes as many bytes of what the user block makes as the
        destination has, and waits for them; memory that is read-only is refused with a PinError.
        """
        return self._plans.read(destination, card_address)

    def prepare_receive(self, array: Side, record: Any) -> Plan:
        """Checks and prepares to receive a frame, by tickets of a launch queue only.

        Each ticket takes the next frame that the user block makes, whole, and waits for it.

        >>> array, record = gpu.surface(4096), gpu.surface(32)
        >>> queue = board.queue([board.prepare_receive(array, record)])
        >>> queue.wait(queue.submit(0))  # or a kernel does; the source was started before
        >>> found = record.get().view(peerdma.regs.FRAME_RECORD)  # "bytes", "number", "crc", ...

        Parameters
        ----------
        array : array, Pin, Span, or a sequence of them
            Where frames go, as for `copy`. What is behind the end of a shorter frame stays as it
            is. **Of a longer one this has the first bytes**, and the rest is dropped: that is no
            failure, and the record has more `bytes` than there are here.
        record : array, Pin or Span
            Where the frame's record goes, behind the frame: 32 bytes at a multiple of 32,
            `FRAME_RECORD` of `peerdma.regs`.

        Raises
        ------
        UnsupportedError
            If the user block makes no frames with records, or launch queues of the board or its
            driver do not take them.
        TransferError
            If there is no such place for a record, or it overlaps with the array.
        PinError
            If memory is read-only, or pinned without `Access.WRITE`.
        """
        return self._plans.receive(array, record)

    def queue(self, plans: Sequence[Plan], *, depth: int = 256, gpu: Gpu | None = None) -> Queue:
        """Opens a launch queue, by which kernels of a GPU start plans themselves.

        >>> with board.queue([board.prepare(s, d)]) as queue:
        ...     launch(kernel, queue.device)  # peerdma_submit(queue, 0, ...) of device.cuh
        ...     queue.wait(ticket)

        A copy may begin before the one ahead of it has ended, unless one of the queue's copies
        reads what another one writes. That is told by addresses: of memory that is mapped twice, by
        two addresses, give a queue only one.

        Parameters
        ----------
        plans : sequence of Plan
            What `prepare`, `prepare_write`, `prepare_read` and `prepare_receive` returned, 1 MiB
            each at most (with the kernel driver, 16 MiB and one piece of memory on each side);
            kernels name them by their numbers here. All queues of a board have 64 slots, of which a
            copy and a receive take two. The queue keeps its plans.
        depth : int
            Tickets that can be on their way: 8, 16, 32, 64, 128 or 256.
        gpu : Gpu, optional
            Whose kernels are given `Queue.device`; by default the one whose memory a plan has.

        Raises
        ------
        UnsupportedError
            If the board or its driver has no launch queues, or none that is free.
        PeerdmaError
            If transfers cannot start now, as while `frames` are open.
        """
        with self._lock:
            self._pins.require_open()
            return self._queues.open(plans, depth, gpu)

    def process(
        self, source: Side, destination: Side, *, progress: Progress | None = None
    ) -> Transfer:
        """Transfers memory through the board's user block to memory.

        The length of the destination follows from `Extension.user_ratio`. All else is as for
        `copy`, which never changes a byte; `Transfer.bytes` counts the source.

        Raises
        ------
        UnsupportedError
            If the board has no user block that takes bytes, or its driver does not support it.
        """
        self._lock.require_own()
        return self._run(self._plans.process(source, destination), progress)

    def frames(
        self,
        arrays: Sequence[Any],
        *,
        frame_bytes: int | None = None,
        stream: Any = None,
        overwrite: bool = False,
        timeout: float | None = None,
    ) -> Frames:
        """Fills arrays with frames of a source on the board, in a ring, until it is closed.

        An array goes back to the board when the next frame is asked for, or by `Frame.release`. If
        its library knows a current stream, as PyTorch and CuPy do, that is waited for. While the
        board has no array to fill, its source drops frames and counts them (`FrameRecord.dropped`).
        No other transfer can be made meanwhile.

        >>> with board.frames([a, b, c], stream=torch.cuda.current_stream()) as frames:
        ...     for frame in frames:
        ...         infer(frame.array)  # queued in the stream; nothing waits for it here

        Parameters
        ----------
        arrays : sequence
            Where frames go, in this order: what `pin` takes, pins and spans. It pins them itself.
        frame_bytes : int, optional
            Bytes of a frame, from the start of each array; by default the whole array. The source
            has to make frames of this size.
        stream : optional
            A CUDA stream, as for `copy`. Work queued in it after a frame was yielded finds the
            frame. The array goes back to the board when the work has ended that was queued until
            the next frame was asked for, or `Frame.release` was called. The loop does not wait for
            that unless the board has filled all arrays.
        overwrite : bool
            If true, the board never waits and overwrites the oldest array; the loop gets the newest
            frame, and those in between are counted as dropped. Not with a stream.
        timeout : float, optional
            Seconds to wait for a frame.

        Raises
        ------
        UnsupportedError
            If the board has no source, or its driver does not support it.
        PeerdmaError
            If transfers cannot start now, or a launch queue that receives frames is open.
        PinError
            If an array cannot be pinned for the board to write, such as a read-only one.
        """
        self._lock.require_own()
        extension = require_user_block(self._backend)
        require_ring(arrays, overwrite, stream, extension)
        after = None if stream is None else self._ordered.after(stream)
        with self._lock, contextlib.ExitStack() as undo:
            self._jobs.require_startable()
            self._jobs.settle()
            self._jobs.require_startable()
            self._queues.require_no_receive()

            def pin(memory: Any) -> Pin:
                return undo.enter_context(self.pin(memory, access=READ_WRITE))

            def closed() -> None:
                self._stream = None
                self._jobs.refuse(CLOSED if self.closed else None)
                pins.close()

            self._stream = fill_frames(
                self._jobs,
                self._backend,
                extension.capabilities,
                [Place(a, frame_bytes, self._plans.span, pin, self._arrays) for a in arrays],
                pin,
                after=after,
                overwrite=overwrite,
                timeout=timeout,
                closed=closed,
            )
            self._jobs.refuse("cannot transfer while a stream is open; close the stream first")
            pins = undo.pop_all()
            return self._stream

    def user_register(self, offset: int, value: int | None = None) -> int:
        """Writes `value`, if given, to the 32-bit register at byte `offset`; returns its value.

        Raises
        ------
        UnsupportedError
            If the board has no user block.
        """
        self._lock.require_own()
        require_user_block(self._backend)
        if integer(offset, "a register's offset") % 4 or not 0 <= offset < USER_BLOCK_SIZE:
            raise ValueError(
                f"a user block's registers are at multiples of 4 below {USER_BLOCK_SIZE:#x}, "
                f"not at {offset:#x}"
            )
        if value is not None:
            value = integer(value, "a register's value")
        with self._lock:
            self._pins.require_open()
            return self._backend.user_register(offset, value)

    def write(self, source: Any, card_address: int = 0) -> Transfer:
        """Copies an array, a pin or a span to card RAM; arguments as for `prepare_write`.

        Raises
        ------
        TransferError
            If it does not fit card RAM (nothing has been transferred then), or failed.
        """
        return self._run(self._plans.write(source, card_address))

    def read(self, destination: Any, card_address: int = 0) -> Transfer:
        """Copies card RAM to memory; arguments as for `prepare_read`, the rest as for `write`.

        Memory that is read-only, or pinned without `Access.WRITE`, is refused with a PinError.
        """
        return self._run(self._plans.read(destination, card_address))

    def _run(self, plan: Plan, progress: Progress | None = None) -> Transfer:
        """Runs a plan; arrays that it pinned for itself are unpinned at its end."""
        try:
            return plan.run(progress=progress)
        finally:
            if plan.leases:
                for lease in plan.leases:
                    lease.close()
                self._arrays.reap()
