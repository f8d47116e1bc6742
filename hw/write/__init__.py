# SPDX-License-Identifier: BSD-2-Clause
"""Writers, and the arbiter for everything that the engine sends.

`pieces` hands pieces of C2H channels to `writer`, which makes memory writes of them with data from
card RAM or a stream, and reports to the channels what was sent.
`record_writer` writes single dwords: completed counts and MSI-X messages. `arbiter` lets these and
the read requests out through the seam by PCIe's ordering rules and credits.
"""
