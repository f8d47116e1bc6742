# SPDX-License-Identifier: BSD-2-Clause
"""``peerdma perf``: on a stand-in for the kernel driver, and on the simulated board."""

import functools
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from types import ModuleType
from unittest.mock import MagicMock

import pytest

import peerdma
from peerdma.cli import perf
from peerdma.cli.main import main
from peerdma.cli.tails import TAILS
from peerdma.errors import PeerdmaError, UnsupportedError, VerifyError
from peerdma.uapi import Op
from tests.host.conftest import GPUS, PATIENCE
from tests.host.kernel.fake_kernel import CARD_RAM, FakeKernel
from tests.host.programs import HOST, ROOT, command

DIRECTIONS = ["to board", "from board", "copy"]
#: Of a row: what it says of times is a number, or nothing.
ROW = {
    *("direction", "bytes", "path", "through", "board_seconds", "wall_seconds", "cycles"),
    *("bytes_per_second", "wall_bytes_per_second", "link_limit", "share_of_limit", "wall_samples"),
}
REPORT = {
    *("board", "simulated", "link", "gpu", "emulated", "memory", "clock_khz", "card_ram_bytes"),
    *("repeat", "results", "left_out", "tails", "verified"),
}
#: What else is on a busy board, by direction.
BESIDE = {"to board": "from board", "from board": "to board", "copy": "copy"}


@pytest.fixture
def measured(node_driver, tmp_path, capsys):
    """``measured(*options)`` is the report of the board behind the stand-in, and the output."""

    def measure(*options: str) -> tuple[dict, list[str]]:
        file = tmp_path / "report.json"
        tails = [] if "--tails" in options else ["--tails", "0"]
        assert main(["perf", "--gpu", "emulated", "--json", str(file), *tails, *options]) == 0
        return json.loads(file.read_text()), capsys.readouterr().out.splitlines()

    return measure


def rows(lines: list[str]) -> list[list[str]]:
    """The cells of the table's rows."""
    return [line.split() for line in lines if line.lstrip()[:1].isdecimal()]


def test_a_real_board(measured, node_driver):
    """64 bytes to 4 MiB by fours, those that fit card RAM in each direction, 100 times each."""
    report, lines = measured()
    assert set(report) == REPORT and report["tails"] == []
    assert all(set(row) == ROW for row in report["results"])
    sizes = [64 << 2 * n for n in range(9)]
    fit = [n for n in sizes if n <= CARD_RAM]
    found = [(row["direction"], row["bytes"]) for row in report["results"]]
    expected = zip(DIRECTIONS, (fit, fit, sizes), strict=True)
    assert found == [(direction, n) for direction, each in expected for n in each]
    large = sizes[len(fit) :]
    left_out = [(each["direction"], each["bytes"]) for each in report["left_out"]]
    assert left_out == [(direction, n) for direction in DIRECTIONS[:2] for n in large]
    assert "left out    to and from the board, more than the 65536 bytes of card RAM" in lines
    assert report["board"] == "board 0 at 0000:01:00.0"
    assert (report["simulated"], report["verified"], report["repeat"]) == (False, True, 100)
    assert (report["clock_khz"], report["card_ram_bytes"]) == (125_000, CARD_RAM)
    for row, cells in zip(report["results"], rows(lines), strict=True):
        # The stand-in says that each transfer took 10 cycles of 8 ns.
        assert row["cycles"] == [10] * 100
        assert row["board_seconds"] == pytest.approx(80e-9)
        assert row["bytes_per_second"] == pytest.approx(row["bytes"] / 80e-9)
        assert len(row["wall_samples"]) == 100
        assert row["wall_seconds"] == statistics.median(row["wall_samples"]) > 0
        assert row["wall_bytes_per_second"] == row["bytes"] / row["wall_seconds"]
        share = row["bytes_per_second"] / row["link_limit"]
        assert row["share_of_limit"] == pytest.approx(share)
        assert cells == [
            str(row["bytes"]),
            "0.1",
            f"{row['bytes_per_second'] / 1e6:.1f}",
            f"{row['link_limit'] / 1e6:.1f}",
            f"{share:.1%}",
            f"{row['wall_seconds'] * 1e6:.1f}",
            f"{row['wall_bytes_per_second'] / 1e6:.1f}",
        ]
    assert "wall µs     real time of a call of the library" in lines
    assert any("from the board: cycles end while" in line for line in lines)
    made = [said["op"] for _, said in node_driver.named("SUBMIT")]
    # One of each to verify it; and for a direction, the other one.
    assert len(made) == 2 * len(fit) * 102 + len(sizes) * 101


