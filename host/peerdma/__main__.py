# SPDX-License-Identifier: BSD-2-Clause
"""``python -m peerdma`` is the `peerdma` command."""

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
