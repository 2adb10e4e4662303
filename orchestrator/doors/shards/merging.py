"""The answers of all shards as one. Pure: what each has said as JSON, by its name, in the order of the settings."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, zip_longest
from typing import Any, Final

Json = dict[str, Any]
Said = Mapping[str, Json]


def merged(path: str, said: Said, *, limit: int) -> Json:
    """Return one answer for a path of `places.LISTS`, or for one queue."""
    return (MERGERS.get(path) or _queue)(said, limit)


def _workers(said: Said, _limit: int) -> Json:
    return {"workers": sorted(_all(said, "workers"), key=lambda worker: str(worker["worker"]))}


def _tools(said: Said, _limit: int) -> Json:
    tools = {tool["name"]: tool for tool in reversed(list(_all(said, "tools")))}
    return {"tools": [tools[name] for name in sorted(tools)]}


def _queues(said: Said, _limit: int) -> Json:
    return {"queues": _of_all_queues(_all(said, "queues"))}


def _queue(said: Said, _limit: int) -> Json:
    [queue] = _of_all_queues(said.values())
    return queue


def _of_all_queues(queues: Iterable[Json]) -> list[Json]:
    by_name: dict[str, Json] = {}
    for queue in queues:
        name = queue["queue"]
        by_name[name] = _added(by_name[name], queue) if name in by_name else queue
    return [by_name[name] for name in sorted(by_name)]


def _added(one: Json, other: Json) -> Json:
    """Return how a queue stands that is on two shards: all is added up but its name and when its oldest call came."""
    oldest = [each["oldest_unix_s"] for each in (one, other) if each["oldest_unix_s"] is not None]
    numbers = {name: value + other[name] for name, value in one.items() if isinstance(value, int)}
    by_priority: Counter[str] = Counter(one["waiting_by_priority"]) + Counter(other["waiting_by_priority"])
    named = dict.fromkeys([*one["waiting_by_priority"], *other["waiting_by_priority"]], 0)
    return {**one, **numbers, "oldest_unix_s": min(oldest, default=None), "waiting_by_priority": named | by_priority}


def _overview(said: Said, limit: int) -> Json:
    runs = [each["runs"] for each in said.values()]
    by_state: Counter[str] = Counter()
    for each in runs:
        by_state.update(each["by_state"])
    numbers = {name: sum(each[name] for each in runs) for name in ("stored", "awaiting_approval")}
    queues = [each["queues"] for each in said.values()]
    return {
        "runs": {**numbers, "by_state": dict(by_state)},
        **_workers(said, limit),
        "queues": None if None in queues else _of_all_queues(chain(*queues)),
    }


def _found(said: Said, _limit: int) -> Json:
    return {"found": list(_all(said, "found"))}


def _approvals(said: Said, limit: int) -> Json:
    lists = [each["approvals"] for each in said.values()]
    waiting = list(heapq.merge(*lists, key=lambda call: float(call["since_unix_s"])))
    first = set(list(dict.fromkeys(call["run_id"] for call in waiting))[:limit])
    return {"approvals": [call for call in waiting if call["run_id"] in first]}


def _questions(said: Said, limit: int) -> Json:
    waiting = sorted(_all(said, "questions"), key=lambda asked: float(asked["asked_unix_s"]))
    first = set(list(dict.fromkeys(asked["call_id"] for asked in waiting))[:limit])
    return {"questions": [asked for asked in waiting if asked["call_id"] in first]}


def _handles(said: Said, limit: int) -> Json:
    # Each shard has an order of its own, so they take turns.
    in_turn = chain(*zip_longest(*(each["handles"] for each in said.values())))
    return {"handles": [handle for handle in in_turn if handle is not None][:limit]}


def _batches(said: Said, limit: int) -> Json:
    found = sorted(_all(said, "batches"), key=lambda batch: -float(batch["updated_unix_s"]))
    return {"batches": found[:limit]}


def _schedules(said: Said, limit: int) -> Json:
    found = sorted(_all(said, "schedules"), key=lambda schedule: -float(schedule["made_unix_s"]))
    return {"schedules": found[:limit]}


def _spending(said: Said, _limit: int) -> Json:
    spent: Counter[str] = Counter()
    for each in said.values():
        for tool, usd in each["usd_by_tool"].items():
            spent[tool] += usd
    return {"usd_by_tool": dict(spent)}


def _all(said: Said, name: str) -> Iterable[Json]:
    return chain(*(each[name] for each in said.values()))


MERGERS: Final[Mapping[str, Callable[[Said, int], Json]]] = {
    "/v1/workers": _workers,
    "/v1/tools": _tools,
    "/v1/queues": _queues,
    "/v1/overview": _overview,
    "/v1/find": _found,
    "/v1/approvals": _approvals,
    "/v1/questions": _questions,
    "/v1/handles": _handles,
    "/v1/batches": _batches,
    "/v1/schedules": _schedules,
    "/v1/spending": _spending,
}
