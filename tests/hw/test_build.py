# SPDX-License-Identifier: BSD-2-Clause
"""The generated Verilog: its ports are a contract with whoever instantiates the module."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from hw import build
from hw.build import STATES, generate, main
from hw.core import CoreConfig
from hw.endpoint import EXTRA_PORTS, MODULE_NAME, SIMULATION_PORTS, user_ports
from hw.pcie.adapters import ADAPTERS
from hw.pcie.series7.ports import TRN_PORTS
from hw.stream.axi_stream import UserPorts
from hw.stream.user_blocks import Axis, find
from hw.top import Top

#: The smallest core: the ports are the same for all.
SMALL = CoreConfig(tags=8, ram_size=4096, user=None, extension=False)


@pytest.fixture(scope="module")
def verilog() -> str:
    return generate(SMALL)


def declared(verilog: str) -> dict[str, tuple[str, int]]:
    """Direction and width of the core's ports, by name."""
    (body,) = re.findall(rf"^module {MODULE_NAME}\((.*?)^endmodule", verilog, re.M | re.S)
    names = body[: body.index(");")].replace("\n", " ").split(",")
    ports = re.findall(r"^  (input|output)(?: \[(\d+):0\])? (\w+);", body, re.M)
    found = {name: (direction, int(high or 0) + 1) for direction, high, name in ports}
    assert {name.strip() for name in names} == found.keys()
    return found


def listed(verilog: str) -> dict[str, tuple[str, int]]:
    """The same from the heading, in its order."""
    heading = verilog[: verilog.index("\nmodule ")]
    rows = re.findall(r"^//   (input|output) +\[ *(\d+):0\] (\w+) ", heading, re.M)
    return {name: (direction, int(high) + 1) for direction, high, name in rows}


def test_the_ports_of_the_module_are_those_of_the_tables(verilog):
    assert declared(verilog) == {
        port.name: ({"i": "input", "o": "output"}[port.direction], port.width)
        for port in (*EXTRA_PORTS, *TRN_PORTS)
    }


@pytest.mark.parametrize(
    ("queues", "pcie"),
    [(0, "series7"), (2, "series7"), (0, "ultrascale-64"), (0, "ultrascale_plus-256")],
)
def test_no_constant_but_zero_is_lost_in_simulation(queues, pcie):
    """Yosys writes constant bits of a signal that changes elsewhere as an `always @*` that reads
    nothing: it never runs in a simulator, and Verilator leaves these bits 0."""
    config = CoreConfig(tags=8, ram_size=4096, launch_queues=queues)
    text = generate(config, ADAPTERS[pcie], simulation=True)
    found = re.findall(r"always @\*\n\s*(\S+ ?\S*) = (\d+'h\w+);", text)
    assert (
        found and [(name, value) for name, value in found if int(value.partition("h")[2], 16)] == []
    )


def test_only_a_core_for_a_simulation_has_ports_for_it(verilog):
    """For synthesis there is nothing that a user would have to tie off or leave open."""
    simulated = declared(generate(SMALL, simulation=True))
    added = {name: simulated[name] for name in simulated if name not in declared(verilog)}
    assert added.keys() == {port.name for port in SIMULATION_PORTS}
    assert len(simulated) == len(declared(verilog)) + len(added)


def test_a_simulation_has_the_states_of_all_machines():
    """Also of those in blocks that are reset by themselves, where Amaranth's wrapper drops them.
    Each state is one word, of its own: waveforms have them as names."""
    config = replace(SMALL, user=find("pattern"), extension=True, launch_queues=1)
    core = generate(config, simulation=True)
    named = dict(re.findall(rf"^{STATES}(\S+): (.*)$", core, re.M))
    assert len(named) == len(re.findall(r"^ +reg .*\bfsm_state = ", core, re.M)) > 0
    assert "peerdma_core.core.pair0.path.user.fsm_state" in named
    assert any("Look_up" in states.split() for states in named.values())
    for states in named.values():
        assert len({*states.split()}) == len(states.split())


def test_the_heading_lists_each_port(verilog):
    assert list(listed(verilog)) == [port.name for port in (*EXTRA_PORTS, *TRN_PORTS)]


@pytest.mark.parametrize(("pcie", "user"), [("ultrascale-64", None), ("ultrascale_plus-256", Axis)])
def test_a_core_for_another_block_has_its_ports(pcie, user):
    """And streams of its user logic that are as wide."""
    config, adapter = replace(SMALL, user=user), ADAPTERS[pcie]
    text = generate(config, adapter)
    words = {"i": "input", "o": "output"}
    ports = (*EXTRA_PORTS, *user_ports(config, adapter), *adapter.ports)
    assert adapter.title in text.splitlines()[0]
    assert (
        declared(text)
        == listed(text)
        == {port.name: (words[port.direction], port.width) for port in ports}
    )
    streams = [port.width for port in ports if port.name.endswith("h2c0_tdata")]
    assert streams == ([adapter.block.width] if user else [])


