"""Tools of the pool of processes."""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from toolfleet import Context, tool


def square(number: int) -> int:
    return number * number


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
    Path(f"{path}.begun").touch()
    while not Path(f"{path}.let").exists():
        time.sleep(0.01)
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
    Path(f"{path}.begun").touch()
    while not Path(f"{path}.let").exists():
        time.sleep(0.01)
    with Path(path).open("a") as noted:
        noted.write(f"{mark}\n")
    return mark
