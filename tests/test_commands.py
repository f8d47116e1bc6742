# SPDX-License-Identifier: BSD-2-Clause
"""Every command in a document, message or `--help` works when it is typed."""

import re

import pytest

from peerdma.regs import EXTENSION_VERSION
from tests.commands import ROOT, help_of, messages, wrong_in_document, wrong_in_message

DOCS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
CODE = [path for part in ("host", "hw", "sim", "tools") for path in (ROOT / part).rglob("*.py")]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_commands_in_documents(path):
    assert not list(wrong_in_document(path.read_text()))


def test_commands_in_messages_and_docstrings():
    found = [
        f"{path.relative_to(ROOT)}: {each}"
        for path in CODE
        for text in messages(path)
        for each in wrong_in_message(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("python -m hw.build core", "a clean Debian has no python"),
        ("python tools/measure_kernels.py", "a clean Debian has no python"),
        ("pip install .", "a clean Debian has no pip"),
        (". ~/e/bin/activate\npip install 'peerdma[cuda13]'", "not to be had from a registry"),
        (". ~/e/bin/activate\npip install '.[cuda14]'", "no extra cuda14"),
        (".venv/bin/python -m sim.bord", "no module sim.bord"),
        (".venv/bin/python -m sim.board --sockets S", "no option --sockets"),
        (".venv/bin/python -m sim.campaign replai 3", "replai is none of"),
        (".venv/bin/python -m pytest tests/hw/test_gone.py", "no tests/hw/test_gone.py"),
        (". ~/e/bin/activate\npeerdma flush image.bit", "flush is none of"),
        (". ~/e/bin/activate\npeerdma flash --forever image.bit", "no option --forever"),
        ("peerdma doctor", "a clean Debian has no peerdma"),
        ("python3 host/demos.py", "no file host/demos.py"),
        ("make demos", "no target demos"),
        ("make test SEAT=3", "uses no SEAT"),
        ('make demo DEMO_ARGS="--sise 3x3"', "no option --sise"),
        ("make -C drivers", "no Makefile in drivers"),
        ("sudo driver/instal.sh", "driver/instal.sh is neither"),
        ("tools/setup_env.py check", "is no program"),
        ("make setup && frobnicate", "frobnicate is neither"),
        ("make demo  copies an array", "no target copies"),
        ("make demo DEMO_ARGS='--size", "No closing quotation"),
    ],
)
def test_a_command_that_does_not_work_is_found(command, reason):
    assert reason in next(wrong_in_document(f"Words.\n\n```\n{command}\n```\n"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Start one with `python -m sim.board --socket X`", "a clean Debian has no python"),
        ("is missing: pip install 'peerdma[cuda13]'", "without an environment"),
        ("usage: python -m sim.board", "without an environment"),
        ("then `make all of it`", "no target all"),
        ("``make demos now``", "no target demos"),
    ],
)
def test_a_message_that_names_such_a_command_is_found(text, reason):
    assert any(reason in each for each in wrong_in_message(text))
    if "`" in text:
        assert any(reason in each for each in wrong_in_document(text))


@pytest.mark.parametrize(
    "text",
    [
        "```\n. ~/e/bin/activate\npip install '.[cuda13]'   # or another\npeerdma info\n```",
        "```python\npython -m gone\n```\n```text\nmake gone\n```",
        '`peerdma doctor` and `make demo DEMO_ARGS="--size 64x64"`, as `make` says',
        "`SEED=7 make test`, `dmesg \\| grep peerdma`, `.venv/bin/python -m sim.benches --waves`",
    ],
)
def test_commands_that_work_are_left_alone(text):
    assert not list(wrong_in_document(text))


BOARD_COMMANDS = ("info", "leds", "doctor", "demo", "perf")
PROGRAMS = [("host/demo.py",), *(("-m", "peerdma", name) for name in BOARD_COMMANDS)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program[-1])
def test_help_of_board_says_what_opening_it_does(program):
    text = " ".join(help_of(program).split())
    # The doctor is for hardware: it simulates only where it is told to.
    otherwise = "" if "doctor" in program else ", or sim where there is none"
    assert f"auto is the first that the kernel driver has{otherwise}; sim starts the" in text
    assert "PATH is a device node, or the socket of a simulated board that runs" in text


def register_maps(changelog: str) -> list[str]:
    """The version of the register map that each entry of a changelog names."""
    entries = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    return [re.search(r"\n\nRegister map ([\d.]+)\.\n", entry)[1] for entry in entries]


def test_the_changelog_names_the_register_map():
    major, minor = EXTENSION_VERSION
    assert register_maps((ROOT / "CHANGELOG.md").read_text())[0] == f"{major}.{minor}"
