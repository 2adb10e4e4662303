"""What happened, a line each, written by tools and models themselves; it outlives every process of the fleet."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LEDGER: Final = "SOAK_LEDGER"
"""Names the file."""

EFFECT, ANSWER = "effect", "answer"
WRONG, DOUBT = "wrong", "doubt"


def note(*words: object) -> None:
    """Write a line, whole even when the process is killed right after."""
    file = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, (" ".join(map(str, words)) + "\n").encode())
    finally:
        os.close(file)


@dataclass(frozen=True)
class Verdict:
    """What the ledger says of all calls."""

    lost: int
    """Runs that were never answered, and calls that were told as done and have left no effect."""
    duplicated: int
    """Calls with an effect that may happen once, and happened again."""
    mispaired: int
    """Calls whose message was another one's, or none that a call can have."""
    in_doubt: int
    """Calls that may have happened when their worker was killed, which their messages say."""

    @property
    def is_clean(self) -> bool:
        """Whether every promise held."""
        return not (self.lost or self.duplicated or self.mispaired)


class Reader:
    """Reads on from where it was."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self.answered: set[int] = set()
        self._effects: Counter[str] = Counter()
        self._wrong: set[str] = set()
        self._doubtful: set[str] = set()

    def read_on(self) -> None:
        """Take in the lines that were written since."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        end = text.rfind(b"\n") + 1
        self._at += end
        for line in text[:end].decode().splitlines():
            what, *words = line.split()
            if what == EFFECT:
                self._effects[words[0]] += 1
            elif what == ANSWER:
                self.answered.add(int(words[0]))
            elif what == WRONG:
                self._wrong.add(words[0])
            elif what == DOUBT:
                self._doubtful.add(words[0])

    def verdict(self, runs: int, calls_each: int) -> Verdict:
        """Judge so many runs."""
        self.read_on()
        made = {f"{run}.{call}" for run in self.answered for call in range(calls_each)}
        silent = made - self._effects.keys() - self._doubtful - self._wrong
        return Verdict(
            lost=runs - len(self.answered) + len(silent),
            duplicated=sum(times > 1 for nonce, times in self._effects.items() if is_once(nonce)),
            mispaired=len(self._wrong),
            in_doubt=len(self._doubtful),
        )


def is_once(nonce: str) -> bool:
    """Every other call has an effect that may not happen twice."""
    return int(nonce.rpartition(".")[2]) % 2 == 0
