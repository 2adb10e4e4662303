"""What others' servers send compressed, unpacked in pieces of bounded size: a few KB may stand for GB. No I/O."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

PIECE_BYTES: Final = 64 * 1024
_NONE: Final = frozenset({"", "identity"})
_GZIP: Final = frozenset({"gzip", "x-gzip"})
_DEFLATE: Final = "deflate"
_GZIP_OR_ZLIB: Final = zlib.MAX_WBITS | 32
_BARE: Final = -zlib.MAX_WBITS


class CannotUnpack(Exception):  # not one of ours: whoever asked says which server, and what follows
    """The body is compressed in a way that we do not know, or not at all; the text says which."""


class Unpacker:
    """Unpacks one body, whatever the case of its Content-Encoding. Raises CannotUnpack for one it does not know."""

    def __init__(self, encoding: str) -> None:
        encoding = encoding.strip().lower()
        if encoding not in _NONE | _GZIP | {_DEFLATE}:
            raise CannotUnpack(f"compressed its answer with {encoding[:40]}, which was not asked for")
        self._is_plain = encoding in _NONE
        self._may_be_bare = encoding == _DEFLATE
        self._unpacking = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)

    @property
    def is_whole(self) -> bool:
        """Whether the body may end here."""
        return self._is_plain or self._unpacking.eof

    def unpacked(self, piece: bytes) -> Iterator[bytes]:
        """Yield what a further piece of the body stands for. Raises CannotUnpack for what is not compressed."""
        if self._is_plain:
            yield piece
            return
        while piece and not self._unpacking.eof:
            yield self._next(piece)
            piece = self._unpacking.unconsumed_tail

    def _next(self, piece: bytes) -> bytes:
        try:
            found = self._unpacking.decompress(piece, PIECE_BYTES)
        except zlib.error as error:
            if not self._may_be_bare:
                raise CannotUnpack("sent what is not compressed as it says") from error
            # Some servers leave the header of "deflate" out (RFC 9110, 8.4.1.2).
            self._may_be_bare = False
            self._unpacking = zlib.decompressobj(wbits=_BARE)
            return self._next(piece)
        self._may_be_bare = False
        return found
