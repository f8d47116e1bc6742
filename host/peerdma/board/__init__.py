# SPDX-License-Identifier: BSD-2-Clause
"""What a user does with a board, whichever way it is reached.

`board` has `Board`; it checks what it is asked and hands it to one of the classes with the
interface in `backend`, which are in `peerdma.kernel` and `peerdma.userspace`.
"""
