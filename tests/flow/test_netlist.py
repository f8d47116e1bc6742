# SPDX-License-Identifier: BSD-2-Clause
"""flow: what happens to a netlist before placement and to a configuration after it."""

from __future__ import annotations

import re

import pytest

from flow import image, simulation
from flow.__main__ import main
from flow.corrections import clock_manager, correct, pads
from flow.frames import FrameError
from flow.ground import tie
from flow.netlist import HardBlock, NetlistError, prepare
from flow.primitives import Primitive, load, value
from flow.references import REFERENCES
from flow.toolchain import ToolError
from flow.trace import Tracer
from hw.boards import BOARDS, Pad
from hw.core import CoreConfig
from hw.pcie.series7.phy.gtp_parameters import COMMON
from tests.flow.small_fpga import make

LIBRARY = """
module GTPE2_COMMON(A, B);
    parameter integer PLL0_FBDIV = 4;
    parameter [26:0] PLL0_CFG = 27'h01F03DC;
    parameter IS_DRPCLK_INVERTED = 1'b0;
    parameter SIM_VERSION = "1.0";
    output [1:0] PLL0LOCK;
    output PLL0OUTCLK;
    input DRPCLK;
    input PLL0PD;
    input [2:0] PLL0REFCLKSEL;
    input GTREFCLK0;
endmodule
module IBUFDS_GTE2(O, I);
    output O;
    (* iopad_external_pin *)
    input I;
    input CEB;
endmodule
"""


@pytest.fixture
def primitives(tmp_path) -> dict[str, Primitive]:
    path = tmp_path / "cells.v"
    path.write_text(LIBRARY)
    return load(path)


def design(**changes):
    """A reference clock buffer and the PLL behind it."""
    common = {"DRPCLK": ["0"], "PLL0PD": ["0"], "PLL0REFCLKSEL": ["1", 7, "0"], "GTREFCLK0": [5]}
    common |= {"PLL0LOCK": [8, 9], "PLL0OUTCLK": [10]} | changes
    inputs = {"DRPCLK", "PLL0PD", "PLL0REFCLKSEL", "GTREFCLK0"}
    cells = {
        "pll": {
            "type": "GTPE2_COMMON",
            "attributes": {},
            "parameters": {"PLL0_FBDIV": f"{5:032b}"},
            "port_directions": {p: "input" if p in inputs else "output" for p in common},
            "connections": {port: bits for port, bits in common.items() if bits},
        },
        "buffer": {
            "type": "IBUFDS_GTE2",
            "attributes": {},
            "parameters": {},
            "port_directions": {"I": "input", "CEB": "input", "O": "output"},
            "connections": {"I": [3], "CEB": ["0"], "O": [5]},
        },
        "pad": {"type": "IBUF", "connections": {"I": [2], "O": [3]}},
        "tree": {
            "type": "MMCME2_ADV",
            "parameters": {},
            "connections": {"RST": [11], "PWRDWN": ["0"], "CLKINSEL": ["1"]},
        },
    }
    ports = {"refclk": {"bits": [2]}, "led": {"bits": [9]}}
    return {"creator": "", "modules": {"top": {"cells": cells, "ports": ports}, "lib": {}}}


def test_a_netlist_for_nextpnr(primitives):
    given = design()
    prepared, blocks = prepare(given, "top", primitives)
    module = prepared["modules"]["top"]
    assert list(prepared["modules"]) == ["top"]
    # Pads, their buffers and their ports are the site's; constants are not nextpnr's to route.
    assert set(module["ports"]) == {"led"} and "pad" not in module["cells"]
    pll = module["cells"]["pll"]
    assert pll["connections"] == {"PLL0REFCLKSEL[1]": [7], "PLL0LOCK[0]": [8], "PLL0LOCK[1]": [9]}
    assert pll["port_directions"]["PLL0LOCK[1]"] == "output" and pll["parameters"] == {}
    tree = module["cells"]["tree"]
    assert tree["connections"] == {"RST": [11], "CLKINSEL": ["1"]}
    assert tree["parameters"] == {"IS_PWRDWN_INVERTED": "1"}, "open, so 1, and inverted"
    assert given == design(), "the netlist that was given is as it was"
    by_type = {block.type: block for block in blocks}
    common = by_type["GTPE2_COMMON"]
    assert common.parameters["PLL0_FBDIV"] == 5 and common.parameters["PLL0_CFG"] == 0x1F03DC
    assert common.inverted == {"DRPCLK"}
    assert common.inputs == {
        "DRPCLK": "0",
        "PLL0PD": "0",
        "PLL0REFCLKSEL0": "1",
        "PLL0REFCLKSEL1": 7,
        "PLL0REFCLKSEL2": "0",
        "GTREFCLK0": 5,
    }
    assert by_type["IBUFDS_GTE2"].inputs["CEB"] == "0"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"PLL0PD": []}, "input PLL0PD is not connected"),
        ({"PLL0PD": ["x"]}, "input PLL0PD is not connected"),
        ({"PLL0REFCLKSEL": ["0", "1"]}, "input PLL0REFCLKSEL is not connected"),
    ],
)
def test_no_input_is_forgotten(primitives, changes, message):
    with pytest.raises(NetlistError, match=message):
        prepare(design(**changes), "top", primitives)