def check_tails(report, lines, count):
    """The rows, and what is in the file, are of one measurement: idle and busy, each direction."""
    (title,) = (number for number, line in enumerate(lines) if line.startswith("64 bytes, "))
    assert lines[title].split() == ["64", "bytes,", str(count), "of", "each", *TAILS, *TAILS]
    found = [(row["direction"], row["beside"]) for row in report["tails"]]
    assert found == [
        (direction, beside and {"direction": beside, "bytes": 32_768})
        for direction in DIRECTIONS
        for beside in (None, BESIDE[direction])
    ]
    for row, line in zip(report["tails"], lines[title + 1 :], strict=False):
        assert (row["bytes"], row["count"]) == (64, count)
        beside = f"beside {row['beside']['direction']}" if row["beside"] else "idle"
        assert line.startswith(f"{row['direction']}, {beside} ")
        values = [*row["cycles"].values(), *row["wall_seconds"].values()]
        shown = [
            "-"
            if value is None
            else f"{value:.0f}"
            if number < len(TAILS)
            else f"{value * 1e6:.1f}"
            for number, value in enumerate(values)
        ]
        assert line.split()[-2 * len(TAILS) :] == shown
        walls = [value for value in row["wall_seconds"].values() if value is not None]
        assert walls[0] > 0 and walls == sorted(walls)


def test_the_tails_of_small_transfers(measured, node_driver):
    report, lines = measured("--sizes", "64", "--repeat", "1", "--tails", "150")
    check_tails(report, lines, 150)
    for row in report["tails"]:
        # The stand-in says 10 cycles of each, and 150 have no p99.9.
        assert row["cycles"] == {"p50": 10, "p99": 10, "p99.9": None, "max": 10}
        assert row["wall_seconds"]["p99.9"] is None
    lengths = Counter(said["length"] for _, said in node_driver.named("SUBMIT"))
    # Three directions idle and busy, each verified by one, or two, before: also the load.
    assert lengths[64] == 5 + 3 + 2 * (5 + 3 * 150)
    assert lengths[32_768] >= 5 + 3 * 2