@pytest.mark.parametrize(
    ("options", "tags"),
    [
        ([], 16),
        (["--pcie", "ultrascale_plus-128"], 16),
        (["--pcie", "ultrascale_plus-256"], 32),
        (["--pcie", "ultrascale_plus-256", "--tags", "64"], 64),
        (["--pcie", "ultrascale_plus_pcie4c-256"], 32),
        (["--tags", "8", "--pcie", "ultrascale-256"], 8),
    ],
)
def test_a_core_has_as_many_tags_as_its_block_calls_for(options, tags, monkeypatch, tmp_path):
    built = []
    monkeypatch.setattr(build, "generate", lambda config, _: built.append(config.tags) or "")
    assert main(["core", "-o", str(tmp_path / "core.v"), *options]) == 0
    assert built == [tags]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tags", "48"], "tags must be 8, 16, 32 or 64, not 48"),
        (["--tags", "64"], "tags must be at most 32, all that the PCIe block has, not 64"),
        (["--overcommit", "1", "--clock-khz", "62500"], "64 bits at 62.5 MHz carry 500 MB/s"),
        (["--overcommit", "1", "--pcie", "ultrascale-64"], "nothing is known of this one's"),
    ],
)
def test_a_core_that_cannot_be_built(options, said, capsys, tmp_path):
    output = tmp_path / "core.v"
    with pytest.raises(SystemExit):
        main(["core", "-o", str(output), *options])
    assert said in capsys.readouterr().err and not output.exists()


def test_user_logic_outside_has_ports_for_each_pair(verilog):
    """Beside those of every core: two streams and a register port, numbered by pair."""
    outside = generate(replace(SMALL, h2c=2, c2h=2, user=Axis))
    ports = declared(outside)
    assert listed(outside) == ports
    added = {name: port for name, port in ports.items() if name not in declared(verilog)}
    assert len(added) == 2 * len(UserPorts.DOCS) == len(ports) - len(declared(verilog))
    for number in range(2):
        assert added[f"m_axis_h2c{number}_tdata"] == ("output", 64)
        assert added[f"m_axis_h2c{number}_tready"] == ("input", 1)
        assert added[f"s_axis_c2h{number}_tkeep"] == ("input", 8)
        assert added[f"s_axis_c2h{number}_tready"] == ("output", 1)
        assert added[f"axis{number}_aresetn"] == ("output", 1)
        assert added[f"reg{number}_wstrb"] == ("output", 8)
        assert added[f"reg{number}_rdata"] == ("input", 64)


def test_the_integration_page_has_the_ports(verilog):
    """Name, direction, width and meaning, in the order of the heading."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "integration.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (input|output) \| (\d+) \| (.*) \|$", page, re.M)
    ports = user_ports(replace(SMALL, user=Axis))
    words = {"i": "input", "o": "output"}
    assert rows == [(port.name, words[port.direction], str(port.width), port.doc) for port in ports]


def test_the_class_of_the_integration_page_is_a_block(tmp_path, monkeypatch):
    page = (Path(__file__).resolve().parents[2] / "docs" / "integration.md").read_text()
    (body,) = re.findall(r"```python\n(from pathlib.*?)```", page, flags=re.DOTALL)
    (tmp_path / "halve.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    halve = find("halve:Halve")
    assert (halve.NAME, halve.RATIO, halve.MODULE) == ("HALF", (2, 1), "halve")
    assert CoreConfig(user=halve).verilog == (tmp_path / "halve.v",)


def test_user_logic_in_verilog_is_inside(verilog, tmp_path):
    path = tmp_path / "mine.v"
    path.write_text("module mine();\n// all of it\nendmodule\n")
    inside = generate(replace(SMALL, user=find(str(path))))
    assert declared(inside) == declared(verilog)
    assert inside.endswith(path.read_text())
    (instance,) = re.findall(r"^  mine +\w+ \((.*?)\);", inside, re.M | re.S)
    pins = re.findall(r"\.(\w+)\(", instance)
    assert {"clk", "axis_aresetn", "s_axis_h2c_tdata", "m_axis_c2h_tkeep", "reg_rdata"} <= {*pins}
    assert len(pins) == 1 + len(UserPorts.DOCS)


def test_a_boards_design_has_no_place_for_logic_outside():
    with pytest.raises(ValueError, match=r"nothing here .* block Axis: .*--user FILE\.v"):
        Top(replace(SMALL, user=Axis))
