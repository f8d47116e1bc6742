# SPDX-License-Identifier: BSD-2-Clause
"""The tutorial, typed as a reader types it, up to the image that takes minutes."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.commands import blocks

ROOT = Path(__file__).resolve().parent.parent
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
#: What each of its commands says at the end, by the file that it writes or runs.
SAYS = {
    "first.py": "307200 bytes in .* through the board's user stream",
    "invert.py": "307200 bytes in .* through the board's user stream",
    "mask.py": "mask 0x80",
    "bench.py": "",
    "image": "usage: .* --user NAME",
    "vivado": "mine/vivado: run there: vivado -mode batch",
}


def written(text: str) -> dict[str, str]:
    """The files that a page has its reader write, by name."""
    return dict(re.findall(r"`mine/(\w+\.py)`:\n\n```python\n(.*?)```", text, flags=re.DOTALL))


def test_every_step_works_as_it_is_typed(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    files = written(TUTORIAL)
    assert len(files) == TUTORIAL.count("```python")
    for name, code in files.items():
        (mine / name).write_text(code)
    found = []
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in blocks(TUTORIAL):
        name = re.findall(r"mine/([\w.]+)", command)[-1]
        folder = shlex.quote(str(mine))
        here = command.replace("$PWD/mine", folder).replace(" mine/", f" {folder}/")
        # Tools for images would be fetched, and take minutes: their options are read.
        here = here.replace(".venv/bin/python", shlex.quote(sys.executable))
        here += " --help" * (name == "image")
        done = subprocess.run(
            ["sh", "-c", here],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert re.search(SAYS[name], done.stdout + done.stderr, flags=re.DOTALL), done.stdout
        found.append(name)
    assert found == list(SAYS)
    assert "masked" in "".join(path.read_text() for path in (mine / "vivado").rglob("*.v"))
