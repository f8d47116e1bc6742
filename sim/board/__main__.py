# SPDX-License-Identifier: BSD-2-Clause
"""``python -m sim.board``: see `sim.board.server`."""

import sys

from .server import main

sys.exit(main())
