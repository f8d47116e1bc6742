#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A server in one thread: sends what clients send through the board, and back to them.

A request is its length, 4 bytes with the highest first, and so many bytes; so is the answer.
Clients are served at once: while the board works for one of them, others are read and answered.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import numpy as np

# That of a checkout, unless the package is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import peerdma
from peerdma.cli.main import guarded
from peerdma.opening import add_board_option

#: Longest request, in bytes: a client must not make the server take any amount of memory.
LONGEST = 16 << 20


def main() -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_board_option(parser)
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1 (0: any that is free)")
    arguments = parser.parse_args()

    def run() -> int:
        with peerdma.open(arguments.board) as board:
            asyncio.run(serve(board, arguments.port))
        return 0

    return guarded("server.py", run)


async def serve(board: peerdma.Board, port: int) -> None:
    """Serves clients until SIGINT or SIGTERM."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = await asyncio.start_server(
        lambda reader, writer: converse(board, reader, writer), "127.0.0.1", port
    )
    host, port = server.sockets[0].getsockname()
    print(f"listening on {host}:{port}", flush=True)
    await stopped.wait()
    # What is in progress is cancelled with its task, when the loop ends.
    server.close()


async def converse(
    board: peerdma.Board, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answers the requests of a client, until it goes."""
    # Thus end the conversations of clients who go.
    gone = contextlib.suppress(ConnectionError, asyncio.IncompleteReadError)
    with contextlib.closing(writer), gone:
        while True:
            header = await reader.readexactly(4)
            length = int.from_bytes(header, "big")
            if length > LONGEST:
                print(f"a request of {length} bytes is refused", file=sys.stderr)
                return
            source = np.frombuffer(await reader.readexactly(length), np.uint8)
            target = np.empty(length, np.uint8)
            try:
                await board.submit(source, target)
            except peerdma.PeerdmaError as error:
                print(f"a request failed: {error}", file=sys.stderr)
                return
            writer.write(header + target.tobytes())
            await writer.drain()


if __name__ == "__main__":
    sys.exit(main())
