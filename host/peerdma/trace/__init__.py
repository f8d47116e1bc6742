# SPDX-License-Identifier: BSD-2-Clause
"""`peerdma trace`: what passed between host, board and GPU, as a page to look at.

`capture` reads the file that the simulation writes, `tlp` decodes its packets, `story` finds what
belongs together, and `page` and `perfetto` show it.
"""
