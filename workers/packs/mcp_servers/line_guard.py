"""Stands between an MCP server and the worker, so that no line of the server's output can grow without end.

Run as a program by a bare interpreter: `line_guard.py MAX_BYTES COMMAND ARGUMENTS…`. It passes the server's output on,
line by line, and ends the server when a line is longer. Input and errors go past it. Needs nothing but the standard
library.
"""

from __future__ import annotations

import subprocess
import sys
from typing import IO, cast

PIECE_BYTES = 65_536


def guarded(command: str, arguments: tuple[str, ...], max_bytes: int) -> tuple[str, list[str]]:
    """The command line that runs a server behind this guard."""
    return sys.executable, ["-I", "-S", __file__, str(max_bytes), command, *arguments]


def pass_on(max_bytes: int, command: list[str]) -> int:
    """Run the command until its output ends; its exit status, or 1 after a line that was too long."""
    try:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)  # noqa: S603  # the operator's own command
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")
    output = cast("IO[bytes]", server.stdout)
    length = 0
    while piece := output.read(PIECE_BYTES):
        *ended, last = piece.split(b"\n")
        longest = max([length + len(ended[0]), *map(len, ended[1:])], default=0) if ended else 0
        length = len(last) if ended else length + len(last)
        if max(longest, length) > max_bytes:
            server.kill()
            server.wait()
            sys.exit(f"{command[0]} wrote a line of more than {max_bytes} bytes, and was ended")
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    return server.wait()


if __name__ == "__main__":
    sys.exit(pass_on(int(sys.argv[1]), sys.argv[2:]))