def test_no_parameter_is_misspelt(primitives):
    given = design()
    given["modules"]["top"]["cells"]["pll"]["parameters"]["PLL0_FBDIF"] = "1"
    with pytest.raises(NetlistError, match="has no parameter PLL0_FBDIF"):
        prepare(given, "top", primitives)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8'h1F", 31), ('"TRUE "', "TRUE"), ("00000101", 5), ("-3", -3), ("10.000000", 10.0), (7, 7)],
)
def test_values_of_parameters(text, expected):
    assert value(text) == expected


def test_ground_finds_a_way(tmp_path):
    fpga = make(tmp_path)
    sites = {"HARD": "HARD_X0Y0"}
    block = HardBlock("block", "HARD", {}, {"A": "0", "B": 7, "C": "0"})
    dedicated = pytest.MonkeyPatch()
    with dedicated.context() as patch:
        patch.setitem(tie.__globals__["DEDICATED"], "HARD", set())
        routed = {"INT_X0Y0.IMUX1.LOGIC0"}
        added = tie(fpga, routed, [block], sites)
        assert added == {"INT_X0Y0.IMUX0.GND_WIRE", "INT_X0Y0.IMUX2.GND_WIRE"}
        traced = Tracer(fpga, routed | added).inputs("HARD_X0Y0")
        assert traced == {"A": "0", "B": "INT_X0Y0/LOGIC0", "C": "0"}
        with pytest.raises(FrameError, match="HARD A cannot be tied to 0"):
            tie(fpga, {"INT_X0Y0.IMUX0.LOGIC1"}, [block], sites)


def test_pads_are_configured_in_their_half_of_the_tile(tmp_path):
    fpga = make(tmp_path)
    names = {f.split(".", 1)[1] for f in pads(fpga, [Pad("A1", True, 8, "UP")])}
    assert {"IOB_Y1.PULLTYPE.PULLUP", "IOB_Y1.LVCMOS33_LVTTL.DRIVE.I12_I8"} < names
    assert not any("PULL" in f for f in pads(fpga, [Pad("A1", False, pull="DOWN")]))
    assert {"PAD_X2Y0.IOB_Y1.PULLTYPE.NONE"} < pads(fpga, [Pad("A1", False)])


def test_what_nextpnr_says_of_pads_clocks_and_multiplexers_is_replaced(tmp_path):
    fpga = make(tmp_path)
    mux = "CLK_BUFG_BOT_R_X60Y48"
    given = {
        "LIOB33_X0Y9.IOB_Y0.PULLTYPE.NONE",
        "CMT_TOP_R_X1Y1.MMCME2_ADV.IN_USE",
        "CMT_TOP_R_X1Y1.MMCME2_ADV.POWER_REG_POWER_REG_POWER_REG[3]",
        f"{mux}.CLK_BUFG_BUFGCTRL1_I1.CLK_BUFG_BOT_R_CK_MUXED3",
        f"{mux}.BUFGCTRL.BUFGCTRL_X0Y1.IS_IGNORE0_INVERTED",
        f"{mux}.BUFGCTRL.BUFGCTRL_X0Y2.IS_IGNORE1_INVERTED",
        "INT_L_X0Y0.IMUX0.LOGIC0",
    }
    found = correct(fpga, given, {"CLKFBOUT_MULT_F": 10.0}, [])
    assert "LIOB33_X0Y9.IOB_Y0.PULLTYPE.NONE" not in found
    assert "CMT_TOP_R_X1Y1.MMCME2_ADV.POWER_REG_POWER_REG_POWER_REG[3]" not in found
    assert "CMT_TOP_R_X1Y1.MMCME2_ADV.POWER_REG_POWER_REG_POWER_REG[8]" in found
    assert f"{mux}.BUFGCTRL.BUFGCTRL_X0Y1.ZPRESELECT_I0" in found
    assert f"{mux}.BUFGCTRL.BUFGCTRL_X0Y1.IS_IGNORE0_INVERTED" not in found
    # A plain buffer, and everything else, stays.
    assert {f"{mux}.BUFGCTRL.BUFGCTRL_X0Y2.IS_IGNORE1_INVERTED", "INT_L_X0Y0.IMUX0.LOGIC0"} < found


def test_counters_of_the_clock_manager():
    found = clock_manager({"CLKFBOUT_MULT_F": 10.0, "CLKOUT1_DIVIDE": 4, "CLKOUT0_DIVIDE_F": 8.0})
    assert {"CLKOUT1_CLKOUT1_HIGH_TIME[1]", "CLKOUT1_CLKOUT1_OUTPUT_ENABLE[0]"} < found
    assert "CLKOUT2_CLKOUT2_NO_COUNT[0]" in found  # not in use
    assert "CLKOUT2_CLKOUT1_OUTPUT_ENABLE[0]" not in found
    with pytest.raises(FrameError, match="only even divisions"):
        clock_manager({"CLKFBOUT_MULT_F": 10.0, "CLKOUT1_DIVIDE": 5})
    with pytest.raises(FrameError, match="not x12"):
        clock_manager({"CLKFBOUT_MULT_F": 12.0})


