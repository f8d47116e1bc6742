# SPDX-License-Identifier: BSD-2-Clause
"""Which GPU to use."""

from __future__ import annotations

from .emulated import DISCRETE, INTEGRATED, EmulatedGpu
from .errors import UnsupportedError
from .surface import Gpu

__all__ = ["gpu"]

_PERSONALITIES = {"auto": DISCRETE, "device": DISCRETE, "host": INTEGRATED}


def gpu(kind: str = "auto", *, memory: str = "auto") -> Gpu:
    """A GPU.

    Parameters
    ----------
    kind : "auto", "emulated" or "cuda"
        "auto" is the emulated GPU in this version; `Gpu.name` and `Gpu.emulated` say so.
    memory : "auto", "device" or "host"
        Where surfaces live: in memory of a discrete GPU, reached peer-to-peer, or in memory of
        the host, as an integrated GPU has them. "auto" is "device".

    Raises
    ------
    UnsupportedError
        For "cuda": this version has no CUDA yet.
    """
    if memory not in _PERSONALITIES:
        raise ValueError(f"memory is one of {', '.join(_PERSONALITIES)}, not {memory!r}")
    if kind == "cuda":
        raise UnsupportedError(
            "asked for a CUDA GPU: this version of peerdma has only the emulated GPU, which "
            'works without any hardware. Use gpu("emulated") or --gpu emulated'
        )
    if kind not in ("auto", "emulated"):
        raise ValueError(f"a GPU is one of auto, emulated, cuda, not {kind!r}")
    return EmulatedGpu(_PERSONALITIES[memory])
