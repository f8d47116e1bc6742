# SPDX-License-Identifier: BSD-2-Clause
"""The host's accesses to the BARs, and the registers behind them.

`completer` takes the requests that arrive from the seam, `access` carries out each of them on the
register bus (`bus`), and `bank` makes registers of the descriptions in `peerdma.regs`. A transfer
begins and ends with such accesses: the host starts a channel, and reads its status.
"""
