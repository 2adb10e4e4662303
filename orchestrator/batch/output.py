"""The batch's output, which is also its ledger: what stands there is done. One line, one write, never a second time.

Knows bytes, run ids and digests of refused lines; what a line says is the formats' matter.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import orjson

from toolfleet.orchestrator.batch import openai_format, own_format
from toolfleet.orchestrator.batch.identity import Identity
from toolfleet.orchestrator.batch.records import Unreadable
from toolfleet.orchestrator.batch.summary import Tally
from toolfleet.orchestrator.errors import OutputUnusable

BEGINNING: Final = b'{"id":'
"""Of every line we write. What begins otherwise was not torn by a crash of ours, and is nothing to cut off."""


class Output:
    """A file of finished lines, ours alone while it is open; for "-" standard output, which remembers nothing.

    Entering reads what is done. A last line that is torn is removed: its run is in the store, its line will be written
    again. With `again` the lines that have no answer are removed as well. Raises OutputUnusable.
    """

    def __init__(self, path: str, identity: Identity, *, again: bool = False) -> None:
        self._path = path
        self._identity = identity
        self._again = again
        self._done: set[bytes] = set()
        self.before = Tally()
        """What the lines come to that were there when it was opened, as far as they say."""
        self._opened_file: os.stat_result | None = None
        self._exit = ExitStack()
        self._file: IO[bytes]

    def __enter__(self) -> Self:
        if self._path == "-":
            self._file = sys.stdout.buffer
            return self
        try:
            with ExitStack() as stack:
                # Not "a+b": what is torn has to be cut off, and the position is ours.
                self._file = stack.enter_context(os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666), "r+b"))
                self._lock(self._file)
                self._opened_file = os.fstat(self._file.fileno())
                failed = self._read()
                if self._again and failed:
                    self._file = stack.enter_context(self._without_failed())
                    self._done.clear()
                    self._read()
                self._file.seek(0, os.SEEK_END)
                self._exit = stack.pop_all()
        except OSError as error:
            raise OutputUnusable(f"{self._path} cannot be written: {error.strerror}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit.close()

    @property
    def opened_file(self) -> os.stat_result | None:
        """The file that was locked first, when this was entered; None for standard output."""
        return self._opened_file

    def __len__(self) -> int:
        """How many lines were there when it was opened, or have been written since."""
        return len(self._done)

    def holds_run(self, run_id: str) -> bool:
        """Whether the line of this run is written."""
        return _key(run_id.encode()) in self._done

    def holds_line(self, line: bytes) -> bool:
        """Whether this line, to the byte, is written."""
        return _key(line) in self._done

    def write(self, line: bytes, *, run_id: str | None) -> None:
        """Write a line. A crash before leaves nothing of it, a crash after leaves all; one within is repaired.

        Raises OutputUnusable.
        """
        try:
            self._file.write(line + b"\n")
            self._file.flush()
        except OSError as error:
            raise OutputUnusable(f"{self._path} cannot be written: {error.strerror}") from error
        self._done.add(_key(line if run_id is None else run_id.encode()))

    def _lock(self, file: IO[bytes]) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputUnusable(f"another process is writing {self._path}") from None

    def _read(self) -> int:
        """Remember what is done; how many lines of it have no answer."""
        failed = 0
        self.before = Tally()
        self._file.seek(0)
        position = 0
        for number, line in enumerate(self._file, start=1):
            text = line.strip()
            if not line.endswith(b"\n") and _is_torn(text):
                self._file.truncate(position)
                break
            position += len(line)
            if not text:
                continue
            fields, run_id = self._understood(number, text)
            if run_id is not None and not self._identity.is_ours(run_id):
                raise OutputUnusable(
                    f"{self._path} holds the output of another batch (other input, options or model; line {number}): "
                    f"name another file, or go on with the other one's --batch-id and model"
                )
            self._done.add(_key(text if run_id is None else run_id.encode()))
            failed += not _is_ok(fields)
            self.before.count_line(
                is_ok=_is_ok(fields), is_refused=run_id is None, figures=_format(fields).figures_of(fields)
            )
            if not line.endswith(b"\n"):
                self._file.write(b"\n")
        return failed

    def _understood(self, number: int, text: bytes) -> tuple[dict[str, Any], str | None]:
        try:
            fields = orjson.loads(text)
            if not isinstance(fields, dict):
                raise Unreadable("no JSON object")
            return fields, _format(fields).run_id_of(fields)
        except (orjson.JSONDecodeError, Unreadable):
            raise OutputUnusable(
                f"{self._path} has something else than a batch's output in line {number}: name another file"
            ) from None

    def _without_failed(self) -> IO[bytes]:
        """A new file in the place of the old one, locked before it is there."""
        # Its own name and folder: only a rename within one file system is atomic.
        folder = Path(self._path).resolve().parent
        file = tempfile.NamedTemporaryFile(mode="w+b", dir=folder, prefix=".toolfleet-", delete=False)  # noqa: SIM115  # stays open
        self._lock(file)
        self._file.seek(0)
        for line in self._file:
            if line.strip() and _is_ok(orjson.loads(line)):
                file.write(line)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), os.fstat(self._file.fileno()).st_mode & 0o777)
        Path(file.name).replace(Path(self._path).resolve())
        return file


def _format(fields: dict[str, Any]) -> Any:
    return openai_format if "custom_id" in fields else own_format


def _is_ok(fields: dict[str, Any]) -> bool:
    return bool(_format(fields).is_ok(fields))


def _is_torn(text: bytes) -> bool:
    """Whether this is a part of a line of ours. A whole one may have lost its line break in an editor."""
    if not BEGINNING.startswith(text[: len(BEGINNING)]):
        return False
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return True
    return False


def _key(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=12).digest()
