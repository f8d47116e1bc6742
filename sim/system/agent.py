# SPDX-License-Identifier: BSD-2-Clause
"""Runs in the guest: starts the commands that come from the host, and sends what they say.

Messages are lines of JSON, over a port of the virtio console. From the host: ``{"id": N, "run":
COMMAND}``, ``{"id": N, "kill": true}``, and ``{"log": TEXT}`` for the kernel's log. To it:
``{"hello": RELEASE}``, ``{"id": N, "text": TEXT}`` as it is written, and at a command's end
``{"id": N, "status": STATUS}``.

Standard library only: it runs in whatever Python the guest's root has.
"""

import codecs
import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import threading
import time


def _port(name):
    for path in glob.glob("/sys/class/virtio-ports/*/name"):
        with open(path) as file:
            if file.read().strip() == name:
                return "/dev/" + os.path.basename(os.path.dirname(path))
    raise SystemExit(f"there is no virtio port {name}")


class _Agent:
    def __init__(self, fd):
        self._fd = fd
        self._lock = threading.Lock()
        self._groups = {}

    def serve(self):
        self._send({"hello": os.uname().release})
        rest = b""
        while True:
            data = os.read(self._fd, 1 << 16)
            if not data:  # nobody is there yet
                time.sleep(0.01)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._obey(json.loads(line))

    def _obey(self, message):
        if "log" in message:
            with open("/dev/kmsg", "w") as log:
                log.write(message["log"] + "\n")
            return
        number = message["id"]
        if "run" in message:
            threading.Thread(target=self._run, args=(number, message["run"]), daemon=True).start()
        elif (group := self._groups.get(number)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    def _run(self, number, command):
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._groups[number] = process.pid
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while data := os.read(process.stdout.fileno(), 1 << 16):
            self._send({"id": number, "text": decode(data)})
        status = process.wait()
        del self._groups[number]
        process.stdout.close()
        self._send({"id": number, "status": status})

    def _send(self, message):
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]


if __name__ == "__main__":
    os.chdir("/")
    _Agent(os.open(_port(sys.argv[1]), os.O_RDWR | os.O_CLOEXEC)).serve()
