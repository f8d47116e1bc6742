# SPDX-License-Identifier: BSD-2-Clause
"""Makes docs/trace.png anew: ``.venv/bin/python -m tests.host.trace.picture``."""

import argparse
import tempfile
from pathlib import Path

from tests.host.programs import ROOT, run
from tests.host.trace.browser import READY, Browser


def main() -> None:
    """Copies with the demo, and photographs where the data begins."""
    argparse.ArgumentParser(
        prog=".venv/bin/python -m tests.host.trace.picture",
        description="Make docs/trace.png anew.",
    ).parse_args()
    with tempfile.TemporaryDirectory() as folder, Browser(1280, 720) as browser:
        page = Path(folder, "copy.html")
        run("--size", "64x64", "--gpu", "emulated", "--trace", page).check_returncode()
        browser.open(f"file://{page}")
        browser.wait_for(READY)
        browser.evaluate("""{
            const first = trace.label.findIndex((label) => label.startsWith("read 512"));
            state.from = trace.time[first] - 2500; state.to = state.from + 8000;
            select(first); draw(); }""")
        (ROOT / "docs/trace.png").write_bytes(browser.screenshot())


if __name__ == "__main__":
    main()
