# SPDX-License-Identifier: BSD-2-Clause
"""Wheels of peerdma: the library, and the simulated board with a compiled model."""
