# SPDX-License-Identifier: BSD-2-Clause
"""The types of the library, as a type checker of somebody who installed it sees them."""

import json
import os
import subprocess
import sys

from tests.host.programs import HOST


def test_every_name_that_can_be_seen_has_a_type(tmp_path):
    """Nothing is left for a type checker to infer, which each does in its own way."""
    command = ("--pythonpath", sys.executable, "--verifytypes", "peerdma", "--ignoreexternal")
    done = subprocess.run(
        [sys.executable, "-m", "pyright", *command, "--outputjson"],
        # A folder without settings, and the library in the interpreter's path, as it is installed.
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HOST)},
        capture_output=True,
        text=True,
        timeout=900,
    )
    found = json.loads(done.stdout)["typeCompleteness"]
    assert found["pyTypedPath"] == str(HOST / "peerdma" / "py.typed")
    unknown = {
        symbol["name"]: [each["message"] for each in symbol["diagnostics"]]
        for symbol in found["symbols"]
        if symbol["isExported"] and (symbol["isTypeAmbiguous"] or not symbol["isTypeKnown"])
    }
    assert not unknown
    assert found["completenessScore"] == 1
