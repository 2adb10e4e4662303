"""One frozen value with every setting: read once from the environment (`TOOLFLEET_…`), checked, passed in.

No other module reads the environment for a setting of this project.
"""

from __future__ import annotations

import os
import secrets as stdlib_secrets
from functools import cached_property, lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_core import to_json
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from toolfleet.arguments.parsing import MAX_BYTES, MAX_ELEMENTS, ArgumentLimits
from toolfleet.errors import InvalidSettings
from toolfleet.keys import RESULT_TTL_S, Keys
from toolfleet.misspelt import check_options
from toolfleet.prices import Price
from toolfleet.shards import SEPARATOR, Shards, key_of
from toolfleet.stream_urls import stream_url
from toolfleet.strict_json import MAX_DEPTH
from toolfleet.variables import misspelt

Seconds = Annotated[float, Field(gt=0)]

Network = IPv4Network | IPv6Network

MIN_SECRET_BYTES = 16

LONGEST_WEBHOOK_WAIT_S = 7 * 24 * 3600

DEFAULT_REDIS_URL = "redis://127.0.0.1:6379/0"


class Settings(BaseSettings):
    """How this fleet is set up. Times are seconds unless the name says otherwise.

    Raises UnknownOption for a setting that does not exist, and ValidationError for a wrong one or for a variable in the
    environment that begins with `TOOLFLEET_` and is nobody's.
    """

    model_config = SettingsConfigDict(env_prefix="TOOLFLEET_", frozen=True, extra="ignore")

    redis_url: str = DEFAULT_REDIS_URL
    """Where results, specs and (by default) the queues live: redis://, rediss://, unix:// or sentinel://.

    Unless it is set, the embedded server of this user is looked for first.
    """

    shards: str = ""
    """More than one Redis, by name: `a=redis://one:6379/0 b=redis://two:6379/0`, in place of `redis_url`. Each run is
    on one of them; ids without a shard's name are on the first. With `b*2=…` a shard gets twice as many new runs."""

    shard: str = ""
    """The one shard that this process is for. Without it, workers and orchestrators are for all of them."""

    broker_url: str | None = None
    """Celery's broker. None: Redis Streams on `redis_url`. Any Celery URL works, with that broker's own guarantees."""

    namespace: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] = "toolfleet"
    """The first part of every key: fleets that share a server differ here."""

    secret: SecretStr = SecretStr("")
    """Signs every call and result. Required unless Redis is on this machine."""

    previous_secret: SecretStr = SecretStr("")
    """Accepted besides, never used to sign: the new secret at first, then the old one, so that it is changed without an
    outage."""

    lease_s: Seconds = 30.0
    """A worker that shows no life for this long has lost its calls to others."""

    heartbeat_s: Seconds = 5.0
    """How often a worker renews its lease."""

    shutdown_grace_s: Annotated[float, Field(ge=0)] = 30.0
    """How long a worker that was asked to stop lets running calls end; then, or at a second signal, it gives them back.
    Ten seconds later it has gone."""

    wait_replicas: Annotated[int, Field(ge=0)] = 0
    """How many replicas of Redis must have a claim, a result or an entry of a run before anything follows from it, so
    that a failover loses none of them. While fewer have it nothing goes on."""

    wait_replicas_s: Annotated[float, Field(gt=0, le=4)] = 1.0
    """How long they may take, before it is tried again."""

    blocked_loop_s: Seconds = 120.0
    """A worker whose event loop a tool blocks for this long is ended; its log has the stack of what blocks it.

    Code that keeps Python's interpreter lock, and so cannot be looked at, has three times as long; so has a process
    that is frozen, whose lease has lapsed by then."""

    alive_dir: str = ""
    """A folder in which workers and orchestrators write files that say, by their times, that they still work. A probe
    that finds one older than 30 seconds should have the process restarted; deploy/README.md has such a probe."""

    metrics_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Where a worker, an orchestrator or the API answers `GET /metrics` for Prometheus, without a key; 0: nowhere.
    Where several processes share a machine, each needs a port of its own."""

    metrics_host: str = "127.0.0.1"
    """The address that this port is opened on. Whoever reaches it reads names of tools, models and queues."""

    max_deliveries: Annotated[int, Field(ge=1)] = 5
    """A call that lost this many workers ends as crashed: it probably kills them."""

    call_timeout_s: Seconds = 600.0
    """Deadline of a call that says nothing else, from request to result, time in the queue included."""

    long_call_timeout_s: Seconds = 7 * 24 * 3600.0
    """The same for long-running tools."""

    max_message_bytes: Annotated[int, Field(ge=1024)] = 4 * 1024 * 1024
    """A larger call is refused before it is sent and again before it is executed."""

    max_result_bytes: Annotated[int, Field(ge=1024)] = 256 * 1024
    """A larger result is kept as an artifact; the model gets a preview and may read on in it."""

    max_inline_media_bytes: Annotated[int, Field(ge=0)] = 64 * 1024
    """A larger image, or other media, is kept as an artifact beside the result."""

    max_artifact_bytes: Annotated[int, Field(ge=0)] = 16 * 1024 * 1024
    """What is larger still is not kept: results are cut, media lost, and the model is told. It is Redis's memory."""

    keep_artifact_s: Annotated[float, Field(ge=1)] = 7 * 24 * 3600.0
    """How long an artifact is kept after it was last looked at, unless its run is deleted."""

    call_log_level: Literal["debug", "info", "warning", "error", "off"] = "info"
    """The least severe lines of a tool's own logging that are kept for its call's page; `off`: none are."""

    call_log_lines: Annotated[int, Field(ge=1, le=10_000)] = 200
    """How many of a call's newest lines are kept, those of all its attempts together."""

    call_log_bytes: Annotated[int, Field(ge=1024, le=1024 * 1024)] = 16 * 1024
    """How much of them, likewise. It is Redis's memory."""

    keep_call_logs_s: Annotated[float, Field(ge=1)] = float(RESULT_TTL_S)
    """How long they are kept after the call's deadline, unless its run is deleted."""

    interceptors: str = ""
    """Comma-separated `module:name`s of what a worker puts around every call, outermost first."""

    max_argument_bytes: Annotated[int, Field(ge=256)] = MAX_BYTES
    """What a model wrote for one call. More is refused before it is parsed, and the model is told."""

    max_argument_depth: Annotated[int, Field(ge=1, le=128)] = MAX_DEPTH
    """How deep its JSON may nest. Parsers run out of stack somewhere beyond the upper bound."""

    max_argument_elements: Annotated[int, Field(ge=1)] = MAX_ELEMENTS
    """How many items and members it may have: each costs 50 bytes or more once it is parsed."""

    max_unsettled_calls: Annotated[int, Field(ge=1)] = 10_000
    """Calls one orchestrator has under way; dispatch waits beyond it instead of growing."""

    max_turns: Annotated[int, Field(ge=1)] = 100
    """Model replies in one run."""

    public_url: Annotated[str, Field(pattern=r"^(https?://.+)?$")] = ""
    """Where others reach the API, for `ctx.callback_url` and A2A: https://fleet.example, without a path of ours."""

    webhook_retry_s: Annotated[str, Field(pattern=r"^\s*(\d+(\.\d+)?\s*)+$", max_length=1000)] = (
        "5 300 1800 7200 18000 36000 50400 72000 86400"
    )
    """The waits before a webhook is sent again, one for each further attempt: by default as Standard Webhooks advises,
    over three days. Each is made up to a quarter longer, so that what failed together does not come back together."""

    webhook_timeout_s: Annotated[float, Field(gt=0, le=30)] = 15.0
    """How long one attempt to deliver a webhook may take, from the look-up of its host to the end of the answer."""

    webhook_networks: str = ""
    """Networks that webhooks may be sent to beside the public internet, such as `10.2.0.0/16 fd00::/8`. To these alone
    http:// is allowed, too."""

    keep_webhooks_s: Seconds = 7 * 24 * 3600.0
    """How long a webhook that was given up can be sent again, and what came of attempts is shown."""

    max_depth: Annotated[int, Field(ge=0)] = 5
    """How many runs may stand above a run that an agent tool starts."""

    max_offered_tools: Annotated[int, Field(ge=1)] = 64
    """A run with more tools than this is offered `search_tools` instead, and what it finds with it."""

    patience_s: Annotated[float, Field(ge=0)] = 30.0
    """How long a call may take before it counts as slow, unless its tool or its run says otherwise."""

    mcp_wait_s: Annotated[float, Field(ge=0)] = 50.0
    """How long an MCP client that knows no tasks waits for a call; most of them give up after a minute. 0: it is
    refused tools that take long."""

    mcp_beside: str = ""
    """`module:name` of an `mcp.server.MCPServer`, whose prompts and resources are offered beside the tools over MCP."""

    api_requests_per_s: Annotated[float, Field(gt=0, le=1e6)] = 500.0
    """Requests per second that a key without a rate of its own makes of one API process; twice as many at once."""

    api_requests: Annotated[int, Field(ge=1)] = 1000
    """Requests of one key that one API process has under way; what is waited for and listened to counts."""

    api_body_bytes: Annotated[int, Field(ge=1)] = 64 * 1024 * 1024
    """Bodies of one key's requests under way in one API process: each stays in memory until it is answered."""

    api_listeners: Annotated[int, Field(ge=1)] = 200
    """Event streams of one key at one API process."""

    api_sessions: Annotated[int, Field(ge=1)] = 100
    """MCP sessions of one key at one API process; who leaves without a word keeps a session for half an hour."""

    api_running_runs: Annotated[int, Field(ge=1)] = 1000
    """Runs of one key that have not ended, in the whole fleet."""

    api_stored_bytes: Annotated[int, Field(ge=1)] = 256 * 1024 * 1024
    """What one key's requests have brought for runs that are stored, and its remembered answers, in the whole fleet."""

    api_tenant_share: Annotated[float, Field(ge=1)] = 4.0
    """What all keys of a tenant may use together of each of these, as a multiple of one key's."""

    api_approval_wait_s: Seconds = 300.0
    """How long an OpenAI completion waits for a person who has to approve a call of it, before its run is cancelled."""

    api_header_timeout_s: Seconds = 10.0
    """How long the head of a request may take: a client that never ends it would hold its connection."""

    keep_unfinished_s: Seconds = 30 * 24 * 3600.0
    """A run that nothing happens to for this long is forgotten."""

    keep_done_s: Seconds = 7 * 24 * 3600.0
    """How long the record of a run is kept once it has an answer."""

    keep_failed_s: Seconds = 7 * 24 * 3600.0
    """The same for one that failed; it can be resumed as long."""

    keep_cancelled_s: Seconds = 24 * 3600.0
    """The same for one that was cancelled."""

    schedule_min_s: Annotated[float, Field(ge=1)] = 60.0
    """The shortest time between two ticks that a schedule may have."""

    schedule_grace_s: Seconds = 60.0
    """How late a tick of a schedule may begin its run. Later it was missed: its schedule says what becomes of it."""

    prices: dict[str, Price] = Field(default_factory=dict)
    """What models cost, in US dollars per million tokens, as JSON by their names, before the list that Toolfleet has:
    `{"my-model": {"input": 1.25, "cached_input": 0.1, "output": 10, "reasoning": 10}}`."""

    poll_timeout_s: Seconds = 30.0
    """How long a tool's poll or cancel function may take to ask another system about one job."""

    poll_lease_s: Seconds = 45.0
    """A job whose poller shows no life for this long is asked about by another worker."""

    poll_tick_s: Seconds = 0.25
    """How often a worker looks for jobs that are due; one script call each time."""

    poll_retry_s: Seconds = 1.0
    """The wait after a poll that failed; it doubles with each further one in a row."""

    max_poll_wait_s: Seconds = 60.0
    """Polls of one job grow rarer up to this, unless its tool asked for a longer wait from the start."""

    max_poll_errors: Annotated[int, Field(ge=1)] = 5
    """A job of which so many polls in a row failed ends as crashed."""

    max_polls: Annotated[int, Field(ge=1)] = 200
    """Jobs that one worker asks about at the same time."""

    @model_validator(mode="before")
    @classmethod
    def _names_are_known(cls, values: dict[str, Any]) -> dict[str, Any]:
        check_options("Settings", values, cls.model_fields.keys())
        if complaints := misspelt(os.environ, cls.model_fields):
            raise ValueError("; ".join(complaints))
        return values | _redis_of_shard(values)

    @model_validator(mode="after")
    def _heartbeats_fit_the_lease(self) -> Self:
        if self.lease_s <= 3 * self.heartbeat_s:
            raise ValueError(
                f"lease_s ({self.lease_s:g}) must exceed three heartbeats ({self.heartbeat_s:g} s each), "
                "or a live call could be delivered twice"
            )
        return self

    @model_validator(mode="after")
    def _polls_fit_their_lease(self) -> Self:
        if self.poll_lease_s <= self.poll_timeout_s:
            raise ValueError(
                f"poll_lease_s ({self.poll_lease_s:g}) must exceed poll_timeout_s ({self.poll_timeout_s:g}), "
                "or two workers could ask about one job at the same time"
            )
        return self

    @model_validator(mode="after")
    def _shards_are_streams(self) -> Self:
        if self.shards and self.broker_url:
            raise ValueError("shards carry their own queues: leave out TOOLFLEET_BROKER_URL, or the shards")
        return self

    @model_validator(mode="after")
    def _webhooks_can_be_sent(self) -> Self:
        if (longest := max(self.webhook_waits_s)) > LONGEST_WEBHOOK_WAIT_S:
            raise ValueError(f"webhook_retry_s: no wait may be longer than a week, and one is {longest:g} s")
        try:
            _ = self.webhook_allowed
        except ValueError as error:
            raise ValueError(f"webhook_networks: {error}") from None
        return self

    @model_validator(mode="after")
    def _strangers_need_a_secret(self) -> Self:
        secret = self.secret.get_secret_value()
        if not secret and not self.redis_is_local:
            raise ValueError(
                "secret is required when Redis is not on this machine: set TOOLFLEET_SECRET to the same "
                "random text on every machine of the fleet (for example from `openssl rand -hex 32`)"
            )
        if secret and len(secret.encode()) < MIN_SECRET_BYTES:
            raise ValueError(f"secret must have at least {MIN_SECRET_BYTES} bytes")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # as pydantic-settings has it
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """See BaseSettings. To look for each field in files that nobody has named takes half of the time."""
        files = ((dotenv_settings, "env_file"), (file_secret_settings, "secrets_dir"))
        return init_settings, env_settings, *(source for source, named in files if getattr(source, named, None))

    def as_environment(self) -> dict[str, str]:
        """Return the variables that give another process these settings; they hold the secrets."""
        values = {
            name: _as_text(value)
            # Not `self` as pairs: what a cached property has computed would be among them.
            for name in type(self).model_fields
            if (value := getattr(self, name)) is not None
        }
        return {f"TOOLFLEET_{name.upper()}": value for name, value in values.items()}

    @property
    def names_redis(self) -> bool:
        """Whether somebody chose `redis_url`; its default is only where a Redis may be found."""
        return bool(self.redis_url) and "redis_url" in self.model_fields_set

    @property
    def redis_is_local(self) -> bool:
        """Whether only this machine can reach Redis, each shard of it: a Unix socket or a loopback address."""
        return all(map(_is_local, [shard.url for shard in self.all_shards] or [self.redis_url]))

    @property
    def all_shards(self) -> Shards:
        """The shards of the fleet; none where it has one Redis."""
        return _shards(self.shards)

    @property
    def is_for_all_shards(self) -> bool:
        """Whether there are shards, and this process is told none: then no one Redis is meant."""
        return bool(self.shards) and not self.shard

    def of_shard(self, name: str) -> Settings:
        """The same settings for one shard. Raises InvalidSettings for a name that is none."""
        if (shard := self.all_shards.get(name)) is None:
            raise InvalidSettings(f"no shard is called {name!r}: there are {', '.join(self.all_shards.names)}")
        return self.model_copy(update={"shard": name, "redis_url": shard.url})

    @property
    def of_each_redis(self) -> list[Settings]:
        """The same settings for each Redis that is meant: that of every shard, or the one that there is."""
        return [self.of_shard(name) for name in self.all_shards.names] if self.is_for_all_shards else [self]

    def new_run_id(self) -> str:
        """Return a new id for a run, or for calls without one, with the name of this process's shard if it has one."""
        return self.id_prefix + stdlib_secrets.token_hex(8)

    @property
    def id_prefix(self) -> str:
        """How the ids begin that are made here: with the shard's name; "" without shards."""
        return f"{self.shard}{SEPARATOR}" if self.shard else ""

    def owns(self, id_: str) -> bool:
        """Whether an id may stand on this process's Redis: each shard has its own, and without shards all do."""
        return not self.shard or self.all_shards.named_by(id_) == self.shard

    @property
    def signing_secrets(self) -> list[str]:
        """What is signed with, then what is accepted besides. Each shard but the first has secrets of its own."""
        given = [self.secret.get_secret_value(), self.previous_secret.get_secret_value()]
        secrets = [given[0], *filter(None, given[1:])]
        has_own = self.shard and self.shard != self.all_shards.first
        return [key_of(self.shard, each) for each in secrets] if has_own else secrets

    @cached_property
    def keys(self) -> Keys:
        """The Redis keys of this namespace."""
        return Keys(self.namespace)

    @property
    def interceptor_names(self) -> list[str]:
        """`interceptors`, one by one."""
        return [name for name in self.interceptors.replace(" ", "").split(",") if name]

    @property
    def webhook_waits_s(self) -> tuple[float, ...]:
        """`webhook_retry_s`, one by one."""
        return tuple(map(float, self.webhook_retry_s.split()))

    @property
    def webhook_allowed(self) -> tuple[Network, ...]:
        """`webhook_networks`, one by one."""
        return _networks(self.webhook_networks)

    @property
    def argument_limits(self) -> ArgumentLimits:
        """The limits on what a model wrote for one call."""
        return ArgumentLimits(self.max_argument_bytes, self.max_argument_depth, self.max_argument_elements)

    @property
    def celery_broker_url(self) -> str:
        """What Celery connects to: `broker_url`, or the stream transport on `redis_url`."""
        if self.broker_url:
            return self.broker_url
        return stream_url(self.redis_url)


