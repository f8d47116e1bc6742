# SPDX-License-Identifier: BSD-2-Clause
"""cocotb benches: the core behind an independent model of its PCIe block and a root complex."""
