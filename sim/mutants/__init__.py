# SPDX-License-Identifier: BSD-2-Clause
"""Bugs put into copies of the gateware, to see that the quick tests find them."""

from .run import break_it, private_copy, run_tests
from .table import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant", "break_it", "private_copy", "run_tests"]
