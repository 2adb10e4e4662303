"""What people say of a new version of a tool: which share of new runs gets it. Kept sealed in Redis, with its history.

Knows how it is kept and what it means for a run; who reads it is the catalog, who judges it is `trials.py`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, cast

import redis.asyncio
from pydantic import Field, ValidationError

from toolfleet.calls import MAX_VERSION, Record
from toolfleet.errors import Refused
from toolfleet.keys import Keys
from toolfleet.orchestrator.errors import InvalidVersion
from toolfleet.scripts import lua
from toolfleet.skipped import skip, text_of
from toolfleet.tool import ToolSpec
from toolfleet.wire import Seal

CHANGE: Final = lua(__package__, "change_share")

HISTORY_MAX: Final = 20
"""How many of the newest words about a tool are kept."""

TRIES: Final = 10

Action = Literal["share", "abandon", "taken back"]


class ShareSaid(Record):
    """One word about a version: who has said it, when, and why."""

    at_unix_s: float
    by: str
    action: Action
    version: int
    share: float
    why: str = ""


class VersionShare(Record):
    """Which share of new runs gets one version of a tool, the others getting the highest of the other versions."""

    v: Literal[1] = 1
    tool: str
    version: int = Field(ge=1, le=MAX_VERSION)
    share: float = Field(ge=0, le=1)
    since_ms: int
    """When the trial began: what came of calls before it is not counted."""
    history: tuple[ShareSaid, ...] = ()
    """The newest word last."""


class Trial(NamedTuple):
    """A version that some new runs get, while another one is live."""

    version: int
    other: int
    """What the others get; 0 for the tool without a version."""
    share: float
    since_ms: int

    def version_of(self, tool: str, root: str) -> int:
        """Return what a run gets that this one began: the same whenever and wherever it is asked."""
        digest = hashlib.sha256(f"{tool}\0{root}".encode()).digest()
        return self.version if int.from_bytes(digest[:8]) < self.share * 2**64 else self.other


def trials_of(shares: Mapping[str, VersionShare], versions: Mapping[str, Mapping[int, ToolSpec]]) -> dict[str, Trial]:
    """Return what is tried now: of tools of which the version and another one are live."""
    found = {}
    for tool, said in shares.items():
        others = [each for each in versions.get(tool, ()) if each != said.version]
        if others and said.version in versions[tool]:
            found[tool] = Trial(said.version, max(others), said.share, said.since_ms)
    return found


class VersionShares:
    """What is said, in Redis. All methods raise StoreUnreachable."""

    def __init__(self, client: redis.asyncio.Redis, keys: Keys, seal: Seal) -> None:
        self._client = client
        self._key = keys.version_shares()
        self._seal = seal
        self._change = client.register_script(CHANGE)

    async def read(self) -> dict[str, VersionShare]:
        """Return what is said, by tool. What nobody of the fleet has said is passed over."""
        found = cast("dict[bytes, bytes]", await self._client.hgetall(self._key))
        opened = {text_of(tool): self._open(text_of(tool), sealed) for tool, sealed in sorted(found.items())}
        return {tool: said for tool, said in opened.items() if said is not None}

    async def change(
        self, tool: str, changed: Callable[[VersionShare | None], VersionShare | None]
    ) -> VersionShare | None:
        """Say something else of a tool, made of what was said before; None: nothing any more. Returns what stands now.

        `changed` may be asked again where others speak at the same time.
        """
        for _ in range(TRIES):
            sealed = cast("bytes | None", await self._client.hget(self._key, tool)) or b""
            before = self._open(tool, sealed) if sealed else None
            after = changed(before)
            if after == before and before is not None:
                return before
            text = b"" if after is None else self._seal.close_kept(after.model_dump_json().encode(), self._name(tool))
            if await self._change(keys=[self._key], args=[tool, sealed, text]):
                return after
        raise InvalidVersion(f"others say something of {tool} all the time: nothing was changed")

    def _open(self, tool: str, sealed: bytes) -> VersionShare | None:
        try:
            said = VersionShare.model_validate_json(self._seal.open_kept(sealed, self._name(tool)), extra="ignore")
        except (Refused, ValidationError) as error:
            skip("version_share", "wrong shape" if isinstance(error, ValidationError) else str(error), tool=tool[:200])
            return None
        return said

    def _name(self, tool: str) -> str:
        return f"{self._key}\0{tool}"


def with_word(said: VersionShare, action: Action, by: str, why: str = "") -> VersionShare:
    """Return what is said, with who has said it last."""
    word = ShareSaid(at_unix_s=time.time(), by=by, action=action, version=said.version, share=said.share, why=why)
    return said.model_copy(update={"history": (*said.history, word)[-HISTORY_MAX:]})
