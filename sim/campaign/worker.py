# SPDX-License-Identifier: BSD-2-Clause
"""What runs wherever a seed runs, beside this checkout or far from it.

It needs nothing but the standard library and `tools.archives`, and is sent together with that to a
machine that has none of the checkout; the rest of what a seed needs comes in a bundle.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tools.archives import unpack as unpack_tar

__all__ = ["LOG", "RESULT", "name_of", "run_seed", "unpack"]

#: Files in a seed's folder: what became of it, and what the simulator said.
RESULT, LOG = "result.json", "log.txt"
#: Lines of the log that come back with a failure.
_TAIL = 40


def name_of(bundle: bytes) -> str:
    """A bundle's content, in a few characters."""
    return hashlib.sha256(bundle).hexdigest()[:20]


def unpack(bundle: bytes, root: Path) -> Path:
    """The folder with a bundle's content, below `root`; unpacked whole, once."""
    place = root / f"bundle-{name_of(bundle)}"
    if place.is_dir():
        return place
    root.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".bundle-", dir=root))
    try:
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(bundle))) as archive:
            unpack_tar(archive, scratch)
        try:
            scratch.rename(place)
        except OSError:
            # Another seed's worker was faster: its content is the same.
            if not place.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return place


def run_seed(bundle: bytes, seed: int, episodes: int, root: str = "peerdma-campaign") -> dict:
    """Run a seed in a folder of its own below `root`, and say what became of it.

    Returns
    -------
    dict
        seed, passed, cpu_seconds, simulated_ns, counts of coverage, digest of the TLPs, and log:
        the end of it if the seed failed. A seed that passed leaves no folder.
    """
    home = unpack(bundle, Path(root).resolve())
    folder = home / "runs" / f"{seed}-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(home / "host"), str(home)))}
    command = [sys.executable, "-m", "sim.campaign.one", str(seed)]
    command += ["--episodes", str(episodes)]
    command += ["--models", str(home / "models"), "--folder", str(folder)]
    with (folder / LOG).open("wb") as log:
        subprocess.run(
            command, cwd=home, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
        )
    lines = (folder / LOG).read_text(errors="replace").splitlines()
    try:
        result = json.loads((folder / RESULT).read_text())
    except FileNotFoundError:  # not even that far
        result = {"seed": seed, "passed": False, "cpu_seconds": 0.0}
    result["log"] = "" if result["passed"] else "\n".join(lines[-_TAIL:])
    if result["passed"]:
        shutil.rmtree(folder)
    return result
