# SPDX-License-Identifier: BSD-2-Clause
"""Interrupts: INTx and MSI through the PCIe block, and MSI-X as memory writes of our own.

The last step of a transfer, read or write: when a channel has finished, or the user logic asks,
the host is interrupted. Messages of MSI-X leave through `hw.write.record_writer`, behind the data.
"""
