#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""`peerdma demo` of this checkout: needs numpy, and peerdma need not be installed."""

import sys

from peerdma_start import interruptible

with interruptible("demo.py"):
    from peerdma.cli.main import demo

if __name__ == "__main__":
    sys.exit(demo())
