# SPDX-License-Identifier: BSD-2-Clause
"""One DMA channel: control registers, descriptor fetch, and the splitter.

A transfer begins here. The host sets a channel's Run bit; `fetch` reads the descriptors, `control`
checks and tracks them, and `splitter` cuts each of them into pieces that one request can carry. A
piece goes to `hw.read` (host to card) or to `hw.write` (card to host), and its outcome returns here
for status, counters, writeback and interrupt.

`channel` joins the three. The parts of `control` are `intake` (address check), `in_flight` (order),
`run` (the state machine), `status`, `writeback`, `credits` and `counters`.
"""
