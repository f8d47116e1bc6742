# SPDX-License-Identifier: BSD-2-Clause
"""CUDA GPUs, through cuda-python.

`gpu` and `surface` are what users see, a `Gpu` and its `Surface`. Below them: `memory` allocates
and registers, `mailbox` maps a board's page, `program` compiles and launches kernels, `device` has
the context, `driver` calls CUDA and makes errors of what it returns.
"""
