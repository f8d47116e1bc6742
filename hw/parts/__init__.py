# SPDX-License-Identifier: BSD-2-Clause
"""Parts that know nothing of PCIe or DMA: a queue and a round-robin arbiter.

Blocks of all folders are built from them; they import nothing else of `hw`.
"""
