# SPDX-License-Identifier: BSD-2-Clause
"""From the gateware to an FPGA image that was checked: ``.venv/bin/python -m flow BOARD``.

Synthesis, placement and routing with open tools, the image's format, and the checks that read the
image back and compare it with the netlist and with a reference configuration. A Vivado project,
and figures of area and clock, are made here too. It imports `hw`, and `hw` never imports it.
"""
