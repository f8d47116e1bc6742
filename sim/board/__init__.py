# SPDX-License-Identifier: BSD-2-Clause
"""The simulated board: a PCIe function that is served over vfio-user.

It is a program of the checkout: ``.venv/bin/python -m sim.board --socket PATH``. The wheel
peerdma-sim installs this folder as the package `peerdma_sim`, with compiled models.

`native` holds the C++ model of the PCIe block, the link and the root complex, which is compiled
together with the gateware by `sim.compile`. A read or a write runs from the client's socket through
that model to the gateware's transaction ports and back; no Python is in between. Nothing here
imports the gateware, but for `__main__`: the standard library, numpy and `peerdma` suffice.
"""
