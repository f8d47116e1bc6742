# SPDX-License-Identifier: BSD-2-Clause
"""A Vivado project for a board: Amaranth's, with the constraints of this design."""

from __future__ import annotations

from pathlib import Path

from amaranth.build.run import BuildPlan

from hw.boards import Board

__all__ = ["overrides", "write"]


def overrides(board: Board) -> dict[str, str]:
    """Arguments for Amaranth's Vivado templates for a board."""
    constraints = [
        "# Sites that the board's wiring determines.",
        *(
            f"set_property LOC {site} [get_cells -hierarchical -filter {{REF_NAME == {primitive}}}]"
            for primitive, site in board.sites.items()
        ),
        "# The PIPE clock is timed at Gen2.",
        "set mux [get_cells -hierarchical -filter {REF_NAME == BUFGCTRL}]",
        "set_case_analysis 0 [get_pins -of_objects $mux -filter {REF_PIN_NAME == S0}]",
        "set_case_analysis 1 [get_pins -of_objects $mux -filter {REF_PIN_NAME == S1}]",
        "# Signals between the clocks of PIPE and core pass synchronizers only.",
        "set tree [get_cells -hierarchical -filter {REF_NAME == MMCME2_ADV}]",
        "set of_tree [get_pins -of_objects $tree -filter {NAME =~ */CLKOUT*}]",
        "set_clock_groups -asynchronous"
        " -group [get_clocks -of_objects [filter $of_tree {REF_PIN_NAME == CLKOUT2}]]"
        " -group [get_clocks -of_objects [filter $of_tree {REF_PIN_NAME != CLKOUT2}]]",
        "set_false_path -from [get_ports pcie_0__perst__io]",
        "# Loading from flash.",
        f"set_property BITSTREAM.CONFIG.CONFIGRATE {board.boot.rate} [current_design]",
        f"set_property BITSTREAM.CONFIG.SPI_BUSWIDTH {board.boot.lanes} [current_design]",
        f"set_property CONFIG_MODE SPIx{board.boot.lanes} [current_design]",
        "set_property BITSTREAM.CONFIG.SPI_FALL_EDGE YES [current_design]",
        "set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]",
        "set_property CONFIG_VOLTAGE 3.3 [current_design]",
        "set_property CFGBVS VCCO [current_design]",
    ]
    return {"add_constraints": "\n".join(constraints)}


def write(plan: BuildPlan, folder: Path) -> list[Path]:
    """Writes the project's files; `vivado -mode batch -source NAME.tcl` there makes the image."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in plan.files.items():
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        written.append(path)
    return written
