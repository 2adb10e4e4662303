"""Which charsets of a stranger's text are decoded: those of the web, whose cost grows with the text and no faster.

Python knows more, among them `punycode`, which takes minutes for a page, and codecs that decompress.
"""

from __future__ import annotations

import codecs
from email.message import Message
from typing import Final

WEB: Final = frozenset(
    codecs.lookup(name).name
    for name in (
        *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "ascii", "utf-8-sig"),
        *(f"iso-8859-{part}" for part in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 16)),
        *(f"cp{page}" for page in (866, 874, 932, 949, 1250, 1251, 1252, 1253, 1254, 1255, 1256, 1257, 1258)),
        *("koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "tis-620"),
        *("gbk", "gb2312", "gb18030", "big5", "big5hkscs", "euc-jp", "iso-2022-jp", "shift_jis", "euc-kr"),
    )
)
"""Those of https://encoding.spec.whatwg.org, by the names of Python's codecs."""

MAX_NAME_CHARS: Final = 40
MAX_TYPE_CHARS: Final = 500


def charset_of(content_type: str) -> str:
    """The codec for what a Content-Type names; UTF-8 where it names none, or one that is not of the web."""
    header = Message()
    header["content-type"] = content_type[:MAX_TYPE_CHARS]
    name = str(header.get_param("charset") or "").strip()
    if not name.isascii() or len(name) > MAX_NAME_CHARS:
        return "utf-8"
    try:
        codec = codecs.lookup(name).name
    except (LookupError, ValueError):
        return "utf-8"
    return codec if codec in WEB else "utf-8"


def decoded(body: bytes, charset: str, max_chars: int) -> str:
    """The first characters of a text, of which no more than that is decoded; what is no text becomes U+FFFD."""
    # No character of these charsets has more than four bytes, but ISO-2022-JP has escapes of three between any two.
    head = body[: 8 * max_chars]
    return codecs.getincrementaldecoder(charset)("replace").decode(head, final=head == body)[:max_chars]
