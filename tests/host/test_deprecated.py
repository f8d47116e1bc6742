# SPDX-License-Identifier: BSD-2-Clause
"""Names that changed: the old ones still work, and say in a warning what to write instead."""

import pytest

import peerdma
from peerdma import testing


def resolved(path: str):
    """What a dotted name below `peerdma` stands for."""
    found = peerdma
    for name in path.split(".")[1:]:
        found = getattr(found, name)
    return found


@pytest.mark.parametrize(("old", "new"), sorted(peerdma._RENAMED.items()))
def test_a_former_name_is_the_new_one_with_a_warning(old, new):
    with pytest.warns(DeprecationWarning, match=f"^peerdma.{old} will be gone .* {new}$") as found:
        assert getattr(peerdma, old) is resolved(new)
    assert found[0].filename == __file__
    assert old not in dir(peerdma)


def test_former_methods_of_a_gpu_do_what_they_did(emulated_gpu):
    with emulated_gpu.surface(100) as one, emulated_gpu.surface(100) as other:
        with pytest.warns(DeprecationWarning, match=r"write surface\.fill\(seed\)") as found:
            emulated_gpu.fill(one, 1)
        assert found[0].filename == __file__
        emulated_gpu.verify(one, seed=1)
        with (
            pytest.warns(DeprecationWarning, match=r"write peerdma\.testing\.compare"),
            pytest.raises(peerdma.VerifyError),
        ):
            emulated_gpu.compare(one, other)
        with pytest.warns(DeprecationWarning, match=r"write peerdma\.testing\.checksum"):
            assert emulated_gpu.checksum(one) == testing.checksum(one)
        with (
            pytest.warns(DeprecationWarning, match=r"write peerdma\.testing\.watch"),
            pytest.raises(ValueError, match="a token is"),
        ):
            emulated_gpu.watch(one, None, seed=1, token=0)
