# SPDX-License-Identifier: BSD-2-Clause
"""The `peerdma` command.

Top of the library, with `peerdma.doctor`: `main` has the command's words, their arguments and exit
codes, `flash` writes a design into a board.
"""
