# SPDX-License-Identifier: BSD-2-Clause
"""Launch queues: a GPU names prepared jobs in a ring in memory, and the board runs them.

`doorbell` judges what is written to start them, `entries` fetches them from the ring.
"""
