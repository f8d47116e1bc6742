# SPDX-License-Identifier: BSD-2-Clause
"""Makes and checks an FPGA image of the gateware: ``.venv/bin/python -m flow BOARD``.

Synthesis, placement and routing with open tools, the bitstream format, and the checks that read the
image back and compare it with the netlist and with a reference configuration. Also writes Vivado
projects, and measures area and clock. It imports `hw`, and `hw` never imports it.
"""
