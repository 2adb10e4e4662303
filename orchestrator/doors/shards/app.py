"""The ASGI application of a fleet with several Redis servers: whose request it is, and lists of all of them as one.

Answers nothing of what a shard knows by itself: each has its whole API behind this, with its keys and its quotas.
"""

from __future__ import annotations

import hashlib
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any, Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from toolfleet.errors import InvalidSettings, StoreUnreachable, ToolfleetError
from toolfleet.misspelt import exact
from toolfleet.orchestrator.doors.http.app import create_app
from toolfleet.orchestrator.doors.http.idempotency import HEADER as IDEMPOTENCY_KEY
from toolfleet.orchestrator.doors.http.mounted_a2a import import_a2a
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.doors.http.problems import Problem, answer, path_of, problem_of
from toolfleet.orchestrator.doors.http.request_ids import RequestIds
from toolfleet.orchestrator.doors.shards.asking import HEADER, ask, pass_on
from toolfleet.orchestrator.doors.shards.bodies import InThread, named_in, replayed, thread_in
from toolfleet.orchestrator.doors.shards.lists import Lists, nobody_answers, sought_in
from toolfleet.orchestrator.doors.shards.places import Kind, Place, place_of
from toolfleet.orchestrator.doors.shards.shard_api import ShardApi
from toolfleet.orchestrator.errors import NoSuchShard
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.shards.member import Member, ShardAway
from toolfleet.orchestrator.shards.members import Members
from toolfleet.settings import Settings, read_settings

OPENS_WITHIN_S: Final = 30.0
"""An API has more to begin than an orchestrator."""


