"""What a worker and its child processes say to each other, over a pipe that only the two of them have."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from toolfleet.workers.delivery.message import Delivery
from toolfleet.workers.delivery.settle import Settlement
from toolfleet.workers.perform.endings import Ending

LENGTH: Final = struct.Struct("!Q")
"""In front of each word: how many bytes it has."""

READY: Final = b""
"""A child's first word, once it can take a call."""

SHARED_WORDS: Final = 3
"""Each of eight bytes, so that none is ever seen half written."""


class Shared:
    """Memory that a worker and one child both see: what each of them says in it, the other knows at once."""

    SIZE: Final = 8 * SHARED_WORDS

    def __init__(self, memory: memoryview) -> None:
        """`memory`: SIZE bytes."""
        self._numbers, self._moments = memory.cast("Q"), memory.cast("d")

    @property
    def begun(self) -> int:
        """The number of the newest job that the child has begun with."""
        return self._numbers[0]

    @begun.setter
    def begun(self, number: int) -> None:
        self._numbers[0] = number

    @property
    def to_end(self) -> int:
        """The number of the job that the child is to stop, and to end with, when it gets SIGTERM."""
        return self._numbers[1]

    @to_end.setter
    def to_end(self, number: int) -> None:
        self._numbers[1] = number

    @property
    def due_s(self) -> float:
        """When what the child is at must be done, by the machine's monotonic clock; zero for what may take its time.

        A tool may not, while a child that waits for Redis may.
        """
        return self._moments[2]

    @due_s.setter
    def due_s(self, moment_s: float) -> None:
        self._moments[2] = moment_s


class Job(NamedTuple):
    """A call that a child is to perform."""

    number: int
    """Above those of all jobs before, so that it can be told which one a child has begun with."""
    delivery: Delivery
    is_common: bool
    """Whether the worker has let the call in, and settles it."""
    news: bytes | None
    """How its tool is by now, if the child may not know."""


class Answer(NamedTuple):
    """What a child says when it is done with a call."""

    ending: Ending
    """How its delivery has ended; if there is a settlement, how it ends when that is stored."""
    settlement: Settlement | None
    """What is still to be stored."""
    ran_s: float
    settled_s: float
    """How long its tool has run, and how long it took the child to settle it; zero for what did not come to pass."""
    is_last: bool
    """Whether the child is to end: it has performed as many calls as it may, or holds more memory than it may."""


def framed(word: bytes) -> bytes:
    """Return a word as it is sent."""
    return LENGTH.pack(len(word)) + word


def packed(value: Job | Answer) -> bytes:
    """Return a value as it is sent. Only who has the worker's own memory has the pipe, so this may be a pickle."""
    return framed(pickle.dumps(tuple(value), pickle.HIGHEST_PROTOCOL))


def job_of(word: bytes) -> Job:
    """Read a job."""
    return Job(*pickle.loads(word))  # noqa: S301  # see `packed`


def answer_of(word: bytes) -> Answer:
    """Read an answer."""
    return Answer(*pickle.loads(word))  # noqa: S301  # see `packed`


class Words:
    """Puts together what comes in pieces."""

    def __init__(self) -> None:
        self._held = bytearray()

    def take(self, data: bytes) -> Iterator[bytes]:
        """Yield each word that has come to its end."""
        held = self._held
        held += data
        while len(held) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(held)[0]
            if len(held) < end:
                return
            word = bytes(held[LENGTH.size : end])
            del held[:end]
            yield word
