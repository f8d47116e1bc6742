# SPDX-License-Identifier: BSD-2-Clause
"""`peerdma doctor` diagnoses what keeps a board or a GPU from working on this machine.

`examine` is the command. The other files each examine one subject (the machine, its PCI devices,
the GPUs, the board itself) and yield a `Finding` for each fact. They read the system's files
through `system`, for which tests substitute a folder.
"""
