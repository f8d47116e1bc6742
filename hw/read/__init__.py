# SPDX-License-Identifier: BSD-2-Clause
"""The read engine: everything between a read job and its data.

It issues read requests under tags, checks each completion that arrives, rotates the payload to its
place, and retires reads in order. Its clients are the descriptor fetch of each channel and the
H2C data path; data goes to `hw.memory`, to `hw.stream`, or to the fetch.
"""
