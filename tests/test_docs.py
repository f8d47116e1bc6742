# SPDX-License-Identifier: BSD-2-Clause
"""Checks docstrings, licences and links, and runs the example of the README."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("hw", "examples", "flow", "host", "sim", "driver", "tools", "tests")
CODE = (".py", ".c", ".h", ".cpp", ".hpp", ".v", ".sv", ".sh")
README = ROOT / "README.md"

FILES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in CODE or path.name in ("Makefile", "Kbuild")
]
FILES += [ROOT / name for name in ("Makefile", "pyproject.toml", ".ci/run")]
DOCS = [
    README,
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "host").rglob("*.ipynb")),
]
#: Modules that others import, and so read about.
MODULES = [path for path in FILES if path.suffix == ".py" and "tests" not in path.parts]
DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def expect_nothing(paths: list[Path], search: Callable[[Path], Iterable[str]]) -> None:
    """Fail with all that `search` finds in `paths`, a line each."""
    assert paths
    found = [f"{path.relative_to(ROOT)}: {each}" for path in paths for each in search(path)]
    assert not found, "\n".join(["", *found])


def defined(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """The public classes and functions of a module or class, those in its `if`s included."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from defined(node.body + node.orelse)
        elif isinstance(node, DEFINITIONS) and not node.name.startswith("_"):
            yield node


def undocumented(body: list[ast.stmt], inside: str = "") -> Iterator[str]:
    """The names of public classes, functions and methods in `body` without a docstring."""
    for node in defined(body):
        # What `elaborate` does is what its component's docstring says.
        if not ast.get_docstring(node) and node.name != "elaborate":
            yield inside + node.name
        if isinstance(node, ast.ClassDef):
            yield from undocumented(node.body, f"{inside}{node.name}.")


def exported(tree: ast.Module) -> list[str] | None:
    """The module's `__all__`; None without one."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return None


def bound(tree: ast.Module) -> set[str]:
    """Every name that the module's own statements bind, star imports aside."""
    names = set()
    for node in ast.walk(ast.Module(tree.body, [])):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, DEFINITIONS):
            names.add(node.name)
    return names


def docstring_findings(path: Path) -> Iterator[str]:
    """What is public in the module at `path` and says nothing about itself."""
    tree = ast.parse(path.read_text())
    if not ast.get_docstring(tree):
        yield "the module"
    yield from undocumented(tree.body)


def all_findings(path: Path) -> Iterator[str]:
    """What is wrong with the `__all__` of the module at `path`, if it has one."""
    tree = ast.parse(path.read_text())
    names = exported(tree)
    if names is None:
        return
    for name in names:
        if name not in bound(tree) or names.count(name) > 1:
            yield f"{name} is in __all__, but not there or there twice"
    for node in defined(tree.body):
        if node.name not in names:
            yield f"{node.name} is public, but not in __all__"


def test_everything_public_has_a_docstring():
    expect_nothing(MODULES, docstring_findings)


def test_all_is_honest():
    expect_nothing(MODULES, all_findings)


def test_the_checks_above_find_what_they_look_for(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        '__all__ = ["f", "gone"]\nimport os\ndef f(): pass\n'
        'class C:\n  """Doc."""\n  def m(self): pass\n  def elaborate(self): pass\n'
    )
    assert list(docstring_findings(module)) == ["the module", "f", "C.m"]
    assert [finding.split()[0] for finding in all_findings(module)] == ["gone", "C"]


def licence_findings(path: Path) -> Iterator[str]:
    """What is wrong with the licence that the file at `path` names."""
    lines = path.read_text().splitlines()
    licence = "GPL-2.0-only" if path.is_relative_to(ROOT / "driver") else "BSD-2-Clause"
    # The first line of a script is for the kernel that runs it.
    # REUSE-IgnoreStart
    if not any(re.search(rf"SPDX-License-Identifier: .*{licence}", line) for line in lines[:2]):
        # REUSE-IgnoreEnd
        yield f"no SPDX tag with {licence} at its top"


def test_every_file_names_its_licence():
    expect_nothing(FILES, licence_findings)


def machine_paths(path: Path) -> list[str]:
    """Paths that only one machine has."""
    return re.findall(r"(?<![\w.$}>])/(?:work|home|root|opt|mnt)/\S*", path.read_text())


def test_no_path_of_one_machine(tmp_path):
    expect_nothing([*FILES, *DOCS], machine_paths)
    sample = tmp_path / "sample"
    mine = str(Path("/", "home", "me"))
    sample.write_text(f"see {mine} build/mnt/y and /usr/src")
    assert machine_paths(sample) == [mine]


