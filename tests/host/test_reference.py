# SPDX-License-Identifier: BSD-2-Clause
"""The quick reference: what it says to type is there, and takes these arguments."""

import ast
import inspect
import re
from typing import Any

import pytest

import peerdma
from tests.host.programs import HOST

PAGE = HOST.parent / "docs/reference.md"
#: What the page's variables are.
VARIABLES = {
    "peerdma": peerdma,
    "board": peerdma.Board,
    "gpu": peerdma.Gpu,
    "surface": peerdma.Surface,
    "pin": peerdma.Pin,
    "plan": peerdma.Plan,
    "job": peerdma.Job,
    "frames": peerdma.Frames,
    "frame": peerdma.Frame,
    "queue": peerdma.Queue,
}
INCLUDE = HOST / "peerdma/include/peerdma"
HEADERS = "".join((INCLUDE / name).read_text() for name in ("peerdma.h", "device.cuh"))


def typed(page: str) -> list[str]:
    """What stands in backquotes in the second column of the page's tables."""
    rows = re.findall(r"^\| [^|]+ \| (.*) \|$", page, flags=re.MULTILINE)
    return [code for row in rows for code in re.findall("`([^`]+)`", row)]


def member(owner: Any, name: str) -> Any:
    """An attribute of a module or class; None for one that only its instances have.

    Raises
    ------
    AttributeError
        If there is none.
    """
    if hasattr(owner, name):
        return getattr(owner, name)
    for each in inspect.getmro(owner) if inspect.isclass(owner) else ():
        source = inspect.getsource(each) if each.__module__.startswith("peerdma") else ""
        if name in getattr(each, "__annotations__", {}) or f"self.{name}: " in source:
            return None
    raise AttributeError(f"no {name} in {owner.__name__}")


def resolve(node: ast.expr) -> Any:
    """What a name or attribute in the page is; names that are no variable are classes."""
    if isinstance(node, ast.Name):
        return VARIABLES.get(node.id) or member(peerdma, node.id)
    assert isinstance(node, ast.Attribute)
    return member(resolve(node.value), node.attr)


def check(code: str) -> None:
    """Raise an error if what the page says to type is not there or takes other arguments."""
    if found := re.match(r"peerdma_\w+", code):
        assert re.search(rf"^\w.*\b{found[0]}\(", HEADERS, re.MULTILINE), code
        return
    if found := re.fullmatch(r"peerdma::(\w+)", code):
        text = (INCLUDE / "peerdma.hpp").read_text()
        assert re.search(rf"^class {found[1]} ", text, re.MULTILINE), code
        return
    for node in ast.walk(ast.parse(code, mode="eval")):
        if isinstance(node, ast.Attribute):
            resolve(node)
        elif isinstance(node, ast.Subscript):
            member(resolve(node.value), "__getitem__")
        elif isinstance(node, ast.Await):
            member(resolve(node.value), "__await__")
        elif isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Attribute)
            bound = () if inspect.ismodule(resolve(node.func.value)) else (None,)
            names = {each.arg: None for each in node.keywords if each.arg}
            inspect.signature(resolve(node.func)).bind(*bound, *node.args, **names)


@pytest.mark.parametrize("code", typed(PAGE.read_text()))
def test_what_the_page_says_to_type_is_there(code):
    check(code)


@pytest.mark.parametrize("name", VARIABLES)
def test_every_class_of_the_page_is_in_it(name):
    assert re.search(rf"\b{name}[.\[]", " ".join(typed(PAGE.read_text())))


@pytest.mark.parametrize("name", [n for n in peerdma.__all__ if n.endswith(("Error", "Found"))])
def test_every_error_is_in_the_page(name):
    assert f"`peerdma.{name}`" in PAGE.read_text()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("board.cpoy(a, b)", AttributeError),
        ("board.copy(a)", TypeError),
        ("board.copy(a, b, steam=s)", TypeError),
        ("peerdma.Access.RAED", AttributeError),
        ("frames.lost", AttributeError),
        ("board[0]", AttributeError),
        ("await plan", AttributeError),
        ("Transfr.rate", AttributeError),
        ("peerdma_cpoy", AssertionError),
        ("peerdma::bord", AssertionError),
    ],
)
def test_what_is_not_there_is_found(code, error):
    with pytest.raises(error):
        check(code)
