"""`toolfleet serve` as a process of its own, whose memory can be looked at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.cli.command import Terminal, interrupted, read_until
from toolfleet.settings import Settings

MIB = 1024 * 1024


@dataclass(frozen=True)
class Served:
    """One such process."""

    url: str
    folder: Path
    process: psutil.Process
    settings: Settings

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    @property
    def key(self) -> str:
        """The key of whoever started it."""
        return (self.folder / "data" / "toolfleet" / "api.key").read_text().strip()

    @property
    def local_key(self) -> dict[str, str]:
        """It, as headers."""
        return {"authorization": f"Bearer {self.key}"}

    @property
    def memory_mib(self) -> int:
        return int(self.process.memory_info().rss // MIB)


@contextmanager
def serving(settings: Settings, folder: Path, **variables: str) -> Iterator[Served]:
    """The API of a fleet, in a process of its own, with the rehearsal model."""
    terminal = Terminal(folder, {**settings.as_environment(), **variables})
    with terminal.start("serve", "--port", "0") as process:
        said = read_until(process, "Ready")
        url = re.search(r"http://\S+?:\d+", next(line for line in said if line.startswith("API:")))
        assert url is not None
        yield Served(url[0], folder, psutil.Process(process.pid), settings)
        interrupted(process)
    terminal.until_nothing_is_left()
