# SPDX-License-Identifier: BSD-2-Clause
"""The DMA channels: control registers and splitter of each, and one descriptor fetch for all.

A transfer begins here. The host sets a channel's Run bit; `fetch` reads the descriptors, `control`
checks and tracks them, and `splitter` cuts each of them into pieces that one request can carry. A
piece goes to `hw.read` (host to card) or to `hw.write` (card to host), and its outcome returns here
for status, counters, writeback and interrupt.

`channel` joins the latter two. `slots` and `push` keep descriptors for the fetch. The parts of
`control` are `intake` (address check), `in_flight` (order), `run` (the state machine), `grant`,
`status`, `writeback`, `credits` and `counters`.
"""
