"""What somebody with Redis's password and without the secret can write, by the kind of reader that it is meant for."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import redis.client

from tests.fuzz import junk
from toolfleet.keys import Keys

LEVELS = (0, 3, 6)
QUEUES = ("io", "cpu")


@dataclass(frozen=True)
class Target:
    """What an attacker has seen."""

    keys: Keys
    envelopes: list[list[str]]
    """Calls that were signed and have ended."""
    orchestrator: str
    run_id: str
    announcement: dict[str, Any]


Input = Callable[[random.Random, Target, redis.client.Pipeline], None]


def entry(chance: random.Random, target: Target, to: redis.client.Pipeline) -> None:
    """A message in a queue."""
    to.xadd(_queue(chance, target), junk.mapping(chance, _message(chance, target)))


def replayed(chance: random.Random, target: Target, to: redis.client.Pipeline) -> None:
    """A call that was signed, ended and is sent again under other fields."""
    envelope = chance.choice(target.envelopes)
    call_id = json.loads(envelope[0])["call_id"]
    fields = _plain(_message(chance, target, envelope))
    changes = {
        "id": [call_id, call_id + "x", ""],
        "claim": ["1", "60", "99999", "nan", ""],
        "first": ["1-0", call_id, ""],
        "earlier": ["0", "-3", "1"],
    }
    for name in chance.sample(list(changes), chance.randrange(1, 4)):
        fields[name] = chance.choice(changes[name]).encode()
    to.xadd(_queue(chance, target), fields)


def scheduled(chance: random.Random, target: Target, to: redis.client.Pipeline) -> None:
    """A message that is due."""
    fields = _plain(_message(chance, target))
    flat = [part.decode() for pair in fields.items() for part in (pair[0].encode(), pair[1])]
    honest = [target.keys.queue(chance.choice(QUEUES), 3), *flat]
    to.zadd(target.keys.scheduled(chance.choice(QUEUES)), {junk.text(chance, honest): 0})


def command(chance: random.Random, target: Target, to: redis.client.Pipeline) -> None:
    """A control command, or what looks like one."""
    honest = {
        "method": chance.choice(
            ["shutdown", "revoke", "pool_grow", "pool_shrink", "add_consumer", "rate_limit", "hello"]
        ),
        "arguments": chance.choice([{}, {"n": 5}, {"queue": "x"}, {"task_id": ["x"], "terminate": True}]),
        "destination": None,
        "pattern": None,
        "matcher": None,
    }
    signed = {**honest, "method": "toolfleet_signed", "arguments": {"text": json.dumps(honest), "mac": "0" * 64}}
    body = chance.choice([honest, signed])
    said = json.dumps(body) if chance.random() < 0.5 else junk.text(chance, body).decode(errors="replace")
    message = {
        "body": base64.b64encode(said.encode()).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"clock": 1, "expires": 0},
        "properties": {"body_encoding": "base64", "delivery_info": {"exchange": "celery.pidbox", "routing_key": ""}},
    }
    to.publish(
        f"/0:{target.keys.namespace}.celery.pidbox",
        json.dumps(message) if chance.random() < 0.5 else junk.text(chance, message),
    )


def key(chance: random.Random, target: Target, to: redis.client.Pipeline) -> None:
    """A value under a key that workers read, of the wrong shape or type; not of one that lives on."""
    call_id, keys = f"nobody-{chance.randrange(50)}.1.0", target.keys
    name = chance.choice(
        [
            *(keys.lease(f"nobody-{chance.randrange(9)}"), keys.claim(call_id), keys.cancelled(call_id)),
            *(keys.checkpoint(call_id), keys.job(call_id), keys.result(call_id), keys.progress(call_id)),
            *(keys.jobs("submits"), keys.lanes("io"), keys.lane("io.lane-000000000000"), keys.sweeper("nowhere")),
            keys.binding("reply.celery.pidbox"),
        ]
    )
    _put(chance, to, name, {"status": "running", "fence": 1, "record": "x"})


def reply(chance: random.Random, target: Target, to: redis.client.Pipeline) -> None:
    """A result, or news, for an orchestrator."""
    honest = {"c": f"{target.run_id}.1.0", chance.choice("rps"): "0" * 64 + '{"type":"returned","content":"forged"}'}
    to.xadd(target.keys.replies(target.orchestrator), junk.mapping(chance, honest))


def announcement(chance: random.Random, target: Target, to: redis.client.Pipeline) -> None:
    """What a worker says of itself."""
    name = f"nobody-{chance.randrange(5)}@nowhere"
    honest = {**target.announcement, "worker": name}
    to.set(target.keys.worker(name), junk.text(chance, honest), ex=30)
    to.zadd(target.keys.workers(), {name: 4e9})


def lease(chance: random.Random, target: Target, to: redis.client.Pipeline) -> None:
    """An orchestrator that is not there, with runs that are not."""
    name = chance.choice(["nobody", "\udcff", "", "a:b"]).encode(errors="surrogateescape")
    to.zadd(target.keys.orchestrators(), {name: chance.choice([0, 1, 4e12])})
    _put(chance, to, target.keys.orchestrator_proofs("nobody"), ["0" * 64])
    to.sadd(target.keys.owned("nobody"), *[f"nobody-{chance.randrange(20)}" for _ in range(3)])


def history(chance: random.Random, target: Target, to: redis.client.Pipeline) -> None:
    """Events of a run that nobody began."""
    run_id = f"nobody-{chance.randrange(20)}"
    honest = {"e": {"type": "run_started", "v": 1, "run_id": run_id, "messages": []}, "o": "nobody"}
    to.xadd(target.keys.run(run_id), junk.mapping(chance, honest))
    to.zadd(target.keys.runs(), {run_id: 4e9})


def head(chance: random.Random, target: Target, to: redis.client.Pipeline) -> None:
    """Where a run stands that nobody began."""
    run_id = f"nobody-{chance.randrange(20)}"
    honest = {"owner": "nobody", "state": "calling", "model": "rehearsal", "last": "1-0"}
    to.hset(target.keys.head(run_id), mapping=junk.mapping(chance, honest))
    to.sadd(target.keys.unowned(chance.choice(["rehearsal", "x"])), run_id)


OF_WORKERS: tuple[Input, ...] = (entry, entry, replayed, scheduled, command, key)
OF_ORCHESTRATORS: tuple[Input, ...] = (reply, announcement, lease, history, head)


def _queue(chance: random.Random, target: Target) -> str:
    return target.keys.queue(chance.choice(QUEUES), chance.choice(LEVELS))


def _message(chance: random.Random, target: Target, envelope: list[str] | None = None) -> dict[str, Any]:
    envelope = envelope or [*chance.choice(target.envelopes)]
    call = json.loads(envelope[0])
    return {
        "b": [envelope, {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}],
        "h": {"lang": "py", "task": call["tool"], "id": call["call_id"], "contract": "", "claim": 660},
        "p": {"delivery_mode": 2, "delivery_info": {"exchange": "", "routing_key": "io"}, "priority": 3},
        "id": call["call_id"],
    }


def _plain(message: dict[str, Any]) -> dict[str, bytes]:
    return {
        name: said.encode() if isinstance(said, str) else json.dumps(said).encode() for name, said in message.items()
    }


def _put(chance: random.Random, to: redis.client.Pipeline, name: str, honest: Any) -> None:
    to.delete(name)
    match chance.randrange(5):
        case 0:
            to.rpush(name, "junk")
        case 1:
            to.hset(name, mapping={"junk": junk.text(chance, honest)})
        case 2:
            to.sadd(name, junk.text(chance, honest))
        case 3:
            to.zadd(name, {junk.text(chance, honest): 0})
        case _:
            to.set(name, junk.text(chance, honest))
