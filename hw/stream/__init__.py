# SPDX-License-Identifier: BSD-2-Clause
"""Streams from an H2C to a C2H channel, through user logic or through a ring alone.

A read (H2C) may end in the inbound ring, which reorders its data into a stream of bytes; the user
block transforms the stream; a write (C2H) takes its data from the outbound ring (`user_path`). User
blocks are in `user_blocks`; `axi_stream` is for logic outside of the core. Where bytes only pass
through, one ring does: a write takes its data from where the read has placed it. `pair` joins
either to its channels, and flushes it.
"""
