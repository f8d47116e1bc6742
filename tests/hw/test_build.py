# SPDX-License-Identifier: BSD-2-Clause
"""The generated Verilog: its ports are a contract with whoever instantiates the module."""

from __future__ import annotations

import re

import pytest

from hw.build import generate
from hw.core import CoreConfig
from hw.endpoint import EXTRA_PORTS, MODULE_NAME
from hw.pcie.series7.ports import TRN_PORTS

#: The smallest core: the ports are the same for all.
SMALL = CoreConfig(tags=8, ram_size=4096, user=None, extension=False)


@pytest.fixture(scope="module")
def verilog() -> str:
    return generate(SMALL)


def test_the_ports_of_the_module_are_those_of_the_tables(verilog):
    (body,) = re.findall(rf"^module {MODULE_NAME}\((.*?)^endmodule", verilog, re.M | re.S)
    names = body[: body.index(");")].replace("\n", " ").split(",")
    declared = re.findall(r"^  (input|output)(?: \[(\d+):0\])? (\w+);", body, re.M)
    found = {name: (direction, int(high or 0) + 1) for direction, high, name in declared}
    assert {name.strip() for name in names} == found.keys()
    assert found == {
        port.name: ({"i": "input", "o": "output"}[port.direction], port.width)
        for port in (*EXTRA_PORTS, *TRN_PORTS)
    }


def test_the_heading_lists_each_port(verilog):
    heading = verilog[: verilog.index("\nmodule ")]
    listed = re.findall(r"^//   (input|output) +\[ *(\d+):0\] (\w+) ", heading, re.M)
    assert [name for *_, name in listed] == [port.name for port in (*EXTRA_PORTS, *TRN_PORTS)]
