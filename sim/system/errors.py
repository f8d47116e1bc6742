# SPDX-License-Identifier: BSD-2-Clause
"""Errors of guests."""

__all__ = ["BootError", "GuestError", "KernelComplaint", "Overdue"]


class GuestError(Exception):
    """The guest or something it needs failed; the message says what, and where the logs are."""


class BootError(GuestError):
    """The guest's kernel panicked before the agent in it said hello: the driver was not loaded."""


class KernelComplaint(GuestError):
    """The guest's kernel logged a complaint that was not expected."""


class Overdue(GuestError):
    """A command did not end in time."""
