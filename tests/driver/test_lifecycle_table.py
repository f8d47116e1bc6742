# SPDX-License-Identifier: BSD-2-Clause
"""Every cell of the driver's lifecycle table names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "system"
TABLE = "lifecycle"


def functions(name: str) -> set[str]:
    """The tests of a file of tests/system."""
    tree = ast.parse((FOLDER / f"test_driver_{name}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_cell_has_its_tests():
    document = ast.get_docstring(ast.parse((FOLDER / f"test_driver_{TABLE}.py").read_text())) or ""
    table = re.split(r"^=[= ]+$", document, flags=re.M)[2]
    found = 0
    where = TABLE
    for row in re.split(r"\n(?=\S)", table.strip("\n")):
        where = TABLE
        for file, pattern in re.findall(r"(\w+):|\b(test_[\w*\[\]|]+)", row):
            where = file or where
            if not pattern:
                continue
            start, _, rest = pattern.rstrip("*").partition("[")
            for state in rest.rstrip("]").split("|"):
                found += 1
                matching = [name for name in functions(where) if name.startswith(start + state)]
                assert matching, f"{where} has no test {start}{state}"
    assert found > 50
