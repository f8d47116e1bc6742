# SPDX-License-Identifier: BSD-2-Clause
"""``-m peerdma`` is the `peerdma` command, where that is not in PATH."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
