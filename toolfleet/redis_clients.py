"""redis-py's clients with this project's errors: a Redis that is away, or refuses for now, is StoreUnreachable.

The one border: nobody else turns an error of Redis into one of ours. What passes as it is says that a command was
wrong (a bug), that a group is missing, or that a script is not loaded yet, which redis-py's scripts mend themselves.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import redis
import redis.asyncio
import redis.asyncio.client
import redis.client
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.client import EMPTY_RESPONSE, NEVER_DECODE
from redis.commands.core import AsyncScript
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ClusterDownError,
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TryAgainError,
)

from toolfleet.descriptors import REMEDY, is_out_of_descriptors
from toolfleet.errors import StoreRefuses, StoreUnreachable
from toolfleet.multiplexing import Command, MultiplexedConnection, may_share
from toolfleet.supervision import run_errand

StreamEntry = tuple[bytes, dict[bytes, bytes]]
"""An entry of a stream: its id, and its fields."""

COMMAND_FAILED: Final = (StoreUnreachable, RedisError)
"""All that a command of these clients may end in: for loops that must go on, and words that must be said, whatever
Redis answers."""

# Each stands behind "Redis at …".
_AWAY: Final = "does not answer ({said}); start it, or set TOOLFLEET_REDIS_URL"
_OUT_OF_DESCRIPTORS: Final = f"cannot be reached from here ({{said}}); {REMEDY}"
_ANOTHER: Final = "does not speak Redis's protocol ({said}); set TOOLFLEET_REDIS_URL"
_LOADING: Final = "cannot be used yet: {said}; wait until it has read its data"
_FULL: Final = "refuses writes: {said}; raise its maxmemory, or remove what fills it"
_REPLICA: Final = "refuses writes: {said}; set TOOLFLEET_REDIS_URL to its primary"
_NOT_WHOLE: Final = "refuses commands: {said}; wait until it is whole again, or see its log"
_REFUSED: Final = "refused us: {said}; check user and password in TOOLFLEET_REDIS_URL"

# The more special kinds come first: two of them are ConnectionErrors to redis-py.
_BY_KIND: Final[tuple[tuple[type[RedisError], str], ...]] = (
    (AuthenticationError, _REFUSED),
    (NoPermissionError, _REFUSED),
    (BusyLoadingError, _LOADING),
    (redis.ConnectionError, _AWAY),
    (redis.TimeoutError, _AWAY),
    (InvalidResponse, _ANOTHER),
    (OutOfMemoryError, _FULL),
    (ReadOnlyError, _REPLICA),
    (ClusterDownError, _NOT_WHOLE),
    (TryAgainError, _NOT_WHOLE),
)

# Refusals that redis-py has no class for, by the word that they begin with; and those of scripts, where older servers
# say the word behind others.
_BY_CODE: Final = {
    "BUSY": "is busy with a script: {said}; wait, or see what runs there",
    "CLUSTERDOWN": _NOT_WHOLE,
    "LOADING": _LOADING,
    "MASTERDOWN": _NOT_WHOLE,
    "MISCONF": "refuses writes: {said}; see its log, and the room on its disk",
    "NOREPLICAS": "refuses writes: {said}; start its replicas, or lower its min-replicas-to-write",
    "OOM": _FULL,
    "READONLY": _REPLICA,
    "UNBLOCKED": _REPLICA,
    "WRONGTYPE": "holds something else where this fleet keeps its own: {said}; give the fleet a database of its own",
}
_CODE: Final = re.compile(rf"(?:^|[\s-])({'|'.join(_BY_CODE)})\s")

_FOR_REDIS_PY: Final = frozenset({EMPTY_RESPONSE, NEVER_DECODE, "keys"})
"""Options of commands that say how redis-py is to read a reply, and are nothing to the function that turns it."""

_PIPELINE_SAYS: Final = "of pipeline caused error: "
"""What redis-py puts before the server's words, behind the command with its arguments, which are nobody's business."""

_SHOWN_AS_TUPLE: Final = re.compile(r"\((?P<quote>['\"])(?P<said>.*)(?P=quote),\)", re.DOTALL)
"""How pipelines on a loop show those words."""

_SENTINELS_OWN_CLIENT: Final = re.compile(r"<redis\..* - ")
"""What redis-py puts before the reason of a sentinel that could not be asked: all attributes of its client."""


def raise_in_our_words(error: RedisError | OSError, address: str) -> NoReturn:
    """Raise StoreUnreachable for what waiting or an operator can mend, and any other error as it is."""
    behind = str(error).rpartition(_PIPELINE_SAYS)[2]
    shown = _SHOWN_AS_TUPLE.fullmatch(behind)
    said = _SENTINELS_OWN_CLIENT.sub("", shown["said"] if shown else behind)
    code = _CODE.search(said)
    of_its_kind = next((text for kind, text in _BY_KIND if isinstance(error, kind)), None)
    # What the server has said itself comes first: redis-py makes lost connections of some refusals.
    text = _BY_CODE[code[1]] if code else of_its_kind
    # For each connection redis-py also reads a file, so this may come as an error of its own or of the system.
    if isinstance(error, (OSError, redis.ConnectionError)) and is_out_of_descriptors(error):
        text = _OUT_OF_DESCRIPTORS
    if text is None:
        raise error
    family = StoreUnreachable if text in {_AWAY, _ANOTHER, _OUT_OF_DESCRIPTORS} else StoreRefuses
    raise family(f"Redis at {address} {text.format(said=said)}") from error


class Client(redis.Redis):
    """A blocking client. Its commands, pipelines and scripts raise StoreUnreachable."""

    def __init__(self, pool: redis.ConnectionPool, address: str) -> None:
        """Owns `pool`; `address` is what errors name, so it must hold no password."""
        super().__init__(connection_pool=pool)
        self.auto_close_connection_pool = True
        self._address = address

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """See redis.Redis. Raises StoreUnreachable."""
        try:
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]  # as redis-py has it
        except (RedisError, OSError) as error:
            raise_in_our_words(error, self._address)

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> redis.client.Pipeline:  # noqa: FBT001  # as redis-py has it
        """See redis.Redis."""
        return _Pipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint, self._address)


class _Pipeline(redis.client.Pipeline):
    """Commands that go together."""

    def __init__(self, pool: Any, callbacks: Any, transaction: Any, shard_hint: Any, address: str) -> None:
        super().__init__(pool, callbacks, transaction, shard_hint)
        self._address = address

    def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT001  # as redis-py has it
        """See redis.client.Pipeline. Raises StoreUnreachable."""
        try:
            return super().execute(raise_on_error)
        except (RedisError, OSError) as error:
            raise_in_our_words(error, self._address)

    def immediate_execute_command(self, *command: Any, **options: Any) -> Any:
        """See redis.client.Pipeline: what is asked while keys are watched. Raises StoreUnreachable."""
        try:
            return super().immediate_execute_command(*command, **options)  # type: ignore[no-untyped-call]  # redis-py has none
        except (RedisError, OSError) as error:
            raise_in_our_words(error, self._address)


class AsyncClient(redis.asyncio.Redis):
    """A client for one event loop. Its commands, pipelines and scripts raise StoreUnreachable.

    Commands share one connection, but for those that wait on the server or watch keys: those go as redis-py sends them.
    """

    def __init__(self, pool: redis.asyncio.ConnectionPool, address: str, *, is_part: bool = False) -> None:
        """`address` is what errors name, so it must hold no password. What is part of another client owns no pool."""
        super().__init__(connection_pool=pool)
        self.auto_close_connection_pool = not is_part
        self._address = address
        self._is_part = is_part
        self._line = MultiplexedConnection(pool.make_connection)

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """See redis.asyncio.Redis. Raises StoreUnreachable."""
        try:
            if not (self._is_part or may_share(args)):
                return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]  # as redis-py has it
            [reply] = await self._line.request([args])
            return self.reply_of(args, reply, options)
        except (RedisError, OSError) as error:
            raise_in_our_words(error, self._address)
        except asyncio.CancelledError:
            self._let_go()
            raise

    async def run_script(self, sha: str, keys: Sequence[Any], args: Sequence[Any]) -> Any:
        """Carry out a script by the name that the server has for it. Raises NoScriptError, StoreUnreachable.

        As `execute_command` does with what may share the connection: no script waits, and redis-py turns none's reply.
        """
        try:
            [reply] = await self._line.request([("EVALSHA", sha, len(keys), *keys, *args)])
            if isinstance(reply, Exception):
                raise reply
        except (RedisError, OSError) as error:
            raise_in_our_words(error, self._address)
        return reply

    async def read_streams(
        self, behind: Mapping[str, bytes | str], *, count: int, block_ms: int | None = None
    ) -> list[tuple[bytes, list[StreamEntry]]]:
        """Return what streams have behind these entries, as XREAD does. Raises StoreUnreachable.

        To wait for it is for a `client()` of its own. redis-py's `xread` goes three times as long a way from the reply
        to its entries, in each of which a call may wait for its result.
        """
        waiting = () if block_ms is None else ("BLOCK", block_ms)
        command = ("XREAD", *waiting, "COUNT", count, "STREAMS", *behind, *behind.values())
        try:
            [reply] = await self._line.request([command])
            if isinstance(reply, Exception):
                raise reply
        except (RedisError, OSError) as error:
            raise_in_our_words(error, self._address)
        except asyncio.CancelledError:
            self._let_go()
            raise
        # A map in RESP3, pairs in RESP2.
        streams = reply.items() if isinstance(reply, dict) else reply or ()
        return [
            (name, [(id_, dict(zip(flat[::2], flat[1::2], strict=True))) for id_, flat in entries])
            for name, entries in streams
        ]

    def _let_go(self) -> None:
        """Give the connection up where whoever has asked has left: its server may be waiting for something."""
        if self._is_part:
            self._line.drop()

    def reply_of(self, command: Command, reply: Any, options: Mapping[str, Any]) -> Any:
        """Return a reply as redis-py's callers expect it. Raises the error that it is."""
        if isinstance(reply, Exception):
            if EMPTY_RESPONSE in options:
                return options[EMPTY_RESPONSE]
            raise reply
        callback = self.response_callbacks.get(command[0])
        if callback is None:
            return reply
        return callback(reply, **{name: value for name, value in options.items() if name not in _FOR_REDIS_PY})

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> redis.asyncio.client.Pipeline:  # noqa: FBT001  # as redis-py has it
        """See redis.asyncio.Redis."""
        return _AsyncPipeline(self, self._line, self._address, transaction, shard_hint)

    def register_script(self, script: Any) -> Any:  # redis-py has it twice, with types that exclude each other
        """See redis.asyncio.Redis."""
        return _AsyncScript(self, script)

    def client(self) -> AsyncClient:
        """A client of the same server with one connection of its own, on which commands may wait for some seconds."""
        return AsyncClient(self.connection_pool, self._address, is_part=True)

    async def __aexit__(self, *_: object) -> None:
        # redis-py counts first who else is in such a block, and waits for that: a task that is cancelled a second time
        # meanwhile would leave its connection open.
        await self.aclose()

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: FBT001  # as redis-py has it
        """See redis.asyncio.Redis."""
        try:
            await self._line.aclose()
        finally:
            await super().aclose(close_connection_pool)
        if self.auto_close_connection_pool and isinstance(self.connection_pool, SentinelConnectionPool):
            for sentinel in self.connection_pool.sentinel_manager.sentinels:
                await sentinel.aclose()


