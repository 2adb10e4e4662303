"""Dead letters over HTTP: what no worker could handle, counted, listed, put back or dropped, by tool and reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, StrictBool
from redis.asyncio.lock import Lock
from redis.exceptions import LockError

from toolfleet.broker import celery_app
from toolfleet.orchestrator.doors.http.access import Admin
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.problems import Problem, ProblemDetails
from toolfleet.orchestrator.doors.http.records import Place, RunBody
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.fleet.publishers import publisher_for
from toolfleet.orchestrator.status.dead_letters import LOOKED_AT, DeadLetter, DeadLetters, Look, NotReplayed, Replay

router = APIRouter(prefix="/v1/dead", tags=["dead letters"], route_class=JsonRoute)

AT_ONCE: Final = 100
"""Letters in one batch."""

LOCKED_FOR_S: Final = 120
"""How long nobody else puts letters back or drops them, if the process that does so is lost. Anew for each portion."""

REASONS_TOLD: Final = 20

CHANGED: Final[dict[int | str, dict[str, Any]]] = {
    409: {"model": ProblemDetails, "description": "There are not as many as was said, or somebody else is at it"}
}


class Chosen(RunBody):
    """Which letters are meant."""

    tool: Annotated[str, Field(max_length=1000)] = Field(
        default="", description="Only letters about calls of this tool."
    )
    reason: Annotated[str, Field(max_length=1000)] = Field(
        default="", description="Only letters whose reason contains this, in capitals or not."
    )
    after: Annotated[str, Field(max_length=50)] = Field(
        default="",
        description="`after` of the page that you have: only letters older than that.",
        json_schema_extra={"pattern": "^([1-9][0-9]{0,18}-[0-9]{1,19})?$", "examples": [""]},
    )

    def includes(self, letter: DeadLetter) -> bool:
        """Return whether a letter is meant."""
        return self.tool in {"", letter.tool} and self.reason.casefold() in letter.reason.casefold()


class LettersAsked(Chosen):
    """Which letters to list."""

    limit: Annotated[int, Field(ge=1, le=500)] = 50


class Handled(Chosen):
    """Letters to put back or to drop: all that are meant, so their number is said, too."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"tool": "echo", "expected": 3}]})

    expected: Place = Field(
        description="How many there are, as `GET /v1/dead` counts them: if there are others, nothing is done."
    )


