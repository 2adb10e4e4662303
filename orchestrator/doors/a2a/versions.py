"""Which version of the protocol a request speaks: its header says so, or a parameter; without a word it is 0.3."""

from __future__ import annotations

import re
from typing import Final

from a2a.utils.constants import PROTOCOL_VERSION_0_3, VERSION_HEADER
from a2a.utils.errors import VersionNotSupportedError
from starlette.requests import Request

VERSION: Final = re.compile(r"(\d{1,4})(?:\.(\d{1,4}))?(?:\.\d{1,9})?", re.ASCII)


def must_be_version(request: Request, wanted: str) -> None:
    """Raise VersionNotSupportedError where a request speaks another version than its method or address is of."""
    said = request.headers.get(VERSION_HEADER) or request.query_params.get(VERSION_HEADER) or PROTOCOL_VERSION_0_3
    found = VERSION.fullmatch(said.strip())
    if found is None or found[1] != wanted.partition(".")[0]:
        raise VersionNotSupportedError(
            f"{VERSION_HEADER} is {said[:20]!r} (without a word, 0.3), and this is of {wanted}: send {wanted}, or ask "
            "by the other version's methods"
        )
