# SPDX-License-Identifier: BSD-2-Clause
"""The examples, and the code in the gateware's documentation, as a reader would run them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "host" / "examples" / "stream.py"


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in `folder`, with nothing of this test's environment but its interpreter."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.parametrize("overwrite", [False, True], ids=["waiting", "overwriting"])
def test_stream(tmp_path, overwrite):
    arguments = ["--frames", "5", "--words", "1000", *(["--overwrite"] if overwrite else [])]
    done = run(tmp_path, str(EXAMPLE), *arguments)
    assert done.returncode == 0, done.stderr
    *frames, total = done.stdout.splitlines()
    numbers = [int(re.match(r"frame (\d+): ", line).group(1)) for line in frames]
    if overwrite:
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 5
    else:
        assert numbers == list(range(5))
        for line in frames:
            assert re.fullmatch(r"frame \d+: begun at cycle \d+, every word is right", line)
        assert total == "5 frames, 0 of them dropped"


def test_stream_needs_a_source(tmp_path):
    """On another board it says how to get one with a source."""
    code = (
        "import sys, peerdma\n"
        "from peerdma import testing\n"
        "with peerdma.open('sim') as board:\n"
        "    try: testing.PatternSource(board)\n"
        "    except peerdma.UnsupportedError as error: sys.exit(str(error))\n"
    )
    done = run(tmp_path, "-c", code, PYTHONPATH=str(ROOT / "host"))
    assert "user block is PASS. Build its gateware with --user pattern" in done.stderr


def test_a_block_of_your_own(tmp_path):
    """Block, bench and demo of the documentation, in a folder of their own."""
    text = (ROOT / "docs" / "gateware.md").read_text()
    section = text.split("## A block of your own\n")[1].split("\n## ")[0]
    block, bench, demo = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    assert len(block.splitlines()) <= 35
    for name, code in (("negative.py", block), ("bench.py", bench), ("demo.py", demo)):
        (tmp_path / name).write_text(code)
    paths = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "host")))
    done = run(tmp_path, "bench.py", PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr
    done = run(tmp_path, "demo.py", PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr
    assert "307200 bytes in " in done.stdout
    assert "through the board's user stream" in done.stdout
