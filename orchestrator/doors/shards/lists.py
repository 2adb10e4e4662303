"""Lists of all shards as one: each is asked for its part, by the keys and within the quotas of whoever asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

import orjson
from starlette.responses import Response
from starlette.types import Scope, Send

from toolfleet.orchestrator.doors.http.problems import Problem, path_of
from toolfleet.orchestrator.doors.shards.asking import Answer, ask
from toolfleet.orchestrator.doors.shards.merging import merged
from toolfleet.orchestrator.doors.shards.run_lists import Places, newest_of
from toolfleet.orchestrator.doors.shards.shard_api import ShardApi
from toolfleet.orchestrator.shards.members import Members
from toolfleet.shards import SEPARATOR

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 500

RUNS: Final = "/v1/runs"


class Lists:
    """Asks all shards."""

    def __init__(self, members: Members[ShardApi], shards: tuple[str, ...]) -> None:
        self._members = members
        self._shards = shards

    async def send(self, scope: Scope, send: Send) -> None:
        """Answer a request for a list: with `missing`, which says why some shards have no part in it."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if path_of(scope) == RUNS:
            told = await self._runs(scope, query)
        else:
            answers, missing = await self.ask_all(scope, dict.fromkeys(self._shards, query))
            told = self._told(path_of(scope), answers, missing, _limit(query))
        if isinstance(told, Answer):
            await told.send_on(send)
            return
        response = Response(orjson.dumps(told), media_type="application/json")
        await send({"type": "http.response.start", "status": 200, "headers": response.raw_headers})
        await send({"type": "http.response.body", "body": response.body})

    def _told(
        self, path: str, answers: Mapping[str, Answer], missing: Mapping[str, str], limit: int
    ) -> dict[str, Any] | Answer:
        good, missing = _sorted_out(answers, missing)
        if not good:
            return _none_of(answers, missing)
        said = {name: dict(each.said) for name, each in good.items()}
        return {**merged(path, said, limit=limit), "missing": missing}

    async def _runs(self, scope: Scope, query: list[tuple[str, str]]) -> dict[str, Any] | Answer:
        begins = Places.read(dict(query).get("before", ""), self._shards).by_shard
        size = dict(query).get("limit", str(DEFAULT_LIMIT))
        answers, missing = await self.ask_all(scope, {name: _page(query, begins[name], size) for name in begins})
        good, missing = _sorted_out(answers, missing)
        if begins and not good:
            return _none_of(answers, missing)
        pages = {name: each.said for name, each in good.items()}
        taken = newest_of(pages, _limit(query))
        ends, unknown = await self._ends(scope, query, begins, pages, taken)
        return {
            "runs": [run for name, run in taken if name not in unknown],
            "before": Places(ends).written(),
            "missing": {**missing, **unknown},
        }

    async def _ends(
        self,
        scope: Scope,
        query: list[tuple[str, str]],
        begins: Mapping[str, str],
        pages: Mapping[str, Mapping[str, Any]],
        taken: Sequence[tuple[str, Any]],
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return where the next page of each shard begins that has more, and of which that could not be learnt."""
        counts = Counter(name for name, _ in taken)
        parts = {name: counts[name] for name, page in pages.items() if 0 < counts[name] < len(page["runs"])}
        # Where a part of a page ends, only its shard knows.
        queries = {name: _page(query, begins[name], str(count)) for name, count in parts.items()}
        again, unknown = _sorted_out(*await self.ask_all(scope, queries))
        # That of one that is away, or whose runs are all older, begins where this one did.
        ends: dict[str, str | None] = dict(begins)
        ends |= {name: page["before"] for name, page in pages.items() if counts[name] == len(page["runs"])}
        ends |= {name: each.said["before"] for name, each in again.items()}
        return {name: end for name, end in ends.items() if end is not None}, unknown

    async def ask_all(
        self, scope: Scope, queries: Mapping[str, list[tuple[str, str]]]
    ) -> tuple[dict[str, Answer], dict[str, str]]:
        """Ask those shards that are named, each with its query. Returns their answers, and why the others gave none."""

        async def asked(api: ShardApi) -> Answer | None:
            return await ask(api, scope, queries[api.name]) if api.name in queries else None

        answers, missing = await self._members.each(asked)
        found = {name: each for name, each in answers.items() if each is not None}
        return found, {name: why for name, why in missing.items() if name in queries}


def _none_of(answers: Mapping[str, Answer], missing: Mapping[str, str]) -> Answer:
    """Return what is told where no shard has given a part: what is wrong with the request, if anything is."""
    for each in answers.values():
        if each.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return each
    raise nobody_answers(missing)


def nobody_answers(missing: Mapping[str, str]) -> Problem:
    """Return what is told where no shard can be asked."""
    return Problem(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "; ".join(f"shard {name}: {why}" for name, why in missing.items()),
        code="store-unreachable",
        headers={"retry-after": "2"},
        shards=list(missing),
    )


def _page(query: list[tuple[str, str]], before: str, size: str) -> list[tuple[str, str]]:
    """Return the query for a page of one shard."""
    rest = [(name, value) for name, value in query if name not in {"before", "limit"}]
    return [*rest, ("before", before), ("limit", size)]


def _sorted_out(answers: Mapping[str, Answer], missing: Mapping[str, str]) -> tuple[dict[str, Answer], dict[str, str]]:
    """Return the answers that have a part of it, and why the other shards have given none."""
    good = {name: each for name, each in answers.items() if each.status == HTTPStatus.OK}
    return good, {**missing, **{name: each.why for name, each in answers.items() if name not in good}}


def sought_in(scope: Scope, shards: tuple[str, ...]) -> str:
    """Return what is looked for, where it names the shard that it is on; "" otherwise."""
    sought = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("q", "")
    return sought if any(sought.startswith(name + SEPARATOR) for name in shards) else ""


def _limit(query: list[tuple[str, str]]) -> int:
    """Return how many are wanted; what is no such number, each shard refuses."""
    given = dict(query).get("limit", "")
    return (
        min(max(int(given), 1), MAX_LIMIT) if given.isascii() and given.isdigit() and len(given) < 5 else DEFAULT_LIMIT
    )
