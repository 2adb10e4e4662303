"""A provider in a process of its own that streams one canned reply, again and again.

`python -m benchmarks.canned_provider TOKENS PAUSE_S` prints its port. What it costs is nobody's figure.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
TOKEN = "token "


def events(tokens: int) -> list[bytes]:
    """A reply of so many tokens, one event for each, and its end; as chunks of HTTP."""
    said: list[dict[str, Any]] = [
        {"index": 0, "delta": {"content": TOKEN}, "finish_reason": None} for _ in range(tokens)
    ]
    said.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    completions = [
        {"id": "canned", "object": "chat.completion.chunk", "created": 0, "model": "canned", "choices": [choice]}
        for choice in said
    ]
    lines = [b"data: %b\n\n" % text for text in (*map(orjson.dumps, completions), b"[DONE]")]
    return [b"%x\r\n%b\r\n" % (len(line), line) for line in lines] + [b"0\r\n\r\n"]


async def serve(tokens: int, pause_s: float) -> None:
    """Answer every request with the canned reply, an event each `pause_s`; without a pause all of it at once."""
    canned = events(tokens)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await until_body(reader):
            await reader.readexactly(head)
            writer.write(HEAD)
            if not pause_s:
                writer.write(b"".join(canned))
                continue
            for event in canned:
                writer.write(event)
                await asyncio.sleep(pause_s)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def until_body(reader: asyncio.StreamReader) -> int:
    """Read a request's head; the length of its body, 0 when there is no further request."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0
    lengths = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return int(lengths[0])


@contextmanager
def provider(tokens: int, *, pause_s: float) -> Iterator[str]:
    """Its base URL, while the block runs."""
    command = (sys.executable, "-m", "benchmarks.canned_provider", str(tokens), str(pause_s))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), float(sys.argv[2])))
