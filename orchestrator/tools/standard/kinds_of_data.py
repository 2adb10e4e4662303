"""Where in a text there is personal data: e-mail addresses, numbers of credit cards and phones, IP addresses. Pure.

Each kind is looked for in the text as it is. Pieces that overlap are one: no rest of either is left.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

Kind = Literal["email", "credit_card", "ip", "phone"]

Find = Callable[[str], Iterator[tuple[int, int]]]


class Span(NamedTuple):
    """A piece of a text that is personal data."""

    begin: int
    end: int
    kind: str


# A match begins only where a word does: a long word without an @ is looked at once, and not from each of its letters.
_EMAIL: Final = re.compile(r"(?<![\w.%+-])[\w.%+-]+@[\w-]+(?:\.[\w-]+)+")
_DIGITS: Final = re.compile(r"(?<![\w.])\d(?:[ -]?\d)+(?!\w)")
_GROUP: Final = re.compile(r"\d+")
_IPV4: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
_IPV6: Final = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:)[0-9A-Fa-f:.]*[0-9A-Fa-f:](?![\w:])")
_PHONE: Final = re.compile(
    r"(?<![\w+])(?:"
    r"\+\d{1,3}(?:[ ./-]?(?:\(\d{1,4}\)|\d{1,4})){2,6}"  # +49 (0) 30 1234567
    r"|(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}"  # (415) 555-2671
    r"|\(?0\d{1,5}\)?[ /.-]{1,3}\d{2,4}(?:[ .-]?\d{2,4}){1,3}"  # 030 / 1234567
    r")(?!\w)"
)

_CARD_DIGITS: Final = range(13, 20)


def _emails(text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _EMAIL.finditer(text))


def _credit_cards(text: str) -> Iterator[tuple[int, int]]:
    """Numbers of 13 to 19 digits, in groups or not, that pass Luhn's check, wherever they begin in a row of groups."""
    for row in _DIGITS.finditer(text):
        groups = [match.span() for match in _GROUP.finditer(text, *row.span())]
        at = 0
        while at < len(groups):
            found = _card_from(text, groups, at)
            if found is None:
                at += 1
            else:
                yield groups[at][0], groups[found][1]
                at = found + 1


def _card_from(text: str, groups: Sequence[tuple[int, int]], first: int) -> int | None:
    """The last group of the longest number of a card that begins with this group."""
    digits, longest = "", None
    for at in range(first, len(groups)):
        digits += text[slice(*groups[at])]
        if len(digits) >= _CARD_DIGITS.stop:
            break
        if len(digits) in _CARD_DIGITS and passes_luhn(digits):
            longest = at
    return longest


def passes_luhn(digits: str) -> bool:
    """Whether the last digit is what Luhn's algorithm (ISO/IEC 7812-1) makes of the others."""
    total = 0
    for at, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + at % 2)
        total += value - 9 if value > 9 else value  # the sum of its digits
    return total % 10 == 0


def _ip_addresses(text: str) -> Iterator[tuple[int, int]]:
    for pattern in (_IPV4, _IPV6):
        for match in pattern.finditer(text):
            if _is_address(match.group()):
                yield match.span()


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return any(character.isalnum() for character in text)  # "::" is said of other things


def _phones(text: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _PHONE.finditer(text))


FINDERS: Final[Mapping[str, Find]] = {
    "email": _emails,
    "credit_card": _credit_cards,
    "ip": _ip_addresses,
    "phone": _phones,
}


def pattern_finder(pattern: re.Pattern[str]) -> Find:
    """Find what fits a pattern of one's own; nothing where it fits nothing at all."""

    def find(text: str) -> Iterator[tuple[int, int]]:
        return (match.span() for match in pattern.finditer(text) if match.end() > match.start())

    return find


def spans(text: str, finders: Mapping[str, Find]) -> list[Span]:
    """Every piece of personal data, in order; what overlaps is one piece, of the kind of its longest part."""
    found = sorted(
        (Span(begin, end, kind) for kind, find in finders.items() for begin, end in find(text)),
        key=lambda span: (span.begin, -span.end),
    )
    pieces: list[Span] = []
    longest = 0
    for span in found:
        length = span.end - span.begin
        if not pieces or pieces[-1].end <= span.begin:
            pieces.append(span)
            longest = length
            continue
        kind, longest = (span.kind, length) if length > longest else (pieces[-1].kind, longest)
        pieces[-1] = Span(pieces[-1].begin, max(pieces[-1].end, span.end), kind)
    return pieces
