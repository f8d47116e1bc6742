# SPDX-License-Identifier: BSD-2-Clause
"""Parts that know nothing of PCIe or DMA: a queue, a round-robin arbiter, shares by bytes.

Blocks of all folders are built from them; they import nothing else of `hw`.
"""
