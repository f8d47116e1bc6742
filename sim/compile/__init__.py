# SPDX-License-Identifier: BSD-2-Clause
"""Compiles the gateware and the native model of its surroundings into what simulations load.

Amaranth makes Verilog of the gateware, Verilator makes C++ of that, and a C++ compiler joins it to
`sim/board/native/`. What each step makes is kept in ``build/sim/``.
"""
