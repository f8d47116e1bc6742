# SPDX-License-Identifier: BSD-2-Clause
"""The blocks of UltraScale (PCIE3, PG156) and UltraScale+ (PCIE4, PCIE4C, PG213); their adapter.

All have four AXI4-Streams, one for each logical port of the seam: requester request (RQ) and
completion (RC), completer request (CQ) and completion (CC). A packet is a descriptor of three or
four dwords, then its payload; what is not in the descriptor is in `tuser`. `family` has what
differs between the blocks, `ports` their ports, `descriptors` the layouts. `insert` and `strip`
put a descriptor in front of a payload and take it off, at every width; `transmit` and `receive`
fill it and read it. `sent` says which writes nothing can pass, `credits` which requests of the host
may come, `interrupts` has INTx and MSI, and `adapter` joins all of it.
"""