class _AsyncScript(AsyncScript):
    """A script that the server mostly knows: then calling it is one command, and no more than that is done for it."""

    def __init__(self, client: AsyncClient, script: Any) -> None:
        super().__init__(client, script)
        self._client = client

    async def __call__(self, keys: Any = None, args: Any = None, client: Any = None) -> Any:
        """See redis.commands.core.AsyncScript. Raises StoreUnreachable."""
        if client is None:
            keys, args = keys or (), args or ()
            try:
                return await self._client.run_script(self.sha, keys, args)
            except NoScriptError:
                pass  # then it is loaded first
        return await super().__call__(keys, args, client)


class _AsyncPipeline(redis.asyncio.client.Pipeline):
    """Commands that go together."""

    def __init__(
        self, client: AsyncClient, line: MultiplexedConnection, address: str, transaction: Any, shard_hint: Any
    ) -> None:
        super().__init__(client.connection_pool, client.response_callbacks, transaction, shard_hint)
        self._client = client
        self._line = line
        self._address = address

    async def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT001  # as redis-py has it
        """See redis.asyncio.client.Pipeline. Raises StoreUnreachable."""
        try:
            if self.connection is None and not self.scripts and all(may_share(args) for args, _ in self.command_stack):
                return await self._execute_together(raise_on_error=raise_on_error)
            return await super().execute(raise_on_error)
        except (RedisError, OSError) as error:
            raise_in_our_words(error, self._address)
        finally:
            if (connection := self.connection) is not None:
                # Cancelled a second time, while it gave its connection back: the pool would lack it for good.
                self.connection = None
                run_errand("connection_given_back", self._give_back(connection))

    async def _execute_together(self, *, raise_on_error: bool) -> list[Any]:
        stack = list(self.command_stack)
        try:
            commands = [args for args, _ in stack]
            if not commands:
                return []
            if self.is_transaction or self.explicit_transaction:
                replies = _executed(await self._line.request([("MULTI",), *commands, ("EXEC",)]))
            else:
                replies = await self._line.request(commands)
            if raise_on_error:
                self.raise_first_error(stack, replies)
            return [
                reply if isinstance(reply, Exception) else self._client.reply_of(args, reply, options)
                for (args, options), reply in zip(stack, replies, strict=True)
            ]
        finally:
            await self.reset()  # type: ignore[no-untyped-call]  # as redis-py has it

    async def _give_back(self, connection: Any) -> None:
        await connection.disconnect(nowait=True)
        await self.connection_pool.release(connection)

    async def immediate_execute_command(self, *command: Any, **options: Any) -> Any:
        """See redis.asyncio.client.Pipeline: what is asked while keys are watched. Raises StoreUnreachable."""
        try:
            return await super().immediate_execute_command(*command, **options)  # type: ignore[no-untyped-call]  # as above
        except (RedisError, OSError) as error:
            raise_in_our_words(error, self._address)


def _executed(replies: Sequence[Any]) -> list[Any]:
    """Return what a transaction has answered. Raises what has kept it from being carried out."""
    *queued, executed = replies
    if isinstance(executed, Exception):
        raise next((reply for reply in queued if isinstance(reply, Exception)), executed) from executed
    return list(executed)
