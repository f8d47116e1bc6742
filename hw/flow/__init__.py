# SPDX-License-Identifier: BSD-2-Clause
"""From a netlist to a bitstream with open tools, and the checks that make it trustworthy."""
