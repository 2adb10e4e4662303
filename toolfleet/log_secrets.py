"""Secrets of this process's settings, which stand in none of its log lines, whoever writes them.

What is known to be secret: what settings say, and variables whose names say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

HIDDEN: Final = "***"
SECRET_CHARS_MIN: Final = 6
"""What is shorter stands in other words too."""

SECRET_NAMES: Final = re.compile(r"SECRET|PASSWORD|PASSWD|TOKEN|API_KEY|AUTH$|CREDENTIAL|DSN$", re.IGNORECASE)

_secrets: set[str] = set()


def hide(secrets: Iterable[str]) -> None:
    """Let none of these stand in a line of this process, whoever writes it. What is too short is not looked for."""
    known = {secret for secret in secrets if len(secret) >= SECRET_CHARS_MIN}
    _secrets.update(known, (json.dumps(secret)[1:-1] for secret in known))


def hide_passwords(*urls: str | None) -> None:
    """The same for the passwords in these URLs."""
    hide(password for url in urls if url for password in _passwords(url))


def without_secrets(text: str) -> str:
    """Return the text with a sign in the place of each secret."""
    for secret in sorted(_secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def secrets_in(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the values of variables whose names say that they are secret, and the passwords in URLs."""
    for name, value in variables.items():
        if SECRET_NAMES.search(name):
            yield value
            yield value.partition(":")[2]  # of user:password
        if "://" in value:
            yield from _passwords(value)


def _passwords(url: str) -> Iterator[str]:
    try:
        password = urlsplit(url).netloc.rpartition("@")[0].partition(":")[2]
    except ValueError:
        return
    yield from (password, unquote(password))
