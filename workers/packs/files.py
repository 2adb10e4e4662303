"""Files below one folder: list, read, search, and write if a setting allows; `workers/confined` keeps them inside.

Every answer is bounded: entries, bytes read, bytes searched.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator
from typing_extensions import TypedDict

from toolfleet import Context, ToolError, tool
from toolfleet.workers.packs.confined import Confined
from toolfleet.workers.packs.pack_settings import Count, PackSettings, for_pack, read_pack_settings

BINARY: Final = b"\0"


class FilesSettings(PackSettings):
    """Which folder, and how much of it at a time."""

    model_config = for_pack("files")

    root: Path
    """The folder. Required; nothing outside of it can be reached."""

    writable: bool = False
    """Whether `write_file` is offered."""

    max_entries: Count = 1000
    """Names in one listing, and lines found by one search."""

    max_read_bytes: Annotated[int, Field(ge=1024)] = 64 * 1024
    """Bytes of one page of a file."""

    max_write_bytes: Count = 1024 * 1024
    """The largest file that can be written."""

    max_searched_bytes: Count = 256 * 1024 * 1024
    """Bytes that one search reads, of all files together."""

    max_file_bytes: Count = 16 * 1024 * 1024
    """A larger file is not searched."""

    max_depth: Count = 32
    """How many folders deep a search goes."""

    @field_validator("root")
    @classmethod
    def _is_a_folder(cls, root: Path) -> Path:
        if not root.is_dir():
            raise ValueError("this is not a folder")
        return root.resolve()


class FolderEntry(TypedDict):
    """One name in a folder."""

    name: str
    kind: Literal["file", "folder", "link", "other"]
    size_bytes: int


class FolderListing(TypedDict):
    """A folder."""

    entries: list[FolderEntry]
    cut: bool


class FilePage(TypedDict):
    """A part of a file. `next_offset` is where the following one begins; None at the end."""

    text: str
    size_bytes: int
    next_offset: int | None


class Hit(TypedDict):
    """A line that was searched for."""

    path: str
    line: int
    text: str


class Hits(TypedDict):
    """What a search found."""

    hits: list[Hit]
    cut: bool


class Files:
    """The files below one folder."""

    def __init__(self, settings: FilesSettings) -> None:
        self._settings = settings
        self._files = Confined(settings.root)

    @tool(read_only=True)
    def list_files(self, path: str = ".") -> FolderListing:
        """List a folder.

        Args:
            path: relative to the root
        """
        with self._files.opened(path) as folder:
            _refuse_unless_folder(folder, path)
            names = sorted(os.listdir(folder))  # noqa: PTH208  # of a descriptor, not of a path
            kept = names[: self._settings.max_entries]
            return FolderListing(entries=list(_entries(folder, kept)), cut=len(names) > len(kept))

    @tool(read_only=True)
    def read_file(self, path: str, offset: Annotated[int, Field(ge=0)] = 0) -> FilePage:
        """Read a text file, page by page.

        Args:
            path: relative to the root
            offset: where to begin, in bytes; 0 first, then the `next_offset` of the page before
        """
        with self._files.opened(path) as file:
            size_bytes = _size_of_file(file, path)
            read = os.pread(file, self._settings.max_read_bytes, offset)
        if BINARY in read:
            raise ToolError(f"{path} is not a text file; it has {size_bytes} bytes")
        page = _whole_characters(read, is_last=offset + len(read) >= size_bytes)
        end = offset + len(page)
        return FilePage(
            text=page.decode("utf-8", "replace"), size_bytes=size_bytes, next_offset=end if end < size_bytes else None
        )

    @tool(read_only=True, timeout_s=60)
    def search_files(
        self,
        text: str,
        ctx: Context,
        path: str = ".",
        name: str = "*",
        ignore_case: bool = False,  # noqa: FBT001  # a model names its arguments
    ) -> Hits:
        """Search text files for a text, line by line. Symbolic links are not followed.

        Args:
            text: what to look for, as it stands (no pattern)
            ctx: the call
            path: folder to search, relative to the root
            name: pattern of the files' names, such as "*.py"
            ignore_case: whether upper and lower case are the same
        """
        if not text:
            raise ToolError("there is no text to look for")
        wanted = text.lower() if ignore_case else text
        hits: list[Hit] = []
        searched_bytes = 0
        with self._files.opened(path) as folder:
            _refuse_unless_folder(folder, path)
            for where, content in self._contents(folder, "" if path in (".", "") else path.rstrip("/"), name):
                searched_bytes += len(content)
                for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), start=1):
                    if wanted in (line.lower() if ignore_case else line):
                        hits.append(Hit(path=where, line=number, text=line.strip()[:500]))
                        if len(hits) >= self._settings.max_entries:
                            return Hits(hits=hits, cut=True)
                if ctx.cancelled or searched_bytes > self._settings.max_searched_bytes:
                    return Hits(hits=hits, cut=True)
        return Hits(hits=hits, cut=False)

    @tool
    def write_file(self, path: str, text: str, if_exists: Literal["refuse", "replace", "append"] = "refuse") -> str:
        """Write a text file; its folder must exist.

        Args:
            path: relative to the root
            text: the content
            if_exists: what to do when there is such a file
        """
        if not self._settings.writable:
            raise ToolError("nothing may be written here")
        content = text.encode("utf-8", "replace")
        if len(content) > self._settings.max_write_bytes:
            raise ToolError(
                f"the text has {len(content)} bytes, and at most {self._settings.max_write_bytes} can be written"
            )
        match if_exists:
            case "replace":
                self._replace(path, content)
            case "refuse":
                with self._files.opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
                    _write_all(file, content)
            case "append":
                with self._files.opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as file:
                    if _size_of_file(file, path) + len(content) > self._settings.max_write_bytes:
                        raise ToolError(f"{path} would have more than {self._settings.max_write_bytes} bytes")
                    _write_all(file, content)
        return f"wrote {len(content)} bytes"

    def _replace(self, path: str, content: bytes) -> None:
        """Put a new file in the place of the old one, so that nobody ever reads half of it."""
        with self._files.folder_of(path) as (folder, name):
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                    raise ToolError(f"{path} is not a file")
            new = f".{secrets.token_hex(8)}.new"
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
            try:
                _write_all(descriptor, content)
                os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError as error:
                with suppress(FileNotFoundError):
                    os.unlink(new, dir_fd=folder)
                raise ToolError(f"{path}: {error.strerror}") from None
            finally:
                os.close(descriptor)

    def _contents(self, root: int, prefix: str, name: str) -> Iterator[tuple[str, bytes]]:
        """The text files below an open folder with their paths; nothing that is or became a link."""
        # By descriptors all the way down, as an attacker may exchange a folder for a link meanwhile.
        for folder_path, folders, files, folder in os.fwalk(".", dir_fd=root, follow_symlinks=False):
            parts = Path(folder_path).parts
            folders[:] = sorted(folders) if len(parts) < self._settings.max_depth else []
            for file in sorted(files):
                if fnmatchcase(file, name) and (content := self._content(folder, file)) is not None:
                    yield "/".join(filter(None, [prefix, *parts, file])), content

    def _content(self, folder: int, name: str) -> bytes | None:
        with suppress(OSError):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with os.fdopen(descriptor, "rb") as file:
                found = os.fstat(descriptor)
                if stat.S_ISREG(found.st_mode) and found.st_size <= self._settings.max_file_bytes:
                    content = file.read(self._settings.max_file_bytes)
                    return None if BINARY in content[:8192] else content
        return None


def _entries(folder: int, names: list[str]) -> Iterator[FolderEntry]:
    for name in names:
        with suppress(FileNotFoundError):  # it went away meanwhile
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            yield FolderEntry(name=name, kind=_kind(found.st_mode), size_bytes=found.st_size)


def _kind(mode: int) -> Literal["file", "folder", "link", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


def _size_of_file(descriptor: int, path: str) -> int:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{path} is a folder")
    return found.st_size


def _refuse_unless_folder(descriptor: int, path: str) -> None:
    if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise ToolError(f"{path} is a file, not a folder")


def _whole_characters(read: bytes, *, is_last: bool) -> bytes:
    """The bytes without the beginning of a UTF-8 character at their end, which belongs to the next page."""
    if is_last:
        return read
    for back in range(1, min(4, len(read))):
        byte = read[-back]
        if byte & 0xC0 != 0x80:
            length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return read[:-back] if length > back else read
    return read


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


_settings = read_pack_settings(FilesSettings)
_files = Files(_settings)
list_files, read_file, search_files = _files.list_files, _files.read_file, _files.search_files
if _settings.writable:
    write_file = _files.write_file
