# SPDX-License-Identifier: BSD-2-Clause
"""Runs in the guest: starts the commands that the host sends, and sends back their output.

Messages are lines of JSON, over a port of the virtio console. From the host:

- ``{"environment": {NAME: VALUE}}`` sets variables for all later commands,
- ``{"prepare": [MODULE, ...]}`` imports modules for all later Python code,
- ``{"id": N, "run": COMMAND}`` runs a shell command,
- ``{"id": N, "python": CODE}`` runs Python code in a fork of this process that has imported numpy
  and peerdma, because importing them takes seconds on an emulated processor,
- ``{"id": N, "kill": true}`` kills that command with its process group,
- ``{"log": TEXT}`` writes to the kernel's log.

To the host: ``{"hello": RELEASE}`` at the start, ``{"id": N, "text": TEXT}`` for output, and
``{"id": N, "status": STATUS}`` at a command's end.

Imports only the standard library until Python code is sent, and starts no threads, so that it can
fork.
"""

import codecs
import contextlib
import glob
import importlib
import json
import os
import selectors
import signal
import sys
import time
import traceback

#: Modules to import before forking: those of a program that opens a board and a GPU.
_PREPARED = (
    "numpy",
    "peerdma",
    "peerdma.cli.main",
    "peerdma.cuda.gpu",
    "peerdma.emulated.simulated_gpu",
    "peerdma.kernel.backend",
)


def _port(name):
    for path in glob.glob("/sys/class/virtio-ports/*/name"):
        with open(path) as file:
            if file.read().strip() == name:
                return "/dev/" + os.path.basename(os.path.dirname(path))
    raise SystemExit(f"there is no virtio port {name}")


class _Command:
    """A process, the pipe with its output, and the decoder for that."""

    def __init__(self, number, action):
        self.number = number
        self.decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self.output, theirs = os.pipe()
        self.process = os.fork()
        if not self.process:
            _become(theirs, action)
        os.close(theirs)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)


def _become(output, action):
    """Runs `action` in the child process; never returns."""
    status = 1
    try:
        os.setsid()
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((null, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.closerange(3, 1 << 16)
        action()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if status and not isinstance(ended.code, int):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


class _Agent:
    def __init__(self, port):
        self._port = port
        self._commands = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(port, selectors.EVENT_READ)
        self._ready = False

    def serve(self):
        self._send({"hello": os.uname().release})
        rest = b""
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._forward(key.data)
                    continue
                data = os.read(self._port, 1 << 16)
                if not data:  # the host is not connected
                    time.sleep(0.01)
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._obey(json.loads(line))

    def _obey(self, message):
        number = message.get("id")
        if "environment" in message:
            os.environ.update(message["environment"])
        elif "prepare" in message:
            self._prepare(message["prepare"])
        elif "log" in message:
            with open("/dev/kmsg", "w") as log:
                log.write(message["log"] + "\n")
        elif "run" in message:
            words = ["/bin/sh", "-c", message["run"]]
            self._start(number, lambda: os.execv(words[0], words))
        elif "python" in message:
            self._prepare()
            self._start(number, lambda: _execute(message["python"]))
        elif number in self._commands:
            self._commands[number].kill()

    def _prepare(self, further=()):
        if not self._ready:
            self._ready = True
            sys.path[:0] = os.environ["PYTHONPATH"].split(":")
        # An import that fails here fails again in the fork, which reports it.
        with contextlib.suppress(Exception):
            for name in (*_PREPARED, *further):
                importlib.import_module(name)

    def _start(self, number, action):
        sys.stdout.flush()
        command = _Command(number, action)
        self._commands[number] = command
        self._selector.register(command.output, selectors.EVENT_READ, command)

    def _forward(self, command):
        data = os.read(command.output, 1 << 16)
        if data:
            self._send({"id": command.number, "text": command.decode(data)})
            return
        # End of file: all processes that had the pipe have closed it.
        self._selector.unregister(command.output)
        os.close(command.output)
        del self._commands[command.number]
        _, status = os.waitpid(command.process, 0)
        self._send({"id": command.number, "status": os.waitstatus_to_exitcode(status)})

    def _send(self, message):
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._port, data) :]


def _execute(code):
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    exec(compile(code, "<guest>", "exec"), module.__dict__)


if __name__ == "__main__":
    os.chdir("/")
    _Agent(os.open(_port(sys.argv[1]), os.O_RDWR | os.O_CLOEXEC)).serve()
