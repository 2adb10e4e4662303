"""Files below one folder, and none outside: every step of a path is taken from an open folder, never by name twice.

A symbolic link is followed by hand, so that one that is put there meanwhile leads nowhere else. Knows no tool.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from toolfleet import ToolError

MAX_LINKS: Final = 40
"""As many as Linux itself follows."""

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

FILE: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
"""Without waiting: opening a named pipe would otherwise never return."""


class Confined:
    """The files below `root`. Paths are relative to it."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    @contextmanager
    def folder_of(self, path: str) -> Iterator[tuple[int, str]]:
        """The open folder that a path ends in, and the last name; "." for the root. Raises ToolError."""
        walk = _Walk(self._root, path)
        try:
            yield walk.to_the_last_name()
        finally:
            walk.close()

    @contextmanager
    def opened(self, path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> Iterator[int]:
        """An open regular file or folder. Raises ToolError for anything else, and where there is none."""
        with self.folder_of(path) as (folder, name), _explained(path):
            descriptor = os.open(name, flags | FILE, mode, dir_fd=folder)
            try:
                kind = os.fstat(descriptor).st_mode
                if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
                    raise ToolError(f"{path} is neither a file nor a folder")
                yield descriptor
            finally:
                os.close(descriptor)


class _Walk:
    """From the root down a path, holding every folder on the way open."""

    def __init__(self, root: Path, path: str) -> None:
        if not path.isprintable():
            raise ToolError("a path has only printable characters")
        if PurePosixPath(path).is_absolute():
            raise ToolError(f"{path} is absolute: give a path relative to the root")
        self._path = path
        self._root = root
        self._links = 0
        self._left = deque(PurePosixPath(path).parts)
        with _explained("."):
            self._folders = [os.open(root, FOLDER)]

    def to_the_last_name(self) -> tuple[int, str]:
        with _explained(self._path):
            while self._left:
                name = self._left.popleft()
                if name == "..":
                    self._up()
                elif target := self._link(name):
                    self._follow(target)
                elif not self._left:
                    return self._folders[-1], name
                else:
                    self._folders.append(os.open(name, FOLDER, dir_fd=self._folders[-1]))
        return self._folders[-1], "."

    def close(self) -> None:
        for folder in self._folders:
            os.close(folder)

    def _up(self) -> None:
        if len(self._folders) == 1:
            raise self._outside()
        os.close(self._folders.pop())

    def _link(self, name: str) -> str | None:
        """Where a symbolic link points; None for all else, also for what is not there."""
        try:
            return os.readlink(name, dir_fd=self._folders[-1])
        except FileNotFoundError:
            return None
        except OSError:  # EINVAL: no link
            return None

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
            raise ToolError(f"{self._path} goes through too many symbolic links")
        way = PurePosixPath(target)
        if way.is_absolute():
            if not way.is_relative_to(self._root):
                raise self._outside()
            way = way.relative_to(self._root)
            while len(self._folders) > 1:
                os.close(self._folders.pop())
        self._left.extendleft(reversed(way.parts))

    def _outside(self) -> ToolError:
        return ToolError(f"{self._path} leads out of the folder that may be used")


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn the system's errors into what a model can use; where the root is stays unsaid."""
    try:
        yield
    except FileNotFoundError:
        raise ToolError(f"there is no {path}") from None
    except OSError as error:
        raise ToolError(f"{path}: {error.strerror}") from None
