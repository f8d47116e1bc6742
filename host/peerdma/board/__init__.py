# SPDX-License-Identifier: BSD-2-Clause
"""The interface of a board to its users, the same on every backend.

`board` has `Board`, which checks arguments and calls a backend. `backend` defines the interface of
backends; the classes are in `peerdma.kernel` and `peerdma.userspace`.
"""
