"""The key of whoever has this machine's user: in a file that nobody else can read, good at every API of theirs here.

Not in Redis: who can read this user's files may do what this user may, and no key that is made or revoked changes that.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from platformdirs import user_data_path

from toolfleet.errors import InvalidSettings, ServerNotStarted

PREFIX: Final = "tf_"
"""How every key of the HTTP API begins."""

KEY_BYTES: Final = 32
MAX_BYTES: Final = 256


class KeyExposed(InvalidSettings):
    """Others can read the file, or it is somebody else's: whatever stands in it proves nothing."""


class LocalKey:
    """One user's key on this machine."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or user_data_path("toolfleet") / "api.key"
        self._read: tuple[tuple[int, int, int], str] | None = None

    def made(self) -> str:
        """Return the key, made if there is none yet. Raises ServerNotStarted, KeyExposed."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return self.read() or self._make()
        except OSError as error:
            raise ServerNotStarted(f"{self.path} cannot be written ({error.strerror}): set XDG_DATA_HOME") from error

    def read(self) -> str:
        """Return the key, "" where there is none. Raises KeyExposed."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            self._read = None
            return ""
        except OSError as error:
            raise KeyExposed(f"{self.path} cannot be read ({error.strerror}): remove it, and start again") from error
        try:
            return self._checked(file)
        finally:
            os.close(file)

    def is_it(self, presented: str) -> bool:
        """Return whether this is the key, as it stands in the file now."""
        try:
            known = self.read()
        except KeyExposed:
            return False
        return bool(known) and hmac.compare_digest(known.encode(), presented.encode("utf-8", "replace"))

    def _checked(self, file: int) -> str:
        found = os.fstat(file)
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) & 0o077:
            raise KeyExposed(f"{self.path} is not this user's alone (chmod 600): remove it, and start again")
        version = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._read is None or self._read[0] != version:
            key = os.read(file, MAX_BYTES).decode("ascii", "replace").strip()
            if not key.startswith(PREFIX) or len(key) < KEY_BYTES:
                raise KeyExposed(f"{self.path} holds no key: remove it, and start again")
            self._read = version, key
        return self._read[1]

    def _make(self) -> str:
        key = PREFIX + secrets.token_urlsafe(KEY_BYTES)
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(file, "w") as text:
                text.write(f"{key}\n")
            # Whole or not at all, and never over one that another process has made meanwhile.
            os.link(draft, self.path)
        except FileExistsError:
            return self.read()
        finally:
            draft.unlink()
        return key
