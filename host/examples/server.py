#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""A server in one thread: sends arrays of bytes through the board, and back to who sent them.

A request is an array's length, 4 bytes with the highest first, and the array. The answer is "+" and
the same, or "-", a length and what went wrong, which ends it. Clients are served at the same time.
"""

import argparse
import asyncio
import signal
import sys
from functools import partial
from pathlib import Path

# That of a checkout, unless the package is installed.
sys.path.append(str(Path(__file__).resolve().parent.parent))

import peerdma
from peerdma.cli.main import guarded
from peerdma.opening import add_board_option

#: Bytes of an array, at most: a client cannot make the server take any amount of memory.
LONGEST = 16 << 20


def main() -> int:
    """Runs the example; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_board_option(parser)
    parser.add_argument("--port", type=int, default=0, help="of 127.0.0.1 (0: any that is free)")
    parser.add_argument("--patience", type=float, default=60, help="seconds for each step (60)")
    return guarded("server.py", lambda: asyncio.run(serve(**vars(parser.parse_args()))))


async def serve(board: str, port: int, patience: float) -> int:
    """Serves clients until SIGINT or SIGTERM."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    with peerdma.open(board) as opened:
        conversation = partial(converse, opened, patience)
        server = await asyncio.start_server(conversation, "127.0.0.1", port)
        print("listening on {}:{}".format(*server.sockets[0].getsockname()), flush=True)
        await stopped.wait()
        server.close()
    return 0


async def converse(board: peerdma.Board, patience: float, reader, writer) -> None:
    """Answers the requests of a client, until it goes or something goes wrong."""
    try:
        kind = b"+"
        while kind == b"+":
            try:
                content = await asyncio.wait_for(answer(board, reader), patience)
            except (ValueError, asyncio.TimeoutError, peerdma.PeerdmaError) as error:
                kind, content = b"-", (str(error) or f"not done in {patience:g} s").encode()
            writer.write(kind + len(content).to_bytes(4, "big") + content)
            await asyncio.wait_for(writer.drain(), patience)
        while await asyncio.wait_for(reader.read(1 << 16), patience):
            pass  # If what it still sends were not read, it would not get the answer.
    except (ConnectionError, EOFError, asyncio.TimeoutError, asyncio.CancelledError):
        pass  # It has gone, or the server ends.
    finally:
        writer.transport.abort()


async def answer(board: peerdma.Board, reader: asyncio.StreamReader) -> bytes:
    """What came back of the array that a client sends."""
    length = int.from_bytes(await reader.readexactly(4), "big")
    if length > LONGEST:
        raise ValueError(f"{length} bytes are too many: send {LONGEST} at most")
    source, target = await reader.readexactly(length), bytearray(length)
    await board.submit(source, target)
    return bytes(target)


if __name__ == "__main__":
    sys.exit(main())
