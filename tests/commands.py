# SPDX-License-Identifier: BSD-2-Clause
"""Finds the commands in documents and messages, and says what keeps one from working as typed."""

import ast
import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Programs that are typed beside the project's own, and what has them on a clean Debian.
PROGRAMS = {
    **dict.fromkeys(("cat", "cd", "chown", "cp", "echo", "tee", "reboot", "."), "every system"),
    **dict.fromkeys(("dmesg", "grep", "sudo", "modprobe", "insmod", "prlimit"), "every system"),
    "apt-get": "every Debian",
    "cc": "gcc, with which the driver is built",
    "driverctl": "driverctl, which docs/vfio.md has installed",
    "fuser": "psmisc",
    "hexdump": "bsdextrautils",
    "reg_rw": "Xilinx' tools, which the guest was given",
    "dpkg-reconfigure": "every Debian",
    "sysctl": "every Debian",
    "man": "every Debian that has manual pages",
    "update-secureboot-policy": "Ubuntu, with Secure Boot",
    "dkms": "dkms, which docs/driver.md has installed",
    "mokutil": "mokutil, which Debian installs with Secure Boot",
    "gtkwave": "gtkwave",
    "lspci": "pciutils",
    "lsusb": "usbutils",
    "openFPGALoader": "openfpgaloader, which docs/picoevb.md has installed",
    "surfer": "surfer-project.org, for who has it",
    "vivado": "AMD, for who has it",
    "compute-sanitizer": "NVIDIA's CUDA toolkit, with which those checks were run",
    "dask": "distributed, of the extra `campaign`",
}
#: Modules of others that are run by `python -m`.
MODULES = ("pip", "pytest", "venv")
#: Modules that a wheel installs under another name, and their own names.
INSTALLED = {"peerdma_sim": "sim.board"}
#: The wheels of `make wheels`, whatever their version.
WHEEL = re.compile(r"wheels/(peerdma-\*|peerdma_sim-\*_(x86_64|aarch64))\.whl")
#: Programs that only a virtual environment has: none is in PATH before one is activated.
OF_AN_ENVIRONMENT = ("dask", "peerdma", "pip", "python")
#: Files beside sources that come from a build.
BUILT = ("driver/peerdma.ko",)
#: Programs of the checkout that take no options, and so have no help: asked for it, they would run.
WITHOUT_OPTIONS = (("tools/measure_kernels.py",), ("-m", "flow.record"))
_ACTIVATE = re.compile(r"\. \S*bin/activate")
_VARIABLE = re.compile(r"[A-Z_]+=")


def blocks(text: str) -> Iterator[str]:
    """The lines of a Markdown text that are to be typed: those of its code blocks.

    A block of Python, of text or with a picture is none; in one of a console `$` begins a command.
    """
    for language, body in re.findall(r"```([\w+]*)\n(.*?)```", text, flags=re.DOTALL):
        lines = body.splitlines()
        if language == "console":
            yield from (line[2:] for line in lines if line.startswith("$ "))
        elif not language and not re.search("[─│]", body):
            yield from filter(None, lines)


def quoted(text: str, pattern: str = r"(?<!`)(`+)([^`]+)\1(?!`)") -> Iterator[str]:
    """What is in backquotes and begins as a command does: by a program, and more behind it."""
    # X is an interpreter that is put in at run time.
    known = {*PROGRAMS, *OF_AN_ENVIRONMENT, "X", "make", "python3", "pytest"}
    for _, found in re.findall(pattern, re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        line = " ".join(found.replace("\\|", "|").split())
        words = [word for word in line.split(" ") if not _VARIABLE.match(word)]
        if len(words) > 1 and (words[0] in known or "/bin/" in words[0]):
            yield line


def messages(path: Path) -> Iterator[str]:
    """The string literals of a Python module, with X for what is put into them at run time."""
    tree = ast.parse(path.read_text())
    inside = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(value) for value in node.values}
            parts = [v.value if isinstance(v, ast.Constant) else "X" for v in node.values]
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and id(node) not in inside:
            yield str(node.value)


def wrong_in_document(text: str) -> Iterator[str]:
    """What is wrong with the commands of a Markdown text, a line each."""
    active = False
    for line in blocks(text):
        active = active or bool(_ACTIVATE.match(line))
        yield from (f"{line}: {reason}" for reason in wrong(line, active))
    for line in quoted(text):
        # A name in a sentence is not typed there; `python` and `pip` are no names of ours.
        named = line.startswith("peerdma ")
        yield from (f"{line}: {reason}" for reason in wrong(line, active or named))


def wrong_in_message(text: str) -> Iterator[str]:
    """What is wrong with the commands in a message or docstring, a line each."""
    for line in quoted(text):
        yield from (f"{line}: {reason}" for reason in wrong(line, line.startswith("peerdma ")))
    for bare in re.findall(r"(?<![\w./'-])(?:python (?:-m|[\w/]+\.py)|pip install)[^`]*", text):
        if bare not in "".join(quoted(text)):
            yield f"{bare.splitlines()[0]}: a command without an environment that has it"


