# SPDX-License-Identifier: BSD-2-Clause
"""On two real CUDA GPUs: which one memory is in, and the way to the second."""

import importlib

import pytest

import peerdma


@pytest.fixture
def pair():
    """Two GPUs, with surfaces in their own memory."""
    with (
        peerdma.gpu("cuda:0", memory="device") as one,
        peerdma.gpu("cuda:1", memory="device") as other,
    ):
        yield one, other


def test_each_gpu_has_its_own_memory_and_kernels(pair):
    surfaces = [gpu.surface(100_000) for gpu in pair]
    for seed, (gpu, surface) in enumerate(zip(pair, surfaces, strict=True)):
        surface.fill(seed)
        gpu.verify(surface, seed=seed)
        assert surface.__dlpack_device__() == (2, seed)
    with pytest.raises(ValueError, match="is not a surface of"):
        pair[0].verify(surfaces[1], seed=1)


def test_an_array_is_registered_with_the_gpu_that_has_it(pair):
    torch = importlib.import_module("torch")
    tensor = torch.zeros(1000, device="cuda:1")
    pair[1].register(tensor).close()
    with pytest.raises(peerdma.PinError, match=r'in GPU 1, this is GPU 0. .*gpu\("cuda:1"\)'):
        pair[0].register(tensor)


def test_what_a_board_wrote_goes_on_to_a_second_gpu_through_nccl(board, pair):
    """From the board into one GPU, and from there by NCCL, which takes the surface as a tensor."""
    torch = importlib.import_module("torch")
    nccl = importlib.import_module("torch.cuda.nccl")
    src, near, far = pair[0].surface(1 << 20), pair[0].surface(1 << 20), pair[1].surface(1 << 20)
    src.fill(7)
    with board.pin(src) as s, board.pin(near) as d:
        board.copy(s, d)
    nccl.broadcast([torch.from_dlpack(near), torch.from_dlpack(far)])
    for gpu in pair:
        gpu.synchronize()
    pair[1].verify(far, seed=7)
