# SPDX-License-Identifier: BSD-2-Clause
"""Streams through user logic: a pair of rings around a user block for each pair of channels.

A read (H2C) may end in the inbound ring, which reorders its data into a stream of bytes; the user
block transforms the stream; a write (C2H) takes its data from the outbound ring. User blocks are
in `user_blocks`.
"""
