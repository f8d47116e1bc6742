# SPDX-License-Identifier: BSD-2-Clause
"""What can go wrong with a guest."""

__all__ = ["GuestError", "KernelComplaint", "Overdue"]


class GuestError(Exception):
    """The guest or something it needs failed; the message says what, and where the logs are."""


class KernelComplaint(GuestError):
    """The guest's kernel logged what nobody announced, or not what was announced."""


class Overdue(GuestError):
    """A command did not end in time."""
