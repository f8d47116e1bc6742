# SPDX-License-Identifier: BSD-2-Clause
"""Arrays whose libraries do not share them: a `PinError` with the way out, and their error."""

from types import SimpleNamespace

import numpy as np
import pytest

import peerdma


class Tensor:
    """Acts like a tensor of PyTorch, on the CPU, that is exported with an error."""

    def __init__(self, error: BaseException, **facts):
        self.error = error
        plain = {
            "is_meta": False,
            "is_quantized": False,
            "is_sparse": False,
            "layout": "torch.strided",
            "is_conj": lambda: False,
            "is_neg": lambda: False,
            "dtype": "torch.float32",
            "requires_grad": False,
        }
        self.__dict__.update(plain | facts)

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **_):
        raise self.error


class OnGpu(Tensor):
    """As a parameter in a GPU's memory."""

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")


class Says:
    """Something whose interface for CUDA is this."""

    def __init__(self, interface):
        self.__cuda_array_interface__ = interface


class Exports:
    """Something that answers DLPack's questions so."""

    def __init__(self, device, capsule=None):
        self.device, self.capsule = device, capsule

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        return self.capsule


class Raises:
    """Something whose attributes raise."""

    def __init__(self, name, error):
        self.name, self.error = name, error

    def __getattr__(self, name):
        if name == self.__dict__.get("name"):
            raise self.__dict__["error"]
        raise AttributeError(name)


PLAIN = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}
DENIED = BufferError("Can't export this tensor")
FOREIGN = {
    "parameter": (Tensor(DENIED, requires_grad=True), r"tensor\.detach\(\)"),
    "parameter-on-gpu": (OnGpu(DENIED, requires_grad=True), r"tensor\.detach\(\)"),
    "conjugate": (Tensor(DENIED, is_conj=lambda: True), r"tensor\.resolve_conj\(\)"),
    "negative": (Tensor(DENIED, is_neg=lambda: True), r"tensor\.resolve_neg\(\)"),
    "sparse": (Tensor(DENIED, is_sparse=True, layout="torch.sparse_coo"), r"tensor\.to_dense\(\)"),
    "rows": (Tensor(DENIED, layout="torch.sparse_csr"), r"tensor\.to_dense\(\)"),
    "quantised": (Tensor(DENIED, is_quantized=True), r"tensor\.int_repr\(\)"),
    "complex32": (Tensor(TypeError("complex32"), dtype="torch.complex32"), "view_as_real"),
    "meta": (Tensor(ValueError("meta"), is_meta=True), "on the meta device and has no bytes"),
    "fake": (Tensor(RuntimeError("fake"), fake_mode=object()), "a fake tensor and has no bytes"),
    "anything": (Tensor(ZeroDivisionError("as a test.\nmore")), r"ZeroDivisionError: as a test\)"),
    "property": (Raises("__cuda_array_interface__", RuntimeError("no")), "RuntimeError: no"),
    "device": (Raises("__dlpack_device__", OSError("no device")), "OSError: no device"),
    "no-dictionary": (Says(7), "AttributeError"),
    "nothing-in-it": (Says({}), "KeyError"),
    "no-type": (Says(PLAIN | {"typestr": "rubbish"}), "TypeError"),
    "no-address": (Says(PLAIN | {"data": ("here", False)}), "TypeError"),
    "no-memory": (Says(PLAIN | {"data": (0, False)}), "16 bytes at address 0x0"),
    "too-far": (Says(PLAIN | {"data": ((1 << 64) - 8, False)}), "at address 0xfffffffffffffff8"),
    "below-nothing": (Says(PLAIN | {"shape": (-4,)}), r"shape \(-4,\)"),
    "objects": (Says(PLAIN | {"typestr": "|O"}), "of object"),
    "strides": (Says(PLAIN | {"strides": (4, 4)}), "ValueError"),
    "mask": (Says(PLAIN | {"mask": object()}), r"array\.filled\(value\)"),
    "no-pair": (Exports(5), "TypeError"),
    "no-capsule": (Exports((1, 0)), "not as a DLPack tensor"),
}


