"""The batch's input as bytes: numbered lines of bounded length, read as they are needed, and what they add up to.

What comes through a pipe is put into a temporary file first: its content is the batch's name.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, cast

from toolfleet.orchestrator.errors import InputUnreadable

MAX_LINE_BYTES: Final = 32 * 1024 * 1024
"""What a model takes is less; a file without line breaks must not fill the memory."""

BOM: Final = b"\xef\xbb\xbf"


class RawLine(NamedTuple):
    """One line that is not blank. Of one that is too long, the beginning."""

    number: int
    text: bytes
    is_too_long: bool


@dataclass(frozen=True, slots=True)
class Input:
    """A file of lines, its content's digest, and how many lines are not blank."""

    file: BinaryIO
    sha256: str
    count: int

    def lines(self) -> Iterator[RawLine]:
        """The lines that are not blank, from the first one."""
        self.file.seek(0)
        return _lines(self.file)


@contextmanager
def opened_input(path: str) -> Iterator[Input]:
    """A file, or standard input for "-". Raises InputUnreadable."""
    with ExitStack() as stack:
        try:
            file = sys.stdin.buffer if path == "-" else stack.enter_context(Path(path).open("rb"))
            if not file.seekable():
                spooled = stack.enter_context(tempfile.TemporaryFile(prefix="toolfleet-batch-"))
                shutil.copyfileobj(file, spooled)
                file = cast("BinaryIO", spooled)
            file.seek(0)
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # a protocol of its own
            file.seek(0)
            count = sum(1 for _ in _lines(file))
        except OSError as error:
            raise InputUnreadable(f"{path} cannot be read: {error.strerror}") from error
        yield Input(file, sha256, count)


def _lines(file: BinaryIO) -> Iterator[RawLine]:
    number = 0
    while text := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        is_too_long = len(text) > MAX_LINE_BYTES
        rest = text
        while is_too_long and rest and not rest.endswith(b"\n"):
            rest = file.readline(MAX_LINE_BYTES)
        text = (text.removeprefix(BOM) if number == 1 else text).strip()
        if text:
            yield RawLine(number, text, is_too_long)
