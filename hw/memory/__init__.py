# SPDX-License-Identifier: BSD-2-Clause
"""Memory on the card.

A read (H2C) ends here and a write (C2H) begins here when the card address selects card RAM; else
they end and begin in `hw.stream`. Both kinds of memory are two `banks` of words, so that `rotators`
write or read the bytes of a beat in one cycle, wherever they begin.
"""
