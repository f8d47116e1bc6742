# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues: a GPU names prepared jobs in a ring in memory, and the board runs them.

`queues` is the top: `table` has what software prepared, `tails` judges doorbells, `sequencer`
takes each ticket from its slot to its record. In it, `entries` keeps what was fetched of the rings
or came with doorbells, and `runs` has the channels.
"""
