# SPDX-License-Identifier: BSD-2-Clause
"""Writers, and the arbiter for everything that the engine sends.

`writer` turns pieces of a C2H transfer into memory writes with data from card RAM or a stream.
`record_writer` writes single dwords: completed counts and MSI-X messages. `arbiter` lets these and
the read requests out through the seam by PCIe's ordering rules and credits.
"""