def read_settings(**overrides: object) -> Settings:
    """Settings from the environment, `overrides` first. Raises InvalidSettings in one readable line."""
    try:
        return Settings(**overrides)  # type: ignore[arg-type]  # pydantic checks what mypy cannot see through **
    except ValidationError as error:
        problems = "; ".join(_one_line(problem["loc"], problem["msg"]) for problem in error.errors())
        raise InvalidSettings(problems) from None


def new_secret() -> str:
    """Return a fresh secret for a local fleet."""
    return stdlib_secrets.token_hex(32)


@lru_cache(maxsize=16)
def _networks(text: str) -> tuple[Network, ...]:
    return tuple(map(ip_network, text.replace(",", " ").split()))


_shards = lru_cache(maxsize=16)(Shards.read)
"""Asked for with each new run."""


def _redis_of_shard(values: dict[str, Any]) -> dict[str, str]:
    """What the shards say of `redis_url`: that of the one that is named, none for all of them. Raises ValueError."""
    shards, name, url = (values.get(field) or "" for field in ("shards", "shard", "redis_url"))
    if not (isinstance(shards, str) and isinstance(name, str)):
        return {}  # which is refused for its type
    known = Shards.read(shards)
    if not known:
        if name:
            raise ValueError(f"TOOLFLEET_SHARD is {name!r}, and TOOLFLEET_SHARDS names no shard")
        return {}
    if name and known.get(name) is None:
        raise ValueError(f"TOOLFLEET_SHARD is {name!r}: there are {', '.join(known.names)}")
    meant = known.get(name)
    wanted = meant.url if meant else ""
    if url not in ("", wanted):
        raise ValueError("TOOLFLEET_REDIS_URL and TOOLFLEET_SHARDS both say where Redis is: leave out the first")
    return {"redis_url": wanted}


def _as_text(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return to_json(value).decode() if isinstance(value, dict) else str(value)


def _one_line(location: tuple[int | str, ...], message: str) -> str:
    where = f"TOOLFLEET_{str(location[0]).upper()}: " if location else ""
    return where + message.removeprefix("Value error, ")


def _is_local(redis_url: str) -> bool:
    url = urlsplit(redis_url)
    if url.scheme == "unix":
        return True
    hosts = [part.rpartition("@")[2] for part in url.netloc.split(",")] or [""]
    return all(_is_loopback(host) for host in hosts)


def _is_loopback(netloc: str) -> bool:
    host = urlsplit(f"//{netloc}").hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host in {"localhost", ""}
