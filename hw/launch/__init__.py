# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues: a GPU names prepared jobs in a ring in memory, and the board runs them.

`queues` is the top: `table` has what software prepared, `tails` judges doorbells, `entries` keeps
what was fetched of the rings or came with doorbells, `work` has what is known of each queue, and
`sequencer` takes each ticket from its slot to its record. In it, `runs` has the channels, `start`
begins on them, and `completion` writes the record.
"""
