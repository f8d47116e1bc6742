# SPDX-License-Identifier: BSD-2-Clause
"""What importing the library loads, and which names it shows."""

import json
import subprocess
import sys

import peerdma
from tests.host.programs import HOST


def loaded(code: str) -> set[str]:
    """The modules that `code` loads in a fresh interpreter."""
    program = (
        f"import json, sys; sys.path.insert(0, {str(HOST)!r}); before = set(sys.modules)\n{code}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(done.stdout))


def parts(modules: set[str]) -> set[str]:
    """The folders and files of the package that the modules are in."""
    return {name.split(".")[1] for name in modules if name.startswith("peerdma.")}


#: What a program holds in its hands, and what that is made of.
FACE = {
    *("arguments", "board", "deprecated", "errors", "gpus", "identity", "memory", "opening"),
    *("process", "regs", "uapi", "waiting"),
}


def test_import_loads_no_way_to_a_board_and_no_gpu():
    modules = loaded("import peerdma")
    assert parts(modules) == FACE
    tops = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    assert tops == {"numpy", "peerdma"}


def test_a_gpu_loads_its_own_kind_only():
    assert parts(loaded("import peerdma; peerdma.gpu('emulated')")) == {*FACE, "emulated"}


def test_a_device_node_needs_no_simulation():
    code = (
        "import peerdma\n"
        "try: peerdma.open('/dev/peerdma-that-is-not-there')\n"
        "except peerdma.BoardNotFound: pass"
    )
    assert parts(loaded(code)) == {*FACE, "kernel"}


def test_a_board_by_vfio_needs_neither_simulation_nor_driver():
    code = (
        "import peerdma\ntry: peerdma.open('vfio:ffff:ff:1f.7')\nexcept peerdma.BoardNotFound: pass"
    )
    assert parts(loaded(code)) == {*FACE, "userspace", "vfio", "vfio_pci"}


def test_dir_shows_the_api_and_nothing_else():
    names = [name for name in dir(peerdma) if not name.startswith("__")]
    assert sorted({*names, "__version__"}) == sorted(peerdma.__all__)
    assert all(name in dir(peerdma) for name in ("__doc__", "__file__", "__version__"))
    assert not hasattr(peerdma, "pin")
