"""What a worker announces of itself: the record both halves read, in Redis for as long as the worker lives."""

from __future__ import annotations

from typing import Literal

from toolfleet.calls import Record
from toolfleet.tool import ToolSpec


class Announcement(Record):
    """One live worker and the tools it serves."""

    v: Literal[1] = 1
    worker: str
    pid: int
    pool: str
    concurrency: int
    queues: tuple[str, ...]
    started_unix_s: float
    tools: tuple[ToolSpec, ...]
    proofs: tuple[str, ...] = ()
    """What shows that it has the fleet's secret, see `Seal.proofs`."""
