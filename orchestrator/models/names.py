"""Catalog names to names that every provider accepts, and back; the same for call ids.

Pure. A legal name stays as it is; any other gets a legal one that depends on nothing but itself, so a tool keeps its
wire name from turn to turn and across orchestrators.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable

MAX_NAME_LENGTH = 64
_LEGAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_ILLEGAL_RUN = re.compile(r"[^A-Za-z0-9_-]+")
_DIGEST_LENGTH = 8
_ID_DIGEST_LENGTH = 24


def legal_name(name: str) -> str:
    """Return the name that OpenAI, Anthropic and Google all accept for this tool; `name` itself if it is one.

    The tail is kept when it is too long (what tells two long names apart is mostly at the end), and a digest of the
    whole name keeps two names apart that look alike once their illegal characters are gone.
    """
    if _LEGAL_NAME.fullmatch(name):
        return name
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    readable = _ILLEGAL_RUN.sub("_", ascii_name).strip("_-")
    tail = readable[-(MAX_NAME_LENGTH - _DIGEST_LENGTH - len("t__")) :]
    # The leading letter: Google refuses a name that begins with a digit or a dash.
    return "_".join(part for part in ("t", tail, _digest(name, _DIGEST_LENGTH)) if part)


def legal_id(call_id: str, legal: re.Pattern[str]) -> str:
    """`call_id` if it matches `legal`, else one derived from it: a history may come from another provider."""
    if legal.fullmatch(call_id):
        return call_id
    return "call_" + _digest(call_id, _ID_DIGEST_LENGTH)


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


class NameMap:
    """The names of one request, in both directions."""

    def __init__(self, catalog_names: Iterable[str]) -> None:
        self._catalog_name = {legal_name(name): name for name in catalog_names}

    def to_catalog(self, wire_name: str) -> str:
        """Return the catalog name behind a wire name; a name that was never offered comes back unchanged."""
        return self._catalog_name.get(wire_name, wire_name)
