# SPDX-License-Identifier: BSD-2-Clause
"""Adapters between the engine's seam (`hw.seam`) and PCIe blocks, and the layout of TLPs.

Every read and every write crosses this folder: requests and completions leave here as TLPs, and
the TLPs that arrive become header records and payload for the rest of the engine. There is one
folder for each family of PCIe blocks.
"""