class ShardedApi:
    """One HTTP door over all shards. A shard that is away holds up what is asked of it, and nothing else."""

    def __init__(self, members: Members[ShardApi], shards: tuple[str, ...], model: ChatModel | None) -> None:
        self.members = members
        self._shards = shards
        self._model = model
        self._lists = Lists(members, shards)
        self._app = RequestIds(self._answer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or live for as long as the server runs."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._app(scope, receive, send)

    def close_streams(self) -> None:
        """End every stream of every shard."""
        for api in self.members.open_ones:
            api.door.close_streams()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with AsyncExitStack() as stack:
            if self._model is not None:
                stack.push_async_callback(self._model.aclose)
            stack.push_async_callback(self.members.aclose)
            try:
                await self.members.open()
            except ToolfleetError as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answered(scope, receive, send)
        except Problem as problem:
            await answer(problem, path_of(scope))(scope, receive, send)
        except ShardAway as error:
            said = problem_of(error)
            said.members["shard"] = error.shard
            said.headers[HEADER] = error.shard
            await answer(said, path_of(scope))(scope, receive, send)
        except ToolfleetError as error:
            await answer(problem_of(error), path_of(scope))(scope, receive, send)

    async def _answered(self, scope: Scope, receive: Receive, send: Send) -> None:
        place, sought = place_of(scope["method"], path_of(scope)), sought_in(scope, self._shards)
        named = Headers(scope=scope).get(HEADER)
        if named is not None:
            await pass_on(self._present(self._named(named)), scope, receive, send)
        elif sought and place.kind in {Kind.MERGED, Kind.FIRST}:
            await pass_on(self._of(sought), scope, receive, send)
        elif place.kind is Kind.MERGED:
            await self._lists.send(scope, send)
        elif place.kind is Kind.WELL:
            await self._tell_how_it_is(scope, receive, send)
        elif place.kind is Kind.GOES_ON:
            again = await replayed(self._open(), scope, receive)
            api = await self._for_new(scope) if (id_ := named_in(again.body)) is None else self._of(id_)
            await pass_on(api, scope, again, send)
        elif place.kind is Kind.THREAD:
            again = await replayed(self._open(), scope, receive)
            await pass_on(self._of_thread(thread_in(again.body)), scope, again, send)
        else:
            await pass_on(await self._one_of(place, scope), scope, receive, send)

    # --- one shard ----------------------------------------------------------------------------------------------

    async def _one_of(self, place: Place, scope: Scope) -> ShardApi:
        match place.kind:
            case Kind.OF_ID:
                return self._of(place.id_)
            case Kind.NEW:
                return await self._for_new(scope)
            case Kind.ARTIFACT:
                return await self._keeper_of(scope)
            case Kind.NAMED:
                names = ", ".join(self._shards)
                detail = f"each shard has this for itself: say which one is meant with the header {HEADER} ({names})"
                raise Problem(HTTPStatus.BAD_REQUEST, detail, code="shard-not-named", shards=list(self._shards))
            case _:
                return self._open()

    def _of(self, id_: str) -> ShardApi:
        return self._present(self.members.member_of(id_))

    def _present(self, member: Member[ShardApi]) -> ShardApi:
        if member.why_away:
            raise member.away()
        return member.opened()

    def _named(self, name: str) -> Member[ShardApi]:
        for member in self.members.all:
            if member.name == name:
                return member
        raise NoSuchShard(f"no shard is called {name[:100]!r}: there are {', '.join(self._shards)}")

    def _open(self) -> ShardApi:
        for member in self.members.all:
            if not member.why_away:
                return member.opened()
        raise StoreUnreachable("; ".join(str(member.away()) for member in self.members.all))

    async def _for_new(self, scope: Scope) -> ShardApi:
        key = Headers(scope=scope).get(IDEMPOTENCY_KEY)
        return await self.members.for_new(None) if not key else await self._by_key(scope, key)

    def _of_thread(self, asked: InThread) -> ShardApi:
        """Return who has the run that is resumed or, of one that may have been begun, on which shard that is.

        Also on one that drains: on another one a repeat would be performed a second time.
        """
        if asked.run_id is not None:
            return self._of(asked.run_id)
        return self._present(min(self.members.all, key=lambda member: _rank(member.name, asked.name)))

    async def _by_key(self, scope: Scope, key: str) -> ShardApi:
        """Return who has had a request with this key or, before anybody has, on which shard it is for good.

        Whatever was said of drains since: with another shard, a repeat would be performed a second time.
        """
        answered, _ = await self.members.each(lambda api: api.has_answered(scope))
        for name, has_answered in answered.items():
            if has_answered:
                return self._present(self._named(name))
        ranked = sorted(self.members.all, key=lambda member: _rank(member.name, key))
        return self._present(next((member for member in ranked if not member.is_draining), ranked[0]))

    async def _keeper_of(self, scope: Scope) -> ShardApi:
        """Return who keeps an artifact. Raises ShardAway where nobody has it, and one may who cannot be asked."""
        for member in self.members.all:
            if member.why_away:
                continue
            if (await ask(member.opened(), scope, [], "HEAD")).status != HTTPStatus.NOT_FOUND:
                return member.opened()
        for member in self.members.all:
            self._present(member)
        return self._open()

    # --- this process -------------------------------------------------------------------------------------------

    async def _tell_how_it_is(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer well if any shard's API does: to begin this process anew brings back no server that is away."""
        answers, missing = await self._lists.ask_all(scope, {name: [] for name in self._shards})
        for each in sorted(answers.values(), key=lambda each: each.status):
            await each.send_on(send)
            return
        if path_of(scope) == "/healthz":
            await Response('{"status":"ok"}', media_type="application/json")(scope, receive, send)
            return
        raise nobody_answers(missing)


@exact()
def create_sharded_app(
    settings: Settings | None = None, model: ChatModel | None = None, *, options: ApiOptions | None = None, **more: Any
) -> ShardedApi:
    """Make the application of a fleet with TOOLFLEET_SHARDS; `more` are the keywords of `create_app`.

    `model` is closed with it. Raises InvalidSettings without shards.
    """
    settings = settings or read_settings()
    if not settings.all_shards:
        raise InvalidSettings("there is one Redis: create_app makes its application (TOOLFLEET_SHARDS names several)")
    import_a2a()  # once the loop runs, whoever waits for a shard would wait for it
    members = []
    for shard in settings.all_shards:
        own = settings.of_shard(shard.name)
        app = create_app(own, model, options=options, closes_model=False, **more)
        members.append(Member(shard, own, ShardApi(shard.name, app), opens_within_s=OPENS_WITHIN_S))
    return ShardedApi(Members(members, settings.all_shards), settings.all_shards.names, model)


def _rank(shard: str, key: str) -> bytes:
    return hashlib.sha256(f"{shard}\0{key}".encode("utf-8", "surrogateescape")).digest()