@pytest.fixture(params=FOREIGN)
def foreign(request):
    """What a library does not share, and what is said of it."""
    return FOREIGN[request.param]


CALLS = {
    "copy from": lambda board, gpu, thing: board.copy(thing, np.zeros(4, "f4")),
    "copy to": lambda board, gpu, thing: board.copy(np.zeros(4, "f4"), thing),
    "in a sequence": lambda board, gpu, thing: board.copy([thing], np.zeros(4, "f4")),
    "submit": lambda board, gpu, thing: board.submit(thing, np.zeros(4, "f4")),
    "prepare": lambda board, gpu, thing: board.prepare(thing, np.zeros(4, "f4")),
    "write": lambda board, gpu, thing: board.write(thing),
    "read": lambda board, gpu, thing: board.read(thing),
    "pin": lambda board, gpu, thing: board.pin(thing),
    "register": lambda board, gpu, thing: gpu.register(thing),
}


def test_an_array_that_is_not_shared(board, foreign):
    thing, words = foreign
    with peerdma.gpu("emulated") as gpu:
        for call in CALLS.values():
            with pytest.raises(peerdma.PinError, match=words) as caught:
                call(board, gpu, thing)
            assert "\n" not in str(caught.value)
            if isinstance(thing, Tensor) and not isinstance(thing, OnGpu):
                assert caught.value.__cause__ is thing.error
    board._arrays.reap()
    # What stays pinned are numpy's arrays that were given beside; nobody uses these pins.
    assert not board._arrays._others
    assert not any(pinned.users for pinned in board._arrays._kept.values())


def test_frames(sensor, foreign):
    thing, words = foreign
    with pytest.raises(peerdma.PinError, match=words):
        sensor.frames([thing, thing])


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_who_ends_the_program_is_no_refusal(board, kind):
    with pytest.raises(kind):
        board.copy(Tensor(kind()), np.zeros(4, "f4"))


def test_a_mask_is_not_lost(board):
    array = np.ma.masked_array(np.arange(4.0), [0, 1, 0, 0])
    with peerdma.gpu("emulated") as gpu:
        for call in CALLS.values():
            with pytest.raises(peerdma.PinError, match=r"its mask would be lost.* array\.data"):
                call(board, gpu, array)
        with gpu.surface(4, "f8") as surface, pytest.raises(peerdma.PinError, match="mask"):
            surface.set(array)
    target = np.zeros(4)
    board.copy(array.filled(7), target)
    assert target.tolist() == [0, 7, 2, 3]
    board.copy(array.data, target)
    assert target.tolist() == [0, 1, 2, 3]


def test_a_class_of_numpys_that_lies_about_its_place(board):
    class Liar(np.ndarray):
        @property
        def __array_interface__(self):
            raise RuntimeError("as a test")

    source, target = np.arange(10, dtype="u1").view(Liar), np.zeros(10, "u1")
    board.copy(source, target)
    assert target.tolist() == list(range(10))


def test_a_tensor_that_is_elsewhere_than_its_library_says(board):
    """DLPack's capsule of host memory, called a GPU's; and the other way round."""
    array = np.zeros(4, "f4")
    lies = SimpleNamespace(
        __dlpack_device__=lambda: (2, 0), __dlpack__=lambda **_: array.__dlpack__()
    )
    with pytest.raises(peerdma.PinError, match="on devices of kind 2 and of kind 1"):
        board.pin(lies)


def test_pinned_tensors_are_the_hosts(board):
    """PyTorch names CUDA's host memory as their device, and the host's in what it exports."""
    array, target = np.arange(4, dtype="f4"), np.zeros(4, "f4")
    pinned = SimpleNamespace(
        __dlpack_device__=lambda: (3, 0), __dlpack__=lambda **_: array.__dlpack__()
    )
    board.copy(pinned, target)
    assert (target == array).all()
