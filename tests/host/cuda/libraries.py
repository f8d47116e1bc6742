# SPDX-License-Identifier: BSD-2-Clause
"""Array libraries as the tests of sharing memory use them, and a stand-in for them."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import time

import numpy as np

from peerdma.cuda.gpu import CudaGpu
from peerdma.memory import dlpack

#: More than 0.1 s on any GPU's clock.
_LATE_CYCLES = 300_000_000
_SPIN = """
extern "C" __global__ void spin(long long cycles) {
    for (long long begin = clock64(); clock64() - begin < cycles;) {}
}
"""


class Torch:
    """PyTorch."""

    def __init__(self, gpu: CudaGpu):
        self._torch = importlib.import_module("torch")
        self._device = f"cuda:{gpu.index}"

    def view(self, surface, how: str):
        """The surface as an array of the library, by "interface" or "dlpack"."""
        if how == "dlpack":
            return self._torch.from_dlpack(surface)
        return self._torch.as_tensor(surface, device=self._device)

    def make(self, content: np.ndarray):
        """A new array of the library, in GPU memory."""
        return self._torch.from_numpy(content).to(self._device)

    def read(self, array) -> np.ndarray:
        """An array of the library as one of numpy."""
        return array.cpu().numpy()

    def stream(self):
        """A new stream of the library's, which waits for no other."""
        return self._torch.cuda.Stream(self._device)

    @staticmethod
    def handle(stream) -> int:
        """The stream as CUDA's number."""
        return stream.cuda_stream

    def add(self, array, result, stream) -> None:
        """Queues a kernel in a stream: ``result += array``."""
        with self._torch.cuda.stream(stream):
            result.add_(array)

    def close(self) -> None:
        """Gives the streams back."""

    def write(self, array, content: np.ndarray) -> None:
        """Puts content into an array of the library; does not wait for the GPU."""
        array.copy_(self._torch.from_numpy(content))

    @contextlib.contextmanager
    def late(self, array, content: np.ndarray):
        """Queues content for an array, behind work of 0.1 s, in a stream that is current inside."""
        torch = self._torch
        ready = torch.from_numpy(content).to(self._device)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream(self._device)):
            torch.cuda._sleep(_LATE_CYCLES)
            array.copy_(ready)
            yield


class Cupy:
    """CuPy; the methods are as those of `Torch`."""

    def __init__(self, gpu: CudaGpu):
        self._cupy = importlib.import_module("cupy")
        self._cupy.cuda.Device(gpu.index).use()

    def view(self, surface, how: str):
        return self._cupy.from_dlpack(surface) if how == "dlpack" else self._cupy.asarray(surface)

    def make(self, content: np.ndarray):
        return self._cupy.asarray(content)

    def read(self, array) -> np.ndarray:
        return self._cupy.asnumpy(array)

    def stream(self):
        return self._cupy.cuda.Stream(non_blocking=True)

    @staticmethod
    def handle(stream) -> int:
        return stream.ptr

    def add(self, array, result, stream) -> None:
        with stream:
            self._cupy.add(result, array, out=result)

    def close(self) -> None:
        pass

    def write(self, array, content: np.ndarray) -> None:
        array[...] = self._cupy.asarray(content)

    @contextlib.contextmanager
    def late(self, array, content: np.ndarray):
        ready = self._cupy.asarray(content)
        spin = self._cupy.RawKernel(_SPIN, "spin")
        self._cupy.cuda.Device().synchronize()
        with self._cupy.cuda.Stream(non_blocking=True):
            spin((1,), (1,), (np.int64(_LATE_CYCLES),))
            array[...] = ready
            yield


class StandIn:
    """As `Torch`, on the stand-in for CUDA: takes the protocols as such a library does."""

    class Array:
        """An array in "GPU memory" of the stand-in."""

        def __init__(self, address, shape, dtype, owner=None):
            self.owner = owner
            self.data = np.ctypeslib.as_array(
                (ctypes.c_uint8 * (int(np.prod(shape)) * dtype.itemsize)).from_address(address)
            ).view(dtype)
            self.data = self.data.reshape(shape)
            self.__cuda_array_interface__ = {
                "shape": shape,
                "typestr": dtype.str,
                "data": (address, False),
                "version": 3,
                "stream": 1,
            }

    def __init__(self, gpu: CudaGpu):
        self._gpu = gpu
        self._streams: list[int] = []

    def view(self, surface, how: str):
        if how == "dlpack":
            tensor = dlpack.read(surface)
            return self.Array(tensor.address, tensor.shape, tensor.dtype, tensor.owner)
        interface = surface.__cuda_array_interface__
        dtype = np.dtype(interface["typestr"])
        return self.Array(interface["data"][0], interface["shape"], dtype, surface)

    def make(self, content: np.ndarray):
        own = self._gpu.surface(content.shape, content.dtype)
        own.set(content)
        return self.Array(own.device_address, content.shape, content.dtype, own)

    def read(self, array) -> np.ndarray:
        return array.data.copy()

    def stream(self):
        device = self._gpu.device
        with device.current():
            self._streams.append(device.driver.call("cuStreamCreate", 1, action="create a stream"))
        return self._streams[-1]

    @staticmethod
    def handle(stream) -> int:
        return stream

    def add(self, array, result, stream) -> None:
        def work():
            result.data[...] += array.data

        self._gpu.device.driver.api.queue(stream, work, waits=False)

    def close(self) -> None:
        for stream in self._streams:
            self._gpu.device.driver.call("cuStreamDestroy", stream, action="destroy it")
        self._streams.clear()

    def write(self, array, content: np.ndarray) -> None:
        array.data[...] = content

    @contextlib.contextmanager
    def late(self, array, content: np.ndarray):
        driver = self._gpu.device.driver
        with self._gpu.device.current():
            stream = driver.call("cuStreamCreate", 1, action="create a stream")
            driver.api.queue(stream, lambda: time.sleep(0.1))
            driver.api.queue(stream, lambda: self.write(array, content))
            array.__cuda_array_interface__["stream"] = stream
            yield
            driver.call("cuStreamSynchronize", stream, action="wait for it")
            driver.call("cuStreamDestroy", stream, action="destroy it")
        array.__cuda_array_interface__["stream"] = 1


def present() -> dict[str, type]:
    """The real libraries that are installed here."""
    found = {}
    for name, library in (("torch", Torch), ("cupy", Cupy)):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        found[name] = library
    return found
