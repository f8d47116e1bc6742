# SPDX-License-Identifier: BSD-2-Clause
"""A headless Chromium from Debian's packages, driven by the DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from select import select
from typing import Any

from tools.debian_tree import Tree, obtain

__all__ = ["READY", "Browser"]

#: True in the page of a trace once it is drawn.
READY = "typeof trace === 'object' && document.getElementById('count').value !== ''"

#: Debian's current stable release, with fonts for text.
_TREE = Tree("trixie", ("chromium-headless-shell", "fonts-dejavu-core"))
_FOLDER = "usr/lib/chromium"
_PROGRAM = ".chromium-headless-shell.elf"
#: Seconds that any one answer may take, on a busy machine.
_ANSWER = 120.0
#: File descriptors that the protocol uses: requests to the browser, and its answers.
_REQUESTS, _ANSWERS = 3, 4


def beside_its_data(draft: Path, _: Path) -> None:
    """Puts the dynamic loader where Chromium looks for its data: beside the running program."""
    loader = next(draft.glob("usr/lib/*/ld-linux-*.so.*"))
    shutil.copy(loader, draft / _FOLDER / "loader")


class Browser:
    """One page in a browser; a context manager.

    Attributes
    ----------
    asked : list of str
        Addresses that the page has asked for.
    said : list of str
        Errors of its program.
    """

    def __init__(self, width: int = 1280, height: int = 800):
        root = obtain(_TREE, beside_its_data)
        libraries = [path.parent for path in root.glob("usr/lib/*/libnss3.so")]
        libraries += [folder / "pulseaudio" for folder in libraries]
        libraries += list(root.glob("lib/*-linux-gnu"))
        self.asked: list[str] = []
        self.said: list[str] = []
        self._number = 0
        self._buffer = b""
        self._undo = ExitStack()
        home = self._undo.enter_context(tempfile.TemporaryDirectory(prefix="peerdma-browser-"))
        command = [
            *(root / _FOLDER / "loader", "--library-path", ":".join(map(str, libraries))),
            root / _FOLDER / _PROGRAM,
            # Processes of its own would be started as the loader without a program.
            *("--single-process", "--no-zygote", "--no-sandbox", "--disable-gpu"),
            *("--remote-debugging-pipe", f"--user-data-dir={home}", "--hide-scrollbars"),
            *(f"--window-size={width},{height}", "about:blank"),
        ]
        fonts = Path(home, "fonts.conf")
        fonts.write_text(
            f"<fontconfig><dir>{root}/usr/share/fonts</dir><cachedir>{home}</cachedir></fontconfig>"
        )
        requests, self._to = os.pipe()
        self._from, answers = os.pipe()
        self._undo.callback(os.close, self._to)
        self._undo.callback(os.close, self._from)
        self._log = Path(home) / "log"
        try:
            # The shell puts the pipes where the browser looks for them. Others than bash may not
            # know numbers above 9.
            log = self._undo.enter_context(self._log.open("wb"))
            self._process = subprocess.Popen(
                ["bash", "-c", f'exec "$@" {_REQUESTS}<&{requests} {_ANSWERS}>&{answers}', "bash"]
                + [str(word) for word in command],
                pass_fds=(requests, answers),
                env=os.environ | {"HOME": home, "FONTCONFIG_FILE": str(fonts)},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        finally:
            os.close(requests)
            os.close(answers)
        self._session = ""

    def __enter__(self) -> Browser:
        try:
            self._attach()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _attach(self) -> None:
        (target,) = [
            each for each in self.ask("Target.getTargets")["targetInfos"] if each["type"] == "page"
        ]
        attached = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.ask(f"{domain}.enable")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        self._undo.close()

    def open(self, address: str) -> None:
        """Goes to an address."""
        self.ask("Page.navigate", url=address)

    def evaluate(self, expression: str):
        """The value of an expression in the page; waits for it if it is a promise."""
        answer = self.ask(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + _ANSWER
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        """Gives the page a size until `restore`; waits until the page knows it and has answered.

        A page hears of a size with a frame, after `innerWidth` has told it.
        """
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self.wait_for(f"innerWidth === {width}")
        self.frame()

    def restore(self) -> None:
        """Gives the page the size again that the browser was started with."""
        self.ask("Emulation.clearDeviceMetricsOverride")

    def frame(self) -> None:
        """Waits for the end of a frame that begins from now on, its observers included."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    def screenshot(self) -> bytes:
        """What the page looks like, as PNG."""
        return base64.b64decode(self.ask("Page.captureScreenshot")["data"])

    def ask(self, method: str, **parameters: Any) -> Any:
        """The answer to a request of the protocol."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        request |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(request).encode() + b"\0")
        end = time.monotonic() + _ANSWER
        while True:
            message = json.loads(self._message(end))
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                return message["result"]
            if message.get("method") == "Network.requestWillBeSent":
                self.asked.append(message["params"]["request"]["url"])
            if message.get("method") == "Runtime.exceptionThrown":
                self.said.append(json.dumps(message["params"]["exceptionDetails"]))

    def _message(self, end: float) -> bytes:
        while b"\0" not in self._buffer:
            ready, _, _ = select([self._from], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._from, 1 << 20) if ready else b""
            assert data, f"the browser does not answer: {self._log.read_text()[-2000:]}"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return message
