"""A fleet whose workers and orchestrators come to Redis as the users of deploy/redis-acl.example."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import redis

from toolfleet.local.embedded_server import EmbeddedServer
from toolfleet.local.fleet import LocalFleet, WorkerProcess
from toolfleet.settings import Settings, new_secret, read_settings

EXAMPLE = Path(__file__).parents[2] / "deploy" / "redis-acl.example"
ORCHESTRATOR = "toolfleet-orchestrator:orchestrator-example-password"
WORKER = "toolfleet-worker:worker-example-password"


def set_users(admin: redis.Redis) -> None:
    """Load the users of the example, with an administrator beside them who is the test."""
    admin.execute_command("CONFIG", "SET", "acllog-max-len", "1000")
    admin.execute_command("ACL", "SETUSER", "test", "on", ">test", "~*", "&*", "+@all")
    for words in (line.split() for line in EXAMPLE.read_text().splitlines() if line.startswith("user ")):
        admin.execute_command("ACL", "SETUSER", *words[1:])


def refusals(admin: redis.Redis) -> set[tuple[str, ...]]:
    """What was refused: user, reason and object of each."""
    found = set()
    for entry in admin.execute_command("ACL", "LOG", "1000"):
        pairs = entry.items() if isinstance(entry, dict) else zip(entry[::2], entry[1::2], strict=True)
        facts = {_text(name): _text(value) for name, value in pairs}
        found.add(tuple(facts[name] for name in ("username", "reason", "context", "object")))
    return found


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


class GuardedFleet(LocalFleet):
    """As LocalFleet. `admin` is a client that may do all; `settings` are an orchestrator's."""

    admin: redis.Redis
    _address: str

    def start_worker(self, pool: str, *options: str, environment: Mapping[str, str] | None = None) -> WorkerProcess:
        own = {"TOOLFLEET_REDIS_URL": self._url_of(WORKER)}
        return super().start_worker(pool, *options, environment={**own, **(environment or {})})

    def refused(self) -> set[tuple[str, ...]]:
        return refusals(self.admin)

    def _url_of(self, user: str) -> str:
        return f"redis://{user}@{self._address}/0"

    def _settings(self, stack: ExitStack) -> Settings:
        server = stack.enter_context(EmbeddedServer(port=0, temporary=True))
        self._address = server.url.removeprefix("redis://").partition("/")[0]
        with redis.Redis.from_url(server.url) as first:
            set_users(first)
        self.admin = stack.enter_context(redis.Redis.from_url(self._url_of("test:test")))
        return read_settings(
            redis_url=self._url_of(ORCHESTRATOR),
            **{"secret": new_secret(), "namespace": "toolfleet", **self._overrides},
        )
