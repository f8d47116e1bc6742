# SPDX-License-Identifier: BSD-2-Clause
"""First mistakes: one line says what to write instead."""

from types import SimpleNamespace

import numpy as np
import pytest

import peerdma
from peerdma import testing

PIN_IT = r"that is not pinned; pin it first: with board\.pin\(surface\) as s"


@pytest.fixture
def surface(emulated_gpu):
    """A surface that nobody has pinned."""
    with emulated_gpu.surface((4, 4), "u4") as surface:
        yield surface


@pytest.mark.parametrize("call", ["copy", "process"])
def test_surfaces_and_arrays_are_to_be_pinned(board, surface, call):
    transfer = getattr(board, call)
    array = np.zeros(64, np.uint8)
    with board.pin(surface) as pin:
        for one, other in (
            (surface, surface),
            (surface, pin),
            (pin, surface),
            (array, pin),
            (pin, array),
            ([pin, surface], pin),
        ):
            with pytest.raises(peerdma.PinError, match=PIN_IT):
                transfer(one, other)


@pytest.mark.parametrize("call", ["copy", "process"])
@pytest.mark.parametrize("given", [0, None, "surface", [1, 2, 3], b"bytes", object()])
def test_what_is_no_memory_is_not_copied(board, surface, call, given):
    with board.pin(surface) as pin:
        for sides in ((given, pin), (pin, given)):
            with pytest.raises(
                TypeError, match=r"a transfer takes a pin, .*; board\.pin\(\.\.\.\)"
            ):
                getattr(board, call)(*sides)


@pytest.mark.parametrize("call", ["read", "write"])
def test_card_ram_takes_the_memory_first(board, surface, call):
    transfer = getattr(board, call)
    with pytest.raises(peerdma.PinError, match=PIN_IT):
        transfer(surface)
    for memory, found in ((0, "0"), ([1, 2, 3], "one of type list"), (None, "None")):
        message = rf"the memory of board\.{call}\(memory, card_address\) is a pin, .*, not {found};"
        with pytest.raises(TypeError, match=message):
            transfer(memory, np.zeros(4))
    for address in (1.5, np.zeros(4), "0x10"):
        with pytest.raises(TypeError, match="a card address is a whole number, not"):
            transfer(np.zeros(4), address)
    transfer(np.zeros(4), np.int64(8))


def test_numbers_of_a_board_are_whole(board):
    with pytest.raises(TypeError, match=r"the LEDs' value is a whole number, not 1\.5"):
        board.leds(1.5)
    with pytest.raises(TypeError, match="a register's offset is a whole number, not '4'"):
        board.user_register("4")
    with pytest.raises(TypeError, match="a register's value is a whole number, not '1'"):
        board.user_register(0, "1")


def test_a_stream_takes_a_sequence(sensor, surface):
    with pytest.raises(TypeError, match=r"a stream fills a sequence of surfaces, not one of type"):
        sensor.frames(surface)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [("verify", {"seed": 1}), ("fill", {"seed": 1}), ("checksum", {}), ("watch", {"seed": 1})],
)
def test_gpus_work_on_surfaces(every_gpu, call, arguments):
    mailbox = [None] if call == "watch" else []
    doors = {"verify": [every_gpu.verify]}.get(call, [])
    for function in (getattr(testing, call), *doors):
        with pytest.raises(
            TypeError, match=r"works on surfaces, not one of type ndarray; .*register"
        ):
            function(np.zeros(4), *mailbox, **arguments)


def test_gpus_compare_surfaces(every_gpu):
    with every_gpu.surface(4) as surface:
        for sides in ((surface, np.zeros(4, np.uint8)), ([1, 2], surface)):
            with pytest.raises(TypeError, match="a GPU works on surfaces, not one of type"):
                testing.compare(*sides)


@pytest.mark.parametrize(
    ("shape", "found"),
    [((1.5, 4), r"1\.5"), (4.0, r"4\.0"), ("4x4", "'4x4'"), (None, "None"), ((4, "4"), "'4'")],
)
def test_dimensions_are_whole(every_gpu, shape, found):
    with pytest.raises(TypeError, match=f"a dimension of a surface is a whole number, not {found}"):
        every_gpu.surface(shape)


def test_dimensions_may_be_numbers_of_numpy(every_gpu):
    for shape in (np.int64(4), (np.uint8(4),), np.array([4])):
        with every_gpu.surface(shape) as surface:
            assert surface.shape == (4,)
            assert type(surface.shape[0]) is int


def test_seeds_and_tokens_are_whole(every_gpu):
    with every_gpu.surface(8) as surface:
        for seed, found in (("x", "'x'"), (1.5, r"1\.5"), (None, "None")):
            with pytest.raises(TypeError, match=f"a seed is a whole number, not {found}"):
                surface.fill(seed)
            with pytest.raises(TypeError, match="a seed is a whole number"):
                every_gpu.verify(surface, seed=seed)
        with pytest.raises(TypeError, match=r"a token is a whole number, not 1\.5"):
            testing.watch(surface, None, seed=1, token=1.5)
        surface.fill(np.uint32(5))
        every_gpu.verify(surface, seed=5)


def test_a_number_is_the_cuda_gpu_of_that_number(monkeypatch):
    def cuda_gpu(index, memory):
        return SimpleNamespace(name=f"GPU {index}", memory=memory)

    monkeypatch.setattr("peerdma.cuda.gpu.CudaGpu", cuda_gpu)
    for kind, index in ((0, 0), (1, 1), (np.int64(2), 2), ("cuda:3", 3)):
        assert peerdma.gpu(kind) == cuda_gpu(index, "auto")


@pytest.mark.parametrize(
    ("kind", "error"), [(-1, ValueError), ("0", ValueError), (None, TypeError), (1.0, TypeError)]
)
def test_what_is_no_gpu(kind, error):
    message = "a GPU is a number, or one of auto, emulated, cuda, cuda:N, not"
    with pytest.raises(error, match=message):
        peerdma.gpu(kind)
