"""Tools that do what tools do at their best and worst. Served by real workers in tests of the fleet."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from toolfleet import CallHistory, Context, Returned, ToolError, current_context, tool


class Point(BaseModel):
    x: int
    y: int


@tool(read_only=True)
async def echo(value: Any) -> Any:
    """Give back what came."""
    return value


@tool(read_only=True)
def blocking_echo(value: Any) -> Any:
    """Give back what came, from a plain function."""
    return value


@tool
async def add(a: int, b: int) -> int:
    """Add, once."""
    return a + b


@tool(read_only=True)
async def knock(word: SecretStr, times: int = 1) -> str:
    """Say how long a secret word is."""
    return f"{len(word.get_secret_value())} letters, {times} times"


@tool(read_only=True)
async def update(state: dict[str, Any], attributes: dict[str, Any] | None = None, seconds: float = 0.0) -> Returned:
    """Change what the run's tools share."""
    await asyncio.sleep(seconds)
    return Returned(content="updated", state=state, attributes=attributes or {})


@tool(read_only=True)
async def my_callback(ctx: Context) -> str:
    """Where another system may report to."""
    return ctx.callback_url


@tool(read_only=True)
async def shared(ctx: Context) -> dict[str, Any]:
    """What the run's tools share."""
    return dict(ctx.state)


@tool(read_only=True, return_direct=True)
async def direct(text: str) -> str:
    """Give the user a text, without another word of the model."""
    if not text:
        raise ToolError("nothing to say")
    return text


@tool(read_only=True, tags=["always"])
async def introduce() -> str:
    """Say what this fleet is for. In sight however many tools there are."""
    return "a fleet for tests"


@tool(read_only=True)
async def mirrored(point: Point) -> Point:
    """A model in, a model out."""
    return Point(x=point.y, y=point.x)


@tool(read_only=True)
async def nothing() -> None:
    """Return nothing."""


@tool(read_only=True)
async def price() -> Decimal:
    """A type that only pydantic can write down."""
    return Decimal("9.90")


@tool(read_only=True)
async def unprintable() -> Any:
    """Return what has no JSON form."""
    return object()


@tool(read_only=True)
async def wordy(characters: int) -> str:
    """Return a long text."""
    return "☃" * characters


@tool(read_only=True)
async def fail(kind: str, text: str = "") -> None:
    """Raise."""
    raise {
        "tool": ToolError,
        "value": ValueError,
        "exit": SystemExit,
        "memory": MemoryError,
        "interrupt": KeyboardInterrupt,
        "cancel": asyncio.CancelledError,
    }[kind](text)


@tool(read_only=True)
async def wait(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return f"waited {seconds}"


@tool(read_only=True, timeout_s=0.3)
async def hurried() -> None:
    """Take longer than allowed."""
    await asyncio.sleep(60)


@tool(read_only=True)
async def who_am_i(ctx: Context) -> dict[str, Any]:
    """What the call knows about itself."""
    assert current_context() is ctx
    return {"call_id": ctx.call_id, "attempt": ctx.attempt, "context": dict(ctx.context), "pid": os.getpid()}


@tool(read_only=True)
def who_am_i_blocking(ctx: Context) -> dict[str, Any]:
    """The same from a plain function."""
    assert current_context() is ctx
    return {"call_id": ctx.call_id, "attempt": ctx.attempt, "context": dict(ctx.context), "pid": os.getpid()}


@tool
async def write_line(path: str, seconds: float = 0.0) -> str:
    """An effect that must not happen twice: append a line, then take a while."""
    return await _append(path, seconds)


@tool(idempotent=True)
async def write_line_again(path: str, seconds: float = 0.0) -> str:
    """An effect that may happen twice."""
    return await _append(path, seconds)


async def _append(path: str, seconds: float) -> str:
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()}\n")
    await asyncio.sleep(seconds)
    return "written"


@tool(read_only=True)
def die(path: str, times: int) -> str:
    """End this process without a word, the first few times."""
    return _die(path, times)


@tool
def die_once(path: str, times: int) -> str:
    """The same, as a tool whose effect must not be repeated."""
    return _die(path, times)


