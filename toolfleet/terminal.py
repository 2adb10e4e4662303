"""What strangers wrote, made fit for a terminal: nothing of it is a command to it. Pure.

Users, models and tools are strangers here.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Final

JOINERS: Final = "\u200c\u200d"
"""Invisible, and harmless: they make one sign of several emoji, and part the letters of Persian words."""


def harmless(text: str) -> str:
    """Return text without what a terminal would obey, or what changes the order of its letters; such is spelled out."""
    return text if text.isprintable() else "".join(map(_harmless, text))


def harmless_json(text: str) -> str:
    """Return the same JSON text with such characters escaped, as JSON itself allows."""
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


def _harmless(character: str) -> str:
    kind = unicodedata.category(character)
    if character in "\n\t" or character in JOINERS or character.isprintable() or kind == "Co":
        return character
    if kind == "Zs":
        return " "
    return character.encode("unicode_escape").decode()
