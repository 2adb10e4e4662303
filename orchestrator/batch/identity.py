"""Which run belongs to which line: ids that are derived, so that whoever starts the batch again finds the same runs.

Pure. The ids say nothing of where a line stands; two lines are the same when batch, model and line id are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

from toolfleet.orchestrator.errors import InvalidBatchId

LEGAL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

DERIVED_CHARS: Final = 12
MODEL_CHARS: Final = 6
LINE_CHARS: Final = 20
"""80 bits: among a million lines two with one id are less likely than 1 in 10^12."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A batch's name, and the beginning that all of its run ids share."""

    batch_id: str
    prefix: str

    @classmethod
    def given(cls, batch_id: str, *, model: str, id_prefix: str = "") -> Self:
        """A batch under a name of the user's; `id_prefix` names its shard. Raises InvalidBatchId."""
        if not LEGAL.fullmatch(batch_id):
            raise InvalidBatchId(f"the batch id {batch_id!r} must be 1 to 64 letters, digits, - and _")
        # Another model's runs are other runs: nobody who asks this one could go on with them.
        return cls(batch_id, f"{id_prefix}{batch_id}-{_digest(model.encode())[:MODEL_CHARS]}-")

    @classmethod
    def derived(cls, content_sha256: str, options: Mapping[str, Any], *, model: str, id_prefix: str = "") -> Self:
        """The batch of this input, run in this manner."""
        described = orjson.dumps([content_sha256, dict(options)], option=orjson.OPT_SORT_KEYS)
        return cls.given(f"batch-{_digest(described)[:DERIVED_CHARS]}", model=model, id_prefix=id_prefix)

    def run_id(self, line_id: str | int) -> str:
        """The run of a line; 1 and "1" are one id."""
        return self.prefix + _digest(str(line_id).encode())[:LINE_CHARS]

    def is_ours(self, run_id: str) -> bool:
        """Whether a run belongs to this batch."""
        return run_id.startswith(self.prefix) and len(run_id) == len(self.prefix) + LINE_CHARS


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