def _die(path: str, times: int) -> str:
    file = Path(path)
    died = len(file.read_text()) if file.exists() else 0
    if died < times:
        file.write_text("x" * (died + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return f"survived attempt {died + 1}"


@tool(read_only=True, long_running=True)
async def long_job(steps: int, step_seconds: float = 0.05) -> dict[str, int]:
    """Work for a while and say how far it has come."""
    for step in range(steps):
        current_context().progress((step + 1) / steps, f"step {step + 1}")
        await asyncio.sleep(step_seconds)
    return {"steps": steps}


@tool(read_only=True)
def spin(seconds: float) -> str:
    """Keep the processor busy."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return "dizzy"


# --- directed from a stage (see stages.py) ---------------------------------------------------------------------------


@tool(read_only=True)
async def play(stage: str) -> Any:
    """Do as the stage says; may be repeated."""
    return await _play(stage)


@tool
async def play_once(stage: str) -> Any:
    """Do as the stage says; must not be repeated."""
    return await _play(stage)


@tool(read_only=True, queue="cpu")
def play_in_process(stage: str) -> Any:
    """The same, from a plain function."""
    return _play_blocking(stage)


@tool(queue="cpu")
def play_in_process_once(stage: str) -> Any:
    """The same, from a plain function that must not be repeated."""
    return _play_blocking(stage)


@tool(read_only=True, queue="io")
def play_in_thread(stage: str) -> Any:
    """The same, on a thread beside an event loop."""
    return _play_blocking(stage)


@tool(read_only=True, queue="io")
def play_attentively(stage: str) -> None:
    """Work on a thread, and look between two steps whether anybody still waits."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(stage)
        connection.sendall(_introduction())
        while not current_context().cancelled:
            time.sleep(0.01)
        connection.sendall(b"cancelled")


@tool(read_only=True, queue="cpu")
def play_with_a_child(stage: str) -> Any:
    """Start a process, and say which."""
    child = subprocess.Popen(["sleep", "600"])
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(stage)
        connection.sendall(json.dumps({**json.loads(_introduction()), "child": child.pid}).encode() + b"\n")
        child.wait()


@tool(read_only=True, queue="cpu", timeout_s=1)
def outlived_by_a_child(path: str) -> None:
    """Start a process, and take too long."""
    child = subprocess.Popen(["sleep", "600"])
    Path(path).write_text(str(child.pid))
    child.wait()


@tool(read_only=True, queue="cpu")
def play_stubbornly(stage: str) -> Any:
    """The same, and whatever interrupts it is ignored."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(stage)
        connection.sendall(_introduction())
        while True:
            try:
                time.sleep(60)
            except BaseException as interruption:  # noqa: BLE001  # badly behaved on purpose
                connection.sendall(f"ignored {type(interruption).__name__}".encode())


@tool(read_only=True, queue="cpu", timeout_s=0.5)
def play_too_long(stage: str) -> Any:
    """The same, from a plain function with a limit that only a killed process keeps."""
    return _play_blocking(stage)


@tool(read_only=True, long_running=True)
async def play_long(stage: str) -> Any:
    """The same, for as long as it takes."""
    return await _play(stage)


@tool(read_only=True, long_running=True)
def play_long_in_process(stage: str) -> Any:
    """The same, from a plain function that blocks its process."""
    return _play_blocking(stage)


async def _play(stage: str) -> Any:
    reader, writer = await asyncio.open_unix_connection(stage)
    try:
        writer.write(_introduction())
        while line := await reader.readline():
            order = json.loads(line)
            if "return" in order:
                writer.write(b"returned")
                return order["return"]
            if "fail" in order:
                raise ToolError(order["fail"])
            current_context().progress(*order["progress"])
        raise ConnectionError("the stage is gone")
    except asyncio.CancelledError:
        writer.write(b"cancelled")
        raise
    finally:
        writer.close()


def _play_blocking(stage: str) -> Any:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(stage)
        connection.sendall(_introduction())
        with connection.makefile("rb") as orders:
            for line in orders:
                order = json.loads(line)
                if "return" in order:
                    connection.sendall(b"returned")
                    return order["return"]
                current_context().progress(*order["progress"])
    raise ConnectionError("the stage is gone")


def _introduction() -> bytes:
    context = current_context()
    seen = {"pid": os.getpid(), "call_id": context.call_id, "attempt": context.attempt}
    return json.dumps(seen).encode() + b"\n"


@tool(queue="cpu")
def note_and_leave(file: str, mark: str) -> None:
    """Have an effect, and end the process at once."""
    with Path(file).open("a") as noted:
        noted.write(f"{mark}\n")
    os._exit(1)


@tool(read_only=True)
async def overhear(history: CallHistory) -> list[str]:
    """What was said so far."""
    return [f"{message.role}: {message.content}" for message in history]
