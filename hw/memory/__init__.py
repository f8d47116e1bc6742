# SPDX-License-Identifier: BSD-2-Clause
"""Memory on the card.

A read (H2C) ends here and a write (C2H) begins here when the card address selects card RAM; else
they end and begin in `hw.stream`. `read_switch` brings the writer's reads to either.
"""
