# SPDX-License-Identifier: BSD-2-Clause
"""The `peerdma` command.

`main` has the subcommands, their arguments and exit codes; `flash` loads an FPGA image into a
board; the doctor is in `peerdma.doctor`.
"""
