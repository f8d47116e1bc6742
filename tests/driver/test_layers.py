# SPDX-License-Identifier: BSD-2-Clause
"""The driver's layers: calls go down, names say the file, and two requests are short to read.

The rules are in the head of driver/registers/core.h, the layers in driver/Makefile.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.driver.call_graph import PROVIDERS, Graph, headers, layers, read, sources

ROOT = Path(__file__).resolve().parents[2]
DRIVER = ROOT / "driver"
#: Where a request's own code begins, and the functions after which it is done.
REQUESTS = {
    "PIN_CUDA": ("legacy_pin", "peerdma_surface_take_gpu", "nvp2p_map"),
    "H2C2H_DMA": (
        "legacy_h2c2h",
        "pages_map",
        "peerdma_submit_create",
        "peerdma_dispatch_add",
        "dispatch_admit",
        "peerdma_chain_build",
        "peerdma_chain_doorbell",
    ),
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph(DRIVER)


def test_every_file_is_in_a_layer(graph: Graph):
    assert {path.stem for path in sources(DRIVER)} == set(graph.files)


def test_no_call_goes_up(graph: Graph):
    assert graph.upward() == []
    assert len([1 for file in graph.files.values() for _ in graph.used(file)]) > 60


def test_no_files_use_each_other(graph: Graph):
    assert [group for group in graph.components() if len(group) > 1] == []


@pytest.mark.parametrize(
    ("file", "function", "call", "words"),
    [
        ("hw", "peerdma_hw_stop", "peerdma_dispatch_pump(engine->board);", "dispatch.c"),
        ("stop", "peerdma_stop_lost", "peerdma_recover_reset(board);", "recover.c"),
        ("pages", "pages_put", "queue_work(peerdma_fops, NULL);", "chardev.c"),
    ],
)
def test_a_planted_call_is_found(tmp_path: Path, file: str, function: str, call: str, words: str):
    shutil.copytree(DRIVER, tmp_path / "driver")
    (source,) = (tmp_path / "driver").glob(f"*/{file}.c")
    text, planted = re.subn(
        rf"(\b{function}\([^;]*?\)\n{{\n)", rf"\1\t{call}\n", source.read_text()
    )
    assert planted == 1
    source.write_text(text)
    graph = Graph(tmp_path / "driver")
    (found,) = graph.upward()
    assert found.startswith(f"{file}.c uses ")
    assert found.endswith(words)
    (group,) = (group for group in graph.components() if len(group) > 1)
    assert {file, words.removesuffix(".c")} <= group


def test_what_comments_and_strings_say_is_no_call(tmp_path: Path):
    source = tmp_path / "source.c"
    source.write_text(
        "/* peerdma_a(); */\n#define B peerdma_b()\nstatic int source_c(void)\n{\n"
        '\treturn printk("peerdma_d()") + it->peerdma_e() + peerdma_f(); // peerdma_g()\n}\n'
    )
    assert {use for use in read(source).uses if use.startswith("peerdma_")} == {"peerdma_f"}


def test_functions_are_named_after_their_file(graph: Graph):
    wrong = []
    # A provider's module may be somebody else's: what it calls keeps its name where that is moved.
    provided = read(DRIVER / "peerdma_provider.h").uses
    for file in graph.files.values():
        whole = f"peerdma_{file.name}"
        wrong += [name for name in file.static if not name.startswith(f"{file.name}_")]
        wrong += [
            name
            for name in file.exported.keys() - provided
            if f"{name}_" != f"{whole}_" and not name.startswith(f"{whole}_")
        ]
    assert wrong == []
    assert sum(len(file.functions) for file in graph.files.values()) > 200


def test_functions_of_headers_are_named_after_the_driver():
    known = [read(path) for path in headers(DRIVER)]
    names = {name for header in known for name in header.functions if header.name != "compat"}
    assert [name for name in names if not name.startswith("peerdma_")] == []
    assert "peerdma_read" in names


def test_a_file_includes_the_header_of_its_layer(graph: Graph):
    known = {path.name: read(path) for path in headers(DRIVER)}
    shared = {"peerdma_provider.h"}
    for layer, names in layers(DRIVER).items():
        exported = {name for file in names for name in graph.files[file].exported}
        declared = {name for name, header in known.items() if header.uses & exported} - shared
        assert len(declared) == 1, f"{layer} is declared in {declared}"
        assert [name for name in names if graph.files[name].includes != declared] == []
    assert [name for name in PROVIDERS if graph.files[name].includes != shared] == []


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_request_is_read_in_at_most_six_files(graph: Graph, request_name: str):
    files = graph.route(*REQUESTS[request_name])
    assert len(files) <= 6
    guide = (ROOT / "docs/driver.md").read_text()
    (row,) = re.findall(rf"^\| `{request_name}` \|(.*)\|$", guide, re.M)
    read_in_order = re.findall(r"`(\w+)\.c`", row)
    assert set(read_in_order) == files
    called: set[str] = set(graph.files[read_in_order[0]].functions)
    for name in read_in_order:
        functions = graph.files[name].functions.keys()
        assert called & functions, f"nothing that is read before {name}.c calls it"
        called = called.union(*(graph.calls()[function] for function in functions))


def test_the_guide_has_the_layers():
    guide = (ROOT / "docs/driver.md").read_text()
    for layer, names in layers(DRIVER).items():
        (row,) = re.findall(rf"^\| {layer} \| ([^|]*) \|", guide, re.M)
        assert re.findall(r"`(\w+)`", row) == names


def test_requests_enter_where_their_code_is(graph: Graph):
    assert "peerdma_legacy_ioctl" in graph.files["chardev"].uses
    starts = {start for start, *_ in REQUESTS.values()}
    assert starts | {"peerdma_legacy_ioctl"} <= graph.files["legacy"].functions.keys()
    assert starts <= graph.calls()["legacy_dispatch"]


def test_the_number_of_a_request_is_clamped_where_it_is_an_index():
    """Otherwise a program could have the processor look beyond the table ahead of the check."""
    text = (DRIVER / "files/request.c").read_text()
    indices = re.findall(r"\boperations\[(?!\])(.*)\];", text)
    assert indices == ["array_index_nospec(number, ARRAY_SIZE(operations))"]


def test_no_file_is_long():
    lines = {
        path.name: len(path.read_text().splitlines())
        for path in [*sources(DRIVER), *headers(DRIVER)]
    }
    # One is the interface, the other is generated of the register map: nobody reads them through.
    tables = {"peerdma_uapi.h", "peerdma_regs.h"}
    assert [name for name, count in lines.items() if count > 500 and name not in tables] == []


def test_a_name_stands_for_one_structure():
    texts = [path.read_text() for path in [*sources(DRIVER), *headers(DRIVER)]]
    names = [
        name
        for text in texts
        for name in re.findall(r"^(?:struct|union|enum) (\w+) \{", text, re.M)
    ]
    assert sorted(names) == sorted(set(names))