def wrong(line: str, active: bool) -> Iterator[str]:
    """What keeps a line from working as typed; `active`: in an active virtual environment."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    command: list[str] = []
    try:
        words = [*lexer, ";"]
    except ValueError as error:
        words = [";"]
        yield str(error)
    for word in words:
        if not set(word) <= set("|&;"):
            command.append(word)
        elif command:
            yield from _wrong_command(command, active)
            command = []


def _wrong_command(words: list[str], active: bool) -> Iterator[str]:
    for sign in ("<", ">"):
        words = words[: words.index(sign)] if sign in words else words
    prefix = [*(word for word in words if _VARIABLE.match(word)), "sudo"]
    words = [word for word in words if word not in prefix]
    program, arguments = words[0], words[1:]
    name = Path(program).name if "/bin/" in program else program
    if name == program and name in OF_AN_ENVIRONMENT and not active:
        yield f"a clean Debian has no {name}: name the environment's, or activate one before"
    if name == "make":
        yield from _wrong_make(arguments, [v for v in prefix if v != "sudo"])
    elif name == "pip":
        yield from _wrong_pip(arguments)
    elif name == "peerdma":
        yield from _wrong_options(("-m", "peerdma"), arguments)
    elif re.fullmatch(r"python3?|X", name):
        yield from _wrong_python(arguments)
    elif (ROOT / program).is_file():
        if not os.access(ROOT / program, os.X_OK):
            yield f"{program} is no program: name its interpreter"
        if program.endswith(".py"):
            yield from _wrong_options((program,), arguments)
    elif name not in PROGRAMS:
        yield f"{program} is neither a file nor in tests/commands.py, with where it comes from"
    else:
        yield from _wrong_paths(arguments)
        other = [word for word in arguments if "/bin/" in word]
        if program == "compute-sanitizer" and other:
            yield from _wrong_command(arguments[arguments.index(other[0]) :], active)


def _wrong_make(arguments: list[str], variables: list[str]) -> Iterator[str]:
    if "-C" in arguments:
        at = arguments.index("-C")
        if not (ROOT / arguments[at + 1] / "Makefile").exists():
            yield f"no Makefile in {arguments[at + 1]}"
        return
    text = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z-]+):.*##", text, flags=re.MULTILINE)
    for word in arguments:
        if _VARIABLE.match(word):
            variables = [*variables, word]
        elif word != "-n" and word not in targets:
            yield f"no target {word} in the Makefile"
    for variable in variables:
        name, _, value = variable.partition("=")
        # SEED also reaches tests by the environment.
        if f"$({name})" not in text and f"{name}=" not in text:
            yield f"the Makefile uses no {name}"
        if name == "DEMO_ARGS":
            yield from _wrong_options(("host/demo.py",), shlex.split(value))


def _wrong_pip(arguments: list[str]) -> Iterator[str]:
    known = (ROOT / "pyproject.toml").read_text()
    # Needed to build without an index: the build's back end, and what its editable installs need.
    wanted = ("hatchling", "editables")
    folder = False
    for word in arguments[1:]:
        extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", word)
        if folder or word.startswith("-") or word == "…":
            folder = word == "-w"
        elif extras:
            for extra in (extras[1] or "").split(","):
                if extra and extra != "X" and f"\n{extra} = [" not in known:
                    yield f"pyproject.toml has no extra {extra}"
        elif word not in wanted and not WHEEL.fullmatch(word):
            yield f"{word} is not to be had from a registry, or not what is meant"


def _wrong_python(arguments: list[str]) -> Iterator[str]:
    if arguments[:1] == ["-m"]:
        module, rest = INSTALLED.get(arguments[1], arguments[1]), arguments[2:]
        path = Path(*module.split("."))
        if module == "pip":
            yield from _wrong_pip(rest)
        elif module in MODULES:
            yield from _wrong_paths(rest)
        elif any(
            (ROOT / base / path).with_suffix(".py").exists()
            or (ROOT / base / path / "__main__.py").exists()
            for base in (".", "host")
        ):
            yield from _wrong_options(("-m", module), rest)
        else:
            yield f"no module {module}"
    elif arguments and arguments[0].startswith("{"):
        return  # a name that str.format puts there
    elif arguments and arguments[0].startswith("mine/"):
        return  # what a reader of docs/tutorial.md has written
    elif arguments and not (ROOT / arguments[0]).is_file():
        yield f"no file {arguments[0]}"
    elif arguments:
        yield from _wrong_options((arguments[0],), arguments[1:])


def _wrong_options(program: tuple[str, ...], arguments: list[str]) -> Iterator[str]:
    """Options and subcommands that the program's own help does not have."""
    text = help_of(program)
    choices = re.search(r"\{([\w,-]+)\} \.\.\.", text)
    first = next((word for word in arguments if not word.startswith("-")), None)
    if choices and first:
        if first not in choices[1].split(","):
            yield f"{first} is none of {choices[1]}"
            return
        text += help_of((*program, first))
    for word in arguments:
        option = word.partition("=")[0]
        if option.startswith("-") and not re.search(rf"(?<![\w-]){re.escape(option)}\b", text):
            yield f"{' '.join(program)} has no option {option}"
    yield from _wrong_paths(arguments)


def _wrong_paths(arguments: list[str]) -> Iterator[str]:
    """Files of the checkout that it does not have."""
    for word in arguments:
        ours = re.match(r"(?:hw|host|sim|driver|tools|tests|docs)/", word)
        if ours and word not in BUILT and not (ROOT / word).exists():
            yield f"no {word}"


@functools.cache
def help_of(program: tuple[str, ...]) -> str:
    """What a program of the checkout says to --help; `program` is what follows `python`."""
    if program in WITHOUT_OPTIONS:
        return ""
    paths = os.pathsep.join((str(ROOT), str(ROOT / "host")))
    done = subprocess.run(
        [sys.executable, *program, "--help"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"{program}: {done.stderr}"
    # A program that does not parse its arguments has done its work instead.
    assert "usage: " in done.stdout, f"{program} has no help"
    return done.stdout
