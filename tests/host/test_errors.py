# SPDX-License-Identifier: BSD-2-Clause
"""The tree of errors: what they are to Python, and that they reach the caller from elsewhere."""

import copy
import errno
import itertools
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import pytest
from distributed.core import clean_exception, error_message

import peerdma
from peerdma import errors


def classes(kind: type[peerdma.PeerdmaError] = peerdma.PeerdmaError) -> list[type]:
    """A class of errors and all that derive from it."""
    return [kind, *itertools.chain(*map(classes, kind.__subclasses__()))]


#: What classes take beside a message and an errno.
ARGUMENTS = {
    peerdma.TransferError: (
        ("it failed",),
        {"status": 0x4000, "kind": 3, "address": 0x1234, "errno": errno.EIO},
    ),
    peerdma.VerifyError: (
        ("it is wrong",),
        {"offset": 4, "expected": 1, "found": 2, "wrong": 3},
    ),
    peerdma.GpuNotFound: (("use a GPU", "there is none", "Buy one"), {}),
    peerdma.CudaError: (("fill", "it says no", "Ask"), {"name": "CUDA_ERROR_UNKNOWN"}),
}
#: One of each class, with all that it can carry.
ERRORS = [
    kind(*arguments, **options)
    for kind in classes()
    for arguments, options in [ARGUMENTS.get(kind, (("some text",), {"errno": errno.EIO}))]
]
#: What the system or a device answered.
ANSWERS = (
    peerdma.BoardLost,
    peerdma.BoardNotFound,
    peerdma.PinError,
    peerdma.ProtocolError,
    peerdma.Timeout,
    peerdma.TransferError,
    peerdma.UnsupportedError,
    peerdma.VersionMismatch,
)

each_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


def content(error: BaseException) -> tuple:
    """All that an error says."""
    return type(error), str(error), error.args, error.errno, vars(error)


def through_dask(error: BaseException) -> BaseException:
    """As a worker's error comes to the client."""
    message = error_message(error)
    _, found, _ = clean_exception(message["exception"].data)
    return found


def test_all_classes_are_public():
    assert {kind.__name__ for kind in classes()} <= {*errors.__all__, *peerdma.__all__}


@each_error
@pytest.mark.parametrize(
    "way",
    [
        *(
            pytest.param(lambda e, p=p: pickle.loads(pickle.dumps(e, p)), id=f"pickle-{p}")
            for p in range(pickle.HIGHEST_PROTOCOL + 1)
        ),
        pytest.param(copy.copy, id="copy"),
        pytest.param(copy.deepcopy, id="deepcopy"),
        pytest.param(through_dask, id="dask"),
    ],
)
def test_an_error_can_be_copied_and_pickled(error, way):
    found = way(error)
    assert found is not error
    assert content(found) == content(error)


def fail() -> None:
    """Fails in a worker."""
    with peerdma.gpu("emulated") as gpu, gpu.surface(100) as surface:
        gpu.verify(surface, seed=1)


def test_an_error_in_a_worker_reaches_the_caller_and_the_pool_goes_on():
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(peerdma.VerifyError, match="The pattern of seed 1") as caught:
            pool.submit(fail).result(120)
        assert (caught.value.offset, caught.value.wrong, caught.value.found) == (0, 25, 0)
        assert pool.submit(abs, -1).result(120) == 1


@each_error
def test_what_the_system_or_a_device_answered_is_an_oserror(error):
    assert isinstance(error, OSError) == isinstance(error, ANSWERS)
    assert isinstance(error, TimeoutError) == isinstance(error, peerdma.Timeout)
    assert str(error) == error.args[0]


def test_an_error_without_a_number_has_none():
    assert peerdma.PinError("it is closed").errno is None
    with pytest.raises(OSError, match="it is closed"):
        raise peerdma.PinError("it is closed")
