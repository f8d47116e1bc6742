# SPDX-License-Identifier: BSD-2-Clause
"""The driver on a kernel that checks itself: what it is, how it is built, what is done to it."""
