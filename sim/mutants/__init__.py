# SPDX-License-Identifier: BSD-2-Clause
"""Bugs put into copies of the gateware, to see that the quick tests find them."""

from .run import run_tests
from .table import MUTANTS, Mutant

__all__ = ["MUTANTS", "Mutant", "run_tests"]