class ToReplay(Handled):
    """Letters to put back."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "crashed", "expected": 3}]})

    force: StrictBool = Field(
        default=False, description="Also calls whose effect may happen twice, and those that have a result by now."
    )


class LetterView(BaseModel):
    """A dead letter."""

    letter_id: str
    tool: str
    call_id: str
    queue: str
    reason: str
    deliveries: int | None
    buried_unix_s: float

    @classmethod
    def of(cls, letter: DeadLetter) -> LetterView:
        """Make it of a letter, without what stands in it."""
        own = {name: getattr(letter, name) for name in cls.model_fields if name != "buried_unix_s"}
        return cls(**own, buried_unix_s=letter.buried_at.timestamp())


class LetterList(BaseModel):
    """Dead letters, the newest first, and how many there are like them among those that were looked through."""

    count: int
    """How many are meant, listed here or not."""
    is_at_least: bool = Field(description=f"Whether there may be more: {LOOKED_AT} letters are looked through at once.")
    by_tool: dict[str, int]
    by_reason: dict[str, int]
    """The most frequent reasons."""
    letters: list[LetterView]
    after: str | None = Field(description="What the next page is asked for with; null behind the last letter.")


class Outcome(BaseModel):
    """What became of the letters that were meant."""

    done: int
    """How many were put back, or dropped."""
    refused: int = 0
    """How many still lie there."""
    why: dict[str, int] = {}
    """Why, and how often; the most frequent reasons."""


@router.get("")
async def list_letters(wanted: Annotated[LettersAsked, Query()], _grant: Admin, door: Through) -> LetterList:
    """Count the dead letters of a tool, or with some reason, and list the newest of them."""
    look = await _meant(door, wanted)
    letters = look.found
    after = letters[wanted.limit - 1].letter_id if len(letters) > wanted.limit else look.after
    return LetterList(
        count=len(letters),
        is_at_least=bool(look.after),
        by_tool=dict(Counter(letter.tool for letter in letters).most_common(REASONS_TOLD)),
        by_reason=dict(Counter(letter.reason for letter in letters).most_common(REASONS_TOLD)),
        letters=[LetterView.of(letter) for letter in letters[: wanted.limit]],
        after=after or None,
    )


@router.post("/replay", responses=CHANGED)
async def replay(asked: ToReplay, _grant: Admin, door: Through) -> Outcome:
    """Put all letters that are meant back into their queues, each once. What was not signed here never is."""
    async with alone(door, "replay") as portions:
        letters = await _expected(door, asked)
        app = celery_app(door.settings)
        publisher = publisher_for(door.settings, door.client, app)
        try:
            replaying = Replay(door.client, door.settings, publisher)
            outcomes = [
                outcome
                async for portion in portions.of(letters)
                for outcome in await replaying.replay(portion, force=asked.force)
            ]
        finally:
            await publisher.aclose()
            app.close()
    refused = Counter(outcome.why for outcome in outcomes if isinstance(outcome, NotReplayed))
    return Outcome(
        done=len(outcomes) - refused.total(), refused=refused.total(), why=dict(refused.most_common(REASONS_TOLD))
    )


@router.post("/drop", responses=CHANGED)
async def drop(asked: Handled, _grant: Admin, door: Through) -> Outcome:
    """Delete all letters that are meant, for good."""
    async with alone(door, "drop") as portions:
        letters = await _expected(door, asked)
        dead = DeadLetters(door.client, door.settings)
        dropped = [await dead.drop(portion) async for portion in portions.of(letters)]
    return Outcome(done=sum(dropped))


async def _meant(door: Door, chosen: Chosen) -> Look:
    return await DeadLetters(door.client, door.settings).look(chosen.includes, after=chosen.after)


async def _expected(door: Door, asked: Handled) -> Sequence[DeadLetter]:
    """Return the letters that are meant. Raises Problem where there are not as many as was said."""
    letters = (await _meant(door, asked)).found
    if len(letters) != asked.expected:
        detail = f"there are {len(letters)} such letters now, not {asked.expected}: look again"
        raise Problem(HTTPStatus.CONFLICT, detail, code="count-changed", count=len(letters))
    return letters


class Portions:
    """Gives letters out in portions, each only while nobody else may have them."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    async def of(self, letters: Sequence[DeadLetter]) -> AsyncIterator[Sequence[DeadLetter]]:
        """Yield one after the other. Raises Problem once the lock has lapsed: then another one may be at them."""
        for start in range(0, len(letters), AT_ONCE):
            try:
                await self._lock.reacquire()
            except LockError:
                detail = f"it took too long, and stopped after {start} of {len(letters)} letters: look again"
                raise Problem(HTTPStatus.CONFLICT, detail, code="at-it-already") from None
            yield letters[start : start + AT_ONCE]


@asynccontextmanager
async def alone(door: Door, what: Literal["replay", "drop"]) -> AsyncIterator[Portions]:
    """Do it while nobody else does: a letter that two put back at once would be two calls. Raises Problem."""
    lock = door.client.lock(door.settings.keys.handling_dead(), timeout=LOCKED_FOR_S, blocking=False)
    if not await lock.acquire():
        detail = f"somebody is putting dead letters back, or dropping them, at this moment: {what} them afterwards"
        raise Problem(HTTPStatus.CONFLICT, detail, code="at-it-already")
    try:
        yield Portions(lock)
    finally:
        with suppress(LockError):  # it has lapsed: another one's is not ours to release
            await lock.release()
