# SPDX-License-Identifier: BSD-2-Clause
"""The simulated board: the compiled core, a model of PCIe block and link, a vfio-user server.

`sim.board` is the program that serves it at a socket, `sim.rtl` compiles the core
together with the native model in `sim/native/`, `sim.config_space` builds the configuration space.
"""