@pytest.mark.parametrize("scale", [1, 100])
def test_how_many_small_transfers_there_are_by_default(node_driver, monkeypatch, capfd, scale):
    """A simulated board takes too long for as many as a real one."""
    assert (perf._TAILS, perf._TAILS_SIMULATED) == (100_000, 100)
    monkeypatch.setattr(perf, "_TAILS", 7)
    monkeypatch.setattr(perf, "_TAILS_SIMULATED", 3)
    node_driver.info.time_scale = scale
    options = ["--memory", "numpy", "--sizes", "64", "--repeat", "1"]
    assert main(["perf", *options, "--json", "-"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert {row["count"] for row in report["tails"]} == {7 if scale == 1 else 3}


def test_numpy_arrays_need_no_gpu(node_driver, capfd):
    options = ["--sizes", "4K,100", "--tails", "0"]
    assert main(["perf", "--memory", "numpy", *options, "--json", "-"]) == 0
    output = capfd.readouterr()
    report = json.loads(output.out)
    assert (report["gpu"], report["memory"]) == (None, "arrays of numpy")
    assert [row["bytes"] for row in report["results"]] == [100, 4096] * 3
    assert report["left_out"] == []
    # The table is on stderr, then.
    assert len(rows(output.err.splitlines())) == 6
    assert "GPU" not in output.err


def test_a_plain_core_has_only_wall_time(measured, node_driver, monkeypatch):
    node_driver.info.board_version = 0
    report, lines = measured("--sizes", "1K", "--repeat", "2")
    assert report["clock_khz"] is None and report["link"] is None
    for row, cells in zip(report["results"], rows(lines), strict=True):
        assert row["cycles"] == [10, 10]
        assert row["wall_bytes_per_second"] > 0
        missing = ("board_seconds", "bytes_per_second", "link_limit", "share_of_limit")
        assert [row[name] for name in missing] == [None] * 4
        assert cells[1:5] == ["-"] * 4
    assert "board µs    unknown: a plain XDMA core has no clock to read" in lines


@pytest.mark.parametrize("wrong", [Op.H2C, Op.C2H, Op.COPY], ids=lambda op: op.name)
def test_wrong_data_end_it_without_results(node_driver, tmp_path, monkeypatch, capsys, wrong):
    """From 1 KiB on, the last byte does not arrive: smaller sizes are shown, no file is written."""
    end = FakeKernel._end_well

    def spoil(driver, job, **members):
        request = driver._requests[job]
        there = driver._side(request.dst_handle, request.dst_offset, request.length)
        before = there[-1]
        end(driver, job, **members)
        if request.length >= 1024 and request.op == wrong:
            there[-1] = before

    monkeypatch.setattr(FakeKernel, "_end_well", spoil)
    file = tmp_path / "report.json"
    code = main(["perf", "--gpu", "emulated", "--sizes", "64,1K", "--json", str(file)])
    assert code == VerifyError.exit_code
    output = capsys.readouterr()
    assert output.err.startswith("peerdma: VerifyError: ")
    shown = [cells[0] for cells in rows(output.out.splitlines())]
    assert shown == (["64", "1024", "64", "1024", "64"] if wrong is Op.COPY else ["64"])
    assert "verified" not in output.out
    assert not file.exists()


@pytest.mark.parametrize("name", GPUS)
def test_the_simulated_board(socket, tmp_path, name):
    """Wall time is marked as the simulation's, and has no rate."""
    gpu, memory = GPUS[name]
    file = tmp_path / "report.json"
    sizes = ["--sizes", "256,128K,3", "--tails", "5"]
    options = ["--gpu", gpu, "--memory", memory, *sizes, "--json", file]
    result = command("perf", "--board", socket, *options)
    assert result.returncode == 0, result.stderr
    report, lines = json.loads(file.read_text()), result.stdout.splitlines()
    assert set(report) == REPORT
    assert report["simulated"] and report["repeat"] == 3
    found = [(row["direction"], row["bytes"]) for row in report["results"]]
    assert found == [
        (direction, n)
        for direction in DIRECTIONS
        for n in (3, 256, 131_072)[: 3 if direction == "copy" else 2]
    ]
    assert all(row["wall_bytes_per_second"] is None for row in report["results"])
    copy = report["results"][-1]
    # With surfaces on both sides of 4 GiB, the limit is that of those above.
    assert 0.8 < copy["share_of_limit"] < 1.02
    assert copy["through"] == "user stream"
    assert set(copy["path"]) == {"to_board", "from_board"}
    (path,) = set(copy["path"].values())
    assert any(line.startswith(f"copy, to the board {path}") for line in lines)
    assert report["results"][0]["path"] == {"to_board": path, "from_board": None}
    assert report["results"][2]["path"] == {"to_board": None, "from_board": path}
    assert "wall µs     real time that the simulation took: says nothing about hardware" in lines
    assert sum(line.endswith("share  wall µs (sim)") for line in lines) == 3
    table = [line for line in lines if not line.startswith("64 bytes")]
    assert all(len(cells) == 6 for cells in rows(table))
    check_tails(report, lines, 5)


def test_small_transfers_are_made_beside_others(socket):
    """Their requests wait for writes on the link, once both are at work at the same time."""
    with peerdma.open(str(socket)) as board, peerdma.gpu("emulated") as gpu:
        make = functools.partial(perf._transfer, board, gpu, gpu.surface, itertools.count(step=2))
        beside = board.info().card_ram_size, perf._DIRECTIONS["to board"]

        def slowest(*load):
            return max(each.cycles for each in perf._measure(make, 64, "to board", 5, *load))

        alone, until = slowest(), time.monotonic() + PATIENCE
        while slowest(beside) <= 1.2 * alone:
            assert time.monotonic() < until, "they never wait"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sizes", "64,x"], "'x' is not a size from 1 to 1G, such as 64 or 4K"),
        (["--sizes", ""], "'' is not a size"),
        (["--sizes", "0"], "'0' is not a size"),
        (["--sizes", "2G"], "'2G' is not a size"),
        (["--sizes", "-5"], "--sizes"),
        (["--max", "1T"], "'1T' is not a size"),
        (["--max", "63"], "--max is at least 64; --sizes takes smaller ones"),
        (["--max", "4K", "--sizes", "64"], "not allowed with argument --max"),
        (["--repeat", "0"], "'0' is not a number from 1 to 999999"),
        (["--repeat", "many"], "'many' is not a number"),
        (["--tails", "-1"], "--tails"),
        (["--tails", "1M"], "'1M' is not a number from 1 to 999999"),
        (["--plot", "rates.gif"], "--plot writes .png, .svg, .pdf, not rates.gif"),
        (["--memory", "numpy", "--gpu", "cuda"], "--memory numpy uses no GPU"),
        (["--gpu", "amd"], "'amd' is none of auto, emulated, cuda, cuda:N"),
        (["--memory", "shared"], "invalid choice: 'shared'"),
    ],
)
def test_wrong_arguments(options, message, node_driver, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["perf", *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert node_driver.calls == []


def test_sizes_as_people_write_them():
    assert perf._sizes("4KiB,64,1M,64B,4K") == [64, 4096, 1 << 20]


def test_no_board(capsys):
    assert main(["perf", "--board", "/dev/picoevb77", "--gpu", "emulated"]) == 3
    assert "/dev/picoevb77" in capsys.readouterr().err


@pytest.fixture
def figure(monkeypatch):
    """A stand-in for matplotlib's `Figure`, whose files have their format as content."""
    module = ModuleType("matplotlib.figure")
    module.Figure = MagicMock()
    drawn = module.Figure.return_value
    drawn.savefig.side_effect = lambda file, **options: file.write(options["format"].encode())
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return drawn


def lines_of(figure: MagicMock) -> list[tuple[list, list, dict]]:
    """What was drawn: sizes, rates and options of each line."""
    calls = figure.subplots.return_value.plot.call_args_list
    return [(list(call.args[0]), list(call.args[1]), call.kwargs) for call in calls]


def test_a_plot_shows_rates_and_limits(measured, figure, tmp_path):
    report, _ = measured("--sizes", "64,128K", "--plot", str(tmp_path / "rates.svg"))
    assert (tmp_path / "rates.svg").read_bytes() == b"svg"
    drawn = lines_of(figure)
    assert len(drawn) == 6
    for direction, rates, limits in zip(DIRECTIONS, drawn[::2], drawn[1::2], strict=True):
        found = [row for row in report["results"] if row["direction"] == direction]
        sizes = [row["bytes"] for row in found]
        assert rates[:2] == (sizes, [row["bytes_per_second"] / 1e6 for row in found])
        assert rates[2]["label"] == direction
        assert limits[:2] == (sizes, [row["link_limit"] / 1e6 for row in found])
        assert "label" not in limits[2] and limits[2]["color"] == rates[2]["color"]
    axes = figure.subplots.return_value
    axes.set_xscale.assert_called_once_with("log", base=2)
    axes.set_yscale.assert_called_once_with("log")
    axes.set_xticks.assert_called_once_with([64, 131_072], ["64 B", "128 KiB"])
    assert axes.set_title.call_args.args[0].startswith("board 0 at 0000:01:00.0, PCIe Gen2 x1")
    assert "busy cycles" in axes.set.call_args.kwargs["ylabel"]
    # The stand-in's board is faster than its link.
    assert "above: cycles end" in axes.legend.call_args.kwargs["title"]


def test_a_plot_of_a_plain_core_is_of_wall_time(measured, figure, node_driver, tmp_path):
    node_driver.info.board_version = 0
    report, _ = measured("--sizes", "64", "--plot", str(tmp_path / "rates.png"))
    rates = [[row["wall_bytes_per_second"] / 1e6] for row in report["results"]]
    assert [each for _, each, _ in lines_of(figure)] == rates
    axes = figure.subplots.return_value
    assert axes.set.call_args.kwargs["ylabel"] == "MB/s, by wall time"
    assert axes.legend.call_args.kwargs["title"] == "dashed: what the link carries"


def test_a_simulated_plain_core_has_nothing_to_plot(node_driver, figure, tmp_path, capsys):
    node_driver.info.board_version, node_driver.info.time_scale = 0, 100
    code = main(["perf", "--gpu", "emulated", "--plot", str(tmp_path / "rates.png")])
    assert code == UnsupportedError.exit_code
    assert "there is nothing to plot: this simulated board" in capsys.readouterr().err
    assert node_driver.named("SUBMIT") == []
    assert [path.name for path in tmp_path.iterdir()] == ["picoevb"]


def test_without_matplotlib_it_says_what_to_install(node_driver, tmp_path, monkeypatch, capsys):
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    code = main(["perf", "--gpu", "emulated", "--plot", str(tmp_path / "rates.png")])
    assert code == UnsupportedError.exit_code
    output = capsys.readouterr()
    assert output.out == ""
    assert "--plot needs matplotlib, which cannot be imported" in output.err
    (extra,) = re.findall(r"pip install '\.\[(\w+)\]'`", output.err)
    assert re.search(rf'^{extra} = \[\n +"matplotlib', (ROOT / "pyproject.toml").read_text(), re.M)
    assert node_driver.calls == []


@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_a_file_that_cannot_be_written_is_found_first(node_driver, figure, capsys, option):
    assert main(["perf", option, "/proc/none/file.png"]) == PeerdmaError.exit_code
    assert "/proc/none/file.png" in capsys.readouterr().err
    assert node_driver.calls == []


def test_ctrl_c_ends_it_and_leaves_nothing(socket, tmp_path):
    options = ["--gpu", "emulated", "--sizes", "64", "--repeat", "999999", "-v"]
    files = ["--board", str(socket), "--json", str(tmp_path / "report.json")]
    process = subprocess.Popen(
        [sys.executable, "-m", "peerdma", "perf", *options, *files],
        env={**os.environ, "PYTHONPATH": str(HOST)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if "opened board" in line:
            break
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors.endswith("peerdma: interrupted\n")
    assert "verified" not in output
    assert list(tmp_path.iterdir()) == []
