"""Help as terminals print it. Pure."""

from __future__ import annotations


def flowing(text: str | None) -> str | None:
    """Return a docstring's text with each paragraph on one line, so that the terminal alone breaks it.

    Otherwise lines that fit a source file are broken again on a narrower screen, each in its midst.
    """
    return text and "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))
