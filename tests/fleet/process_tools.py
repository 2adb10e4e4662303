"""Tools of the pool of processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from celery.signals import worker_process_init

from toolfleet import Context, tool


@worker_process_init.connect
def begin(**_: Any) -> None:
    if "NO_PROCESS_BEGINS" in os.environ:
        os._exit(1)  # Celery lets an exception pass


def square(number: int) -> int:
    return number * number


def wait_until_let(path: str) -> None:
    Path(f"{path}.begun").touch()
    while not Path(f"{path}.let").exists():
        time.sleep(0.01)


def noted_when_let(path: str, mark: str) -> str:
    wait_until_let(path)
    with Path(path).open("a") as noted:
        noted.write(f"{mark}\n")
    return mark


def sleep_in_a_child(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


@tool(read_only=True, queue="cpu")
def squares(numbers: list[int], method: str) -> list[int]:
    """Square numbers in processes of multiprocessing."""
    with multiprocessing.get_context(method).Pool(2) as pool:
        return pool.map(square, numbers)


@tool(read_only=True, queue="cpu")
def squares_of_futures(numbers: list[int]) -> list[int]:
    """Square numbers in processes of concurrent.futures."""
    with ProcessPoolExecutor(2) as pool:
        return list(pool.map(square, numbers))


@tool(queue="press", blocking="process", timeout_s=1)
def print_slowly(path: str) -> None:
    """Print, later than may be waited for."""
    Path(f"{path}.pid").write_text(str(os.getpid()))
    time.sleep(3)
    Path(path).write_text("printed")


@tool(queue="press", blocking="process")
def print_when_let(path: str) -> str:
    """Print once there is a file, and say that it has begun."""
    wait_until_let(path)
    return "printed"


@tool(queue="desk", timeout_s=600)
def stamp(path: str) -> None:
    """Stamp a paper, on whatever its queue's workers run it."""
    Path(path).write_text("stamped")


@tool(read_only=True, queue="cpu", timeout_s=2)
def sleep_too_long_in_a_process(path: str) -> None:
    """Wait for a process that takes too long."""
    child = multiprocessing.Process(target=sleep_in_a_child, args=(path,))
    child.start()
    child.join()


@tool(read_only=True, queue="press", blocking="process")
def sleep_beside(path: str) -> None:
    """Wait for a process that takes very long, on another queue."""
    child = multiprocessing.Process(target=sleep_in_a_child, args=(path,))
    child.start()
    child.join()


@tool(read_only=True, queue="cpu")
def sleep_in_a_process(path: str, ctx: Context) -> None:
    """Wait for a process that takes very long."""
    Path(f"{path}.call").write_text(ctx.call_id)
    child = multiprocessing.Process(target=sleep_in_a_child, args=(path,))
    child.start()
    child.join()


@tool(queue="cpu")
def note(path: str, mark: str) -> str:
    """Have an effect."""
    with Path(path).open("a") as noted:
        noted.write(f"{mark}\n")
    return mark


@tool(queue="cpu")
def note_when_let(path: str, mark: str) -> str:
    """Have an effect once there is a file, and say that it has begun."""
    return noted_when_let(path, mark)


@tool(queue="cpu", timeout_s=1)
def note_and_keep(path: str, mark: str, ctx: Context) -> str:
    """Have an effect, after a checkpoint, and say that it has begun: its result is not the worker's to settle."""
    ctx.checkpoint("begun")
    return noted_when_let(path, mark)


@tool(queue="cpu", read_only=True)
def process() -> int:
    """Say in which process it runs."""
    return os.getpid()


@tool(queue="cpu", read_only=True)
def what_a_program_inherits() -> str:
    """Say what a program has from the process that starts it: its input, and what it does at Ctrl-\\."""
    asks = "import os, signal, sys; print([sys.stdin.read(), signal.getsignal(signal.SIGQUIT) == signal.SIG_DFL])"
    return subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True).stdout.strip()


@tool(queue="cpu", read_only=True)
async def sleep_in_a_program(path: str) -> None:
    """Wait for a program that takes very long."""
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(600)")
    Path(path).write_text(str(program.pid))
    await program.wait()


@tool(queue="cpu", read_only=True)
def begin_and_end_processes(count: int) -> int:
    """Start processes, and tell each to end at once."""
    for _ in range(count):
        begun = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        begun.start()
        begun.terminate()
        begun.join()
    return count