def dead_links(path: Path) -> Iterator[str]:
    """Links, and names of files in backquotes, that lead nowhere in the checkout."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, heading = link.partition("#")
        target = path.parent / file if file else path
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (heading and heading not in headings(target)):
            yield link
    for name in re.findall(rf"`((?:{'|'.join(FOLDERS)}|docs)/[\w./]*)`", text):
        if not (ROOT / name).exists():
            yield name


def test_links_lead_somewhere(tmp_path):
    expect_nothing(DOCS, dead_links)
    broken = tmp_path / "broken.md"
    broken.write_text("# A b\n[x](gone.md) [y](#a-b) [z](#c) `hw/` `hw/gone.py` [w](https://a.b)")
    assert list(dead_links(broken)) == ["gone.md", "#c", "hw/gone.py"]


def unreadable(path: Path) -> Iterator[str]:
    """What keeps an SVG from being read in light and dark, and without a network."""
    text = path.read_text()
    picture = ElementTree.fromstring(text)
    if not picture.get("aria-label"):
        yield "no aria-label"
    if "@media (prefers-color-scheme: dark)" not in text or 'class="ground"' not in text:
        yield "no ground that changes with light and dark"
    if re.search("https?:|href=|@import", text.replace(' xmlns="http://www.w3.org/2000/svg"', "")):
        yield "loads something"


def test_pictures_are_readable_anywhere(tmp_path):
    expect_nothing(sorted((ROOT / "docs").rglob("*.svg")), unreadable)
    bad = tmp_path / "bad.svg"
    bad.write_text('<svg><image href="x.png"/></svg>')
    assert len(list(unreadable(bad))) == 3


def without_source(path: Path) -> Iterator[str]:
    """Claims about other projects without a source, and sources that are not fixed in time.

    A claim is what stands in a table outside of the row in bold, up to the next semicolon; its
    source is a footnote. A footnote has one address, of a commit or with a date.
    """
    text = path.read_text()
    for row in re.findall(r"^\| (?!\*\*|\|)(.+) \|$", text, re.MULTILINE):
        project, *cells = row.split(" | ")
        for claim in (claim for cell in cells for claim in cell.split(";")):
            if "[^" not in claim and "–" not in claim:
                yield f"{project}: {claim.strip()}"
    notes = dict(re.findall(r"^\[\^([\w-]+)\]: (.*)$", text, re.MULTILINE))
    used = re.findall(r"\[\^([\w-]+)\](?!:)", text)
    yield from sorted(set(notes) ^ set(used))
    for name, note in notes.items():
        address = re.findall(r"\]\((https://[^)\s]+)\)", note)
        commit = r"/(blob|tree)/[0-9a-f]{40}/"
        date = r" 20\d\d-\d\d-\d\d"
        file = re.search("/(blob|tree)/", note)
        if len(address) != 1 or not re.search(commit if file else date, note):
            yield name


def test_comparisons_have_sources(tmp_path):
    expect_nothing([ROOT / "docs/compare.md"], without_source)
    page = tmp_path / "page.md"
    page.write_text(
        "| | a | b |\n|---|---|---|\n| **us** | x | y |\n| them | x; y[^1] | – |\n[^gone]\n"
        "[^1]: [x](https://github.com/a/b/blob/main/c)\n[^2]: [x](https://a.b/c)\n"
    )
    assert list(without_source(page)) == ["them: x", "2", "gone", "1", "2"]


def headings(path: Path) -> set[str]:
    """The anchors of the headings in a Markdown file."""
    lines = re.findall(r"^#+ (.*)$", path.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_readme_example_runs():
    """As a user runs it: by a fresh interpreter, with nothing but the library on its path."""
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "host")}
    subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=ROOT,
        env=environment,
        check=True,
        timeout=600,
    )


def test_what_the_architecture_names_is_there():
    """`file:name` in its page is in that file; paths may begin in the library's folder."""
    page = (ROOT / "docs/architecture.md").read_text()
    found = re.findall(r"`([\w/]+/\w+\.(?:py|c|h)):([\w.]+)`", page)
    assert len(found) > 30
    for path, name in found:
        (file,) = (at for at in (ROOT / path, ROOT / "host/peerdma" / path) if at.is_file())
        text = file.read_text()
        for each in name.split("."):
            assert re.search(rf"\b(class|def) {each}\b|^\w.*\b{each}\(", text, re.M), (path, each)
