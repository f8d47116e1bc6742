# SPDX-License-Identifier: BSD-2-Clause
"""What keeps a board or a GPU from working here: `peerdma doctor`.

`examine` is the command. The other files each look at one thing and yield a `Finding` for each
fact: the machine, its PCI devices, the GPUs, the board itself. They read the system through
`system`, which tests replace by a folder.
"""
