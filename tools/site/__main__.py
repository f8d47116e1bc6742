# SPDX-License-Identifier: BSD-2-Clause
"""Build the documentation site: ``make docs``.

Ends with status 1 if Sphinx has a warning, or a link leads nowhere.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from tools.site.links import wrong_links
from tools.site.pages import ROOT, START, collect


def main() -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=".venv/bin/python -m tools.site", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", metavar="DIR",
                        help="where the site goes (build/docs)")  # fmt: skip
    out = parser.parse_args().out
    try:
        from sphinx.cmd.build import build_main
    except ImportError as error:
        print(f"docs: {error.name} is missing: `make docs` installs it", file=sys.stderr)
        return 2
    source, html = out / "source", out / "html"
    collect(source)
    shutil.rmtree(html, ignore_errors=True)
    options = ("-q", "-W", "--keep-going", "-c", str(Path(__file__).parent), "-d", str(out / "tmp"))
    if status := build_main([*options, str(source), str(html)]):
        return status
    # Web servers and people look for this name.
    shutil.copy(html / Path(START).with_suffix(".html"), html / "index.html")
    wrong = list(wrong_links(html))
    for line in wrong:
        print(f"docs: {line}", file=sys.stderr)
    print(f"docs: wrote {html / 'index.html'}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
