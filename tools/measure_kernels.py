# SPDX-License-Identifier: BSD-2-Clause
"""Measures the rate of the kernels on surfaces, and of a device-to-device copy for comparison.

    .venv/bin/python tools/measure_kernels.py [GPU index]

Each time is the median of runs between two events on the GPU; the surfaces are larger than its
cache. For a copy as for the kernels, the rate counts both the bytes read and the bytes written.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "host"))

from peerdma.cuda.gpu import CudaGpu
from peerdma.cuda.program import POINTER, SIZE, WORD, Program
from peerdma.testing.cuda import SOURCE, source

_NBYTES = 1 << 30
_WARM_UP, _RUNS = 3, 20


def main() -> None:
    """Prints a line per kernel."""
    with (
        CudaGpu(int(sys.argv[1]) if len(sys.argv) > 1 else 0, "device") as gpu,
        gpu.surface(_NBYTES) as one,
        gpu.surface(_NBYTES) as other,
        gpu.surface(16) as result,
    ):
        one.fill(1)
        other.fill(1)
        _measure(gpu, one, other, result)


def _measure(gpu: CudaGpu, one, other, result) -> None:
    device, call = gpu.device, gpu.device.driver.call
    launch = Program(device, SOURCE, source()).launch
    at, to = (one.device_address, POINTER), (other.device_address, POINTER)
    size, seed, where = (_NBYTES, SIZE), (1, WORD), (result.device_address, POINTER)

    def copy() -> None:
        call("cuMemcpyDtoDAsync", to[0], at[0], _NBYTES, device.stream, action="copy")

    work: dict[str, tuple[int, Callable[[], None]]] = {
        "copy": (2, copy),
        "fill": (1, lambda: launch("fill", at, size, seed)),
        "verify": (1, lambda: launch("verify", at, size, seed, where)),
        "compare": (2, lambda: launch("compare", at, to, size, where)),
        "checksum": (1, lambda: launch("checksum", at, size, where)),
    }
    print(f"{gpu.name}, surfaces of {_NBYTES} bytes, median of {_RUNS} runs")
    reference = 0.0
    for name, (passes, action) in work.items():
        seconds = _seconds(device, action)
        rate = passes * _NBYTES / statistics.median(seconds)
        reference = reference or rate
        spread = (max(seconds) - min(seconds)) / statistics.median(seconds)
        print(f"{name:<10}{rate / 1e9:8.0f} GB/s {rate / reference:6.1%}   spread {spread:.1%}")


def _seconds(device, action: Callable[[], None]) -> list[float]:
    call = device.driver.call
    with device.current():
        events = [call("cuEventCreate", 0, action="time a kernel") for _ in range(2)]
        times = []
        for number in range(_WARM_UP + _RUNS):
            call("cuEventRecord", events[0], device.stream, action="time a kernel")
            action()
            call("cuEventRecord", events[1], device.stream, action="time a kernel")
            device.synchronize()
            if number >= _WARM_UP:
                times.append(call("cuEventElapsedTime", *events, action="time a kernel") / 1e3)
        for event in events:
            call("cuEventDestroy", event, action="time a kernel")
    return times


if __name__ == "__main__":
    main()
