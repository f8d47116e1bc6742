# SPDX-License-Identifier: BSD-2-Clause
"""The read engine: everything between a read job and its data.

It issues tagged read requests (`issuer`) for whose completions the PCIe block has room
(`completion_space`), checks each completion that arrives (`checks`), rotates its bytes to the lanes
of their memory (`hw.memory.rotators`), and retires reads in order (`tags`, `retirement`);
`timeouts` ends those that nobody answers. Its clients are the descriptor fetch of each channel and
the H2C data paths (`pieces`). `placement_switch` brings the data to the fetch, to `hw.memory` or to
`hw.stream`.
"""
