"""Which tools a query means: the search behind `search_tools`. Pure."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from toolfleet.tool import ToolSpec

ToolSearch = Callable[[str, Sequence[ToolSpec]], Sequence[ToolSpec] | Awaitable[Sequence[ToolSpec]]]
"""Returns those of the tools that a query means, the likeliest first; a function of your own may be async."""

IN_NAME: Final = 3
"""How much more a word counts in a tool's name than in its description or its tags."""

WHOLE: Final = 2
"""How much more a whole word counts than a part of one."""

SHORTEST_PART: Final = 3
"""Of languages with blanks, shorter parts of words are in almost every word."""

# Written without blanks between words: Chinese characters, Japanese kana, and Thai, Lao and Khmer.
_UNSPACED: Final = re.compile(
    r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


def by_shared_words(query: str, tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Return the tools that share words, or parts of words, with a query, those that share most first."""
    wanted = set(_terms(query))
    scored = [(_score(wanted, spec), spec) for spec in tools]
    return [spec for score, spec in sorted(scored, key=lambda each: -each[0]) if score]


def _score(wanted: set[str], spec: ToolSpec) -> int:
    return IN_NAME * _shared(wanted, spec.name) + _shared(wanted, f"{spec.description} {' '.join(spec.tags)}")


def _shared(wanted: set[str], text: str) -> int:
    words, folded = set(_terms(text)), text.casefold()
    return sum(WHOLE if term in words else int(_is_part(term, folded)) for term in wanted)


def _is_part(term: str, text: str) -> bool:
    return (len(term) >= SHORTEST_PART or _UNSPACED.match(term) is not None) and term in text


def _terms(text: str) -> Iterator[str]:
    """Words without their commonest endings; of what is written without blanks, each two neighbours."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    for word in re.findall(r"[^\W_]+", _UNSPACED.sub(r" \g<0> ", spaced).casefold()):
        if _UNSPACED.match(word) is None:
            yield _stem(word)
        else:
            yield from (word[at : at + 2] for at in range(max(1, len(word) - 1)))


def _stem(word: str) -> str:
    """Return the word without an ending, so that "files" finds "file", and "queries" "query"."""
    singular = re.sub(r"ies$", "y", word) if len(word) > len("ties") else word
    stem = re.sub(r"(?:ing|ed|es|(?<!s)s|e)$", "", singular)
    return stem if len(stem) >= SHORTEST_PART else word
