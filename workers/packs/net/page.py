"""The text of a web page. Imported by the child process that lays pages out, so it knows no settings and no tool."""

from __future__ import annotations

from inscriptis import get_text
from inscriptis.css_profiles import CSS_PROFILES
from inscriptis.model.config import ParserConfig
from lxml.etree import LxmlError

from toolfleet.errors import ToolError


def page_text(page: bytes, charset: str) -> str:
    """The text of an HTML page, laid out as a reader would see it. Raises ToolError for what is no page.

    Takes time that a stranger chooses: to be called in a bounded child.
    """
    html = page.decode(charset, "replace")
    if not html.strip():
        return ""
    try:
        text = get_text(html, ParserConfig(css=CSS_PROFILES["strict"].copy()))
    except (LxmlError, ValueError, RecursionError) as error:
        raise ToolError(f"the page cannot be read as HTML: {type(error).__name__}") from None
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(line for position, line in enumerate(lines) if line or (position and lines[position - 1])).strip()
