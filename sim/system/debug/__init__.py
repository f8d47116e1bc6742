# SPDX-License-Identifier: BSD-2-Clause
"""The driver on a debug kernel: its configuration, its build, and guests that boot it."""