def test_inverters_are_on_for_open_inputs_only():
    """An inverter too many at RST would keep the clocks in reset."""
    given = {"CLKFBOUT_MULT_F": 10.0}
    assert not any("ZINV" in feature for feature in clock_manager(given))
    found = clock_manager(given | {"IS_PWRDWN_INVERTED": 1, "IS_PSEN_INVERTED": 1})
    assert {f for f in found if "ZINV" in f} == {"ZINV_PWRDWN", "ZINV_PSEN"}


def test_constraints_for_nextpnr():
    given = (
        'set_property LOC B6 [get_ports "pcie_0__refclk__p"]\n'
        'set_property LOC V12 [get_ports "led_0__io\\[0]"]\n'
        'set_property IOSTANDARD "LVCMOS33" [get_ports "led_0__io\\[0]"]\n'
        'create_clock -name a -period 10.0 [get_nets "a"]\n'
    )
    assert image.constraints(given).splitlines() == [
        "set_property PACKAGE_PIN V12 [get_ports {led_0__io[0]}]",
        "set_property IOSTANDARD LVCMOS33 [get_ports {led_0__io[0]}]",
    ]


def test_report_says_what_failed():
    report = image.Report({"part": "x"}, {"good": [], "bad": ["a tie is wrong"]})
    assert not report.passed
    assert "FAILED  bad\n          a tie is wrong" in report.text()
    assert "DO NOT LOAD" in report.text()
    assert "has not run on hardware" in image.Report({}, {"good": []}).text()


def test_vivado_project(tmp_path, capsys):
    """Whole and consistent, as far as that can be seen without Vivado."""
    assert (
        main(["picoevb", "--toolchain", "vivado", "-o", str(tmp_path), "--ram-size", "4096"]) == 0
    )
    name = "peerdma_picoevb"
    verilog, xdc, tcl = ((tmp_path / f"{name}.{end}").read_text() for end in ("v", "xdc", "tcl"))
    board = BOARDS["picoevb"]
    assert f"create_project -force -name {name} -part {board.part}" in tcl
    for file in (f"{name}.v", f"{name}.xdc"):
        assert file in tcl
    ports = set(re.findall(r"^  (?:input|output|inout)(?: \[\d+:0\])? (\w+);", verilog, re.M))
    constrained = set(re.findall(r'get_ports "?(\w+)', xdc))
    assert constrained <= ports | {"clk"}
    # Every pin of the board has its place, and every I/O its standard.
    assert set(re.findall(r"set_property LOC ([A-Z]\d+) ", xdc)) == set(board.pins)
    assert xdc.count("IOSTANDARD") == len(board.pads)
    for primitive, site in board.sites.items():
        assert f"set_property LOC {site} [get_cells" in xdc
        assert re.search(rf"^  {primitive} #\(", verilog, re.M)
    assert "BITSTREAM.CONFIG.CONFIGRATE 66" in xdc and "SPI_BUSWIDTH 4" in xdc
    assert xdc.count("[") == xdc.count("]")
    assert xdc.count("{") == xdc.count("}")


def test_board_is_complete():
    board = BOARDS["picoevb"]
    assert board.part == "xc7a50tcsg325-2"
    assert len(board.pads) == 9 and len(board.pins) == 15
    reference = REFERENCES[board.name]
    assert reference.record.exists()
    # The reference has 125 MHz: then the clock is no difference.
    more = set(reference.allowed(62_500)) - set(reference.allowed(125_000))
    assert more == set(reference.clock_differences)
    assert COMMON["PLL0_CFG"] == 0x1F024C
    assert CoreConfig(clock_khz=62_500).clock_khz == 62_500


def test_a_netlist_gets_the_models_that_it_needs():
    library = "module LUT2(output O);\nendmodule\nmodule LUT3(output O);\nendmodule\n"
    netlist = (
        "module top(a);\n  LUT2 #(\n    .INIT(4'h8)\n  ) \\a.b  (\n  );\n"
        "  RAMB36E1 #(\n    .DOA_REG(32'd0),\n"
        f"    .INIT_0A(256'h{'0' * 64}),\n    .INITP_00(256'bx0x),\n    .RAM_MODE(\"TDP\")\n"
        "  ) ram (\n"
        "  );\nendmodule\n"
    )
    found = simulation._with_models(netlist, library)
    assert re.findall(r"^module (\w+)", found, re.M) == ["top", "LUT2", "RAMB36E1"]
    assert "INIT_0A" not in found and "INITP" not in found and ".INIT(4'h8)" in found
    # Of a block RAM, Yosys' library has no behaviour: it would give zeros.
    other = library + "module RAMB8(output O);\nendmodule\n"
    with pytest.raises(ToolError, match="no model of RAMB8"):
        simulation._with_models(netlist.replace("RAMB36E1", "RAMB8"), other)
