# SPDX-License-Identifier: BSD-2-Clause
"""Runs the cocotb benches, those of a module in one simulator; and the command for them."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sim.benches import __main__ as command
from sim.benches import runner
from sim.benches.limits import WALL_SECONDS
from sim.benches.runner import discover, groups, run, run_group
from sim.benches.ultrascale import MODELLED

ROOT = Path(__file__).resolve().parents[3]
#: Room for the build, which the first bench pays for.
BUILD_SECONDS = 600


def benches(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m sim.benches``; both of its streams are in `stdout`."""
    return python("-m", "sim.benches", *arguments)


def environment() -> dict[str, str]:
    """A copy of the environment, without what has cocotb write its results for pytest."""
    return {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the checkout; both of its streams are in `stdout`."""
    paths = [str(ROOT), str(ROOT / "host"), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment() | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_SECONDS + WALL_SECONDS,
        check=False,
    )


def pytest_generate_tests(metafunc):
    """The groups; but of benches that the command line names, each by itself."""
    if "bench" in metafunc.fixturenames:
        named = re.findall(r"::test_bench\[(bench_\S+?)\]", " ".join(metafunc.config.args))
        metafunc.parametrize("bench", named or list(groups()))


def test_bench(bench, monkeypatch):
    """In this process, which has imported already what the command takes a second to import."""
    seed = int(os.environ.get("SEED", secrets.randbits(32)))
    # What it leaves in the environment for the simulator is not for other tests.
    monkeypatch.setattr(os, "environ", environment())
    run = run_group if bench in groups() else run_alone
    failed = run(bench, seed)
    again = "\n".join(f"{sys.executable} -m sim.benches {name} --seed {seed}" for name in failed)
    assert not failed, f"of {bench}, with seed {seed}; one by one:\n{again}"


def run_alone(bench, seed):
    """As `run_group`, of one bench."""
    return [] if run(bench, seed) else [bench]


@pytest.mark.parametrize("everywhere", [False, True])
def test_groups_have_all_benches(everywhere):
    found = groups(everywhere)
    assert sorted(itertools.chain.from_iterable(found.values())) == sorted(discover(everywhere))
    assert "bench_dma.chains@2" in found["bench_dma@2"]


def test_benches_of_the_endpoint_are_on_all_blocks():
    """On each in turn, and with `everywhere` on all, but for those that are for the 7 series."""
    assert len(MODELLED) == 6
    alone = {group for group in groups() if not group.startswith("bench_ultrascale")}
    assert {group.partition("@")[2] for group in alone} >= set(MODELLED)
    found = discover(everywhere=True)
    assert found.keys() > discover().keys()
    for block in MODELLED:
        assert f"bench_dma.chains@{block}" in found
        assert f"bench_dma.pauses@{block}" not in found
        assert f"bench_dma.restarts@{block}" in found
    assert "bench_dma.pauses" in found
    usual = discover()
    assert not any(name.startswith("bench_dma.restarts@ultrascale") for name in usual)
    assert {"bench_dma.restarts", "bench_dma.restarts@2"} <= usual.keys()


def test_everywhere_is_a_file_in_one_simulator(monkeypatch, capsys):
    """And what did not pass is repeated by itself."""
    failed = f"bench_p2p.gpu_to_gpu@{MODELLED[-1]}"
    ran = []

    def run_group(group, seed):
        ran.append((group, seed))
        return [failed] if group in failed.replace(".gpu_to_gpu", "") else []

    monkeypatch.setattr(command, "run_group", run_group)
    assert command.main(["bench_p2p", "--everywhere", "--seed", "5"]) == 1
    assert ran == [(f"bench_p2p{at}", 5) for at in ("", *(f"@{name}" for name in MODELLED))]
    again = re.search(rf"-m sim.benches {failed} --seed 5", capsys.readouterr().out)
    assert again
    monkeypatch.setattr(command, "run", lambda name, *_: ran.append(name) or True)
    assert command.main([failed, "--seed", "5"]) == 0
    assert ran[-1] == failed


@pytest.mark.parametrize("how", ["failure", "error", "skipped"])
def test_what_did_not_pass_is_named(tmp_path, monkeypatch, how):
    """By the results of cocotb; all of a group if there are none."""
    names = groups()["bench_stream"]

    def simulated(**options):
        cases = ""
        for name in names:
            kind = how if name == names[1] else "properties"
            cases += f'<testcase name="{name.split(".")[1]}"><{kind}/></testcase>'
        Path(options["results_xml"]).parent.mkdir(parents=True, exist_ok=True)
        Path(options["results_xml"]).write_text(f"<a><b>{cases}</b></a>")

    monkeypatch.setattr(os, "environ", environment())
    monkeypatch.setattr(runner, "_RUNS", tmp_path)
    monkeypatch.setattr(runner, "build", lambda *_, **__: tmp_path)
    simulator = SimpleNamespace(test=simulated)
    monkeypatch.setattr(runner, "get_runner", lambda _: simulator)
    assert run_group("bench_stream", 1) == [names[1]]

    def died(**options):
        raise RuntimeError("it died")

    simulator.test = died
    assert run_group("bench_stream", 1) == names


def test_unknown_bench_lists_all():
    done = benches("bench_nonsense")
    assert done.returncode == 2
    assert "There is no bench 'bench_nonsense'" in done.stdout
    listed = re.findall(r"^  (bench_\S+) +\S", done.stdout, re.MULTILINE)
    assert listed == list(discover())


@pytest.mark.parametrize(
    ("bound", "said"), [("CPU_SECONDS", "1 s of processor time"), ("WALL_SECONDS", "1 s")]
)
def test_a_bench_at_its_limit_says_which(bound, said):
    """One that takes some seconds of a processor, with bounds of one."""
    bench = "bench_upstream.long_list"
    done = python(
        "-c",
        "import sys; from sim.benches import __main__ as command, limits; "
        f"limits.{bound} = 1; sys.exit(command.main([{bench!r}, '--seed', '1']))",
    )
    assert done.returncode == 1
    assert f"{bench}: the simulator was stopped after {said}\n" in done.stdout
    assert "0 of 1 benches passed" in done.stdout


def test_failure_tells_how_to_repeat_it(monkeypatch, capsys):
    monkeypatch.setattr(
        command, "run", lambda name, seed, waves, netlist: name != "bench_dma.chains"
    )
    assert command.main(["bench_dma", "--seed", "5"]) == 1
    *_, summary, failure = capsys.readouterr().out.splitlines()
    passed, count = re.match(r"(\d+) of (\d+) benches passed, seed 5", summary).groups()
    assert int(passed) == int(count) - 1
    assert failure.startswith("FAILED bench_dma.chains;")
    assert failure.endswith("-m sim.benches bench_dma.chains --seed 5 --waves")
