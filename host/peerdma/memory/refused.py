# SPDX-License-Identifier: BSD-2-Clause
"""Why an array of another library cannot be shared, and what to do, as errors of this one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import PinError

__all__ = ["masked", "nonsense", "refuse_mask", "refused"]

_COPY = "Copy it to a plain numpy array, or into a surface of gpu.surface(...), and give that"
#: Tensors whose libraries do not share them, as PyTorch tells them: what is asked of one, what it
#: is then, and what to do.
_KINDS: tuple[tuple[Callable[[Any], Any], str, str], ...] = (
    (
        lambda tensor: tensor.is_meta,
        "it is on the meta device and has no bytes",
        "Give a tensor with memory: torch.empty_like(tensor, device='cpu')",
    ),
    (
        lambda tensor: hasattr(tensor, "fake_mode"),
        "it is a fake tensor and has no bytes",
        "Make transfers outside of what is traced or compiled, with real tensors",
    ),
    (
        lambda tensor: tensor.is_quantized,
        "it is quantised",
        "Give its integers, tensor.int_repr(), or tensor.dequantize()",
    ),
    (
        lambda tensor: tensor.is_sparse or "strided" not in str(tensor.layout),
        "it is not dense",
        "Give tensor.to_dense(), or its parts, such as tensor.values()",
    ),
    (
        lambda tensor: tensor.is_conj(),
        "it is conjugated lazily: its memory holds other numbers",
        "Give tensor.resolve_conj()",
    ),
    (
        lambda tensor: tensor.is_neg(),
        "it is negated lazily: its memory holds other numbers",
        "Give tensor.resolve_neg()",
    ),
    (
        lambda tensor: str(tensor.dtype).endswith("complex32"),
        "DLPack has no complex numbers of 32 bits",
        "Give torch.view_as_real(tensor), which shares its memory",
    ),
    (
        lambda tensor: tensor.requires_grad,
        "it requires a gradient",
        "Give tensor.detach(), which shares its memory",
    ),
)


def refused(action: str, array: Any, error: Exception) -> PinError:
    """The error for an array whose library raised `error` when it was asked for the memory."""
    for asked, found, step in _KINDS:
        # What has no such attribute is not of this kind, and nor is what does not say.
        with contextlib.suppress(Exception):
            if asked(array) is True:
                return _cannot(action, array, found, step)
    said = str(error).strip().partition("\n")[0].rstrip(".")
    found = f"its library does not say where its bytes are ({type(error).__name__}: {said})"
    return _cannot(action, array, found, _COPY)


def nonsense(action: str, array: Any, what: str) -> PinError:
    """The error for an array whose library describes memory that there cannot be."""
    return _cannot(action, array, f"its library describes it wrongly: {what}", _COPY)


def masked(action: str, array: Any) -> PinError:
    """The error for an array with a mask, which would be lost."""
    step = "Give array.filled(value), or array.data for what is behind the mask, too"
    return _cannot(action, array, "its mask would be lost", step)


def refuse_mask(action: str, array: np.ndarray) -> None:
    """PinError if it is a masked array; asked of those of a class derived from numpy's only.

    To ask makes numpy load the module of masked arrays.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise masked(action, array)


def _cannot(action: str, array: Any, found: str, step: str) -> PinError:
    return PinError(f"cannot {action} a {type(array).__name__}: {found}. {step}")
