"""A local server of the protocol: a work queue with leases, and sessions with events, over real HTTP.

It keeps the books by which a test judges: who has posted which result. It refuses nothing that the vendor might take
(a second result of one tool use, for instance), so that one who posts twice is seen.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

ENVIRONMENT = "env_test"
KEY = "env-key-obviously-fake"
NOW = "2026-01-01T00:00:00Z"
WITHIN_S = 30


@dataclass
class Work:
    """One piece of work."""

    id: str
    session: str
    state: str = "queued"
    last: str | None = None
    claimed_at: float = 0.0
    held_until: float = 0.0
    claims: int = 0
    holder: str = ""
    stops: int = 0


@dataclass
class Session:
    """What was said in one session."""

    events: list[Any] = field(default_factory=list)
    listeners: list[asyncio.Queue[Any]] = field(default_factory=list)

    def say(self, event: Any) -> None:
        self.events.append(event)
        for listener in self.listeners:
            listener.put_nowait(event)


class HostedApi:
    """The vendor's side. `hold_lookups`, `hold_posts` and `lose_posts` are faults that a test asks for."""

    def __init__(self, *, ttl_s: float = 20) -> None:
        self.ttl_s = ttl_s
        self.work: dict[str, Work] = {}
        self.sessions: dict[str, Session] = {}
        self.posted: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str]] = []
        self.changed = asyncio.Condition()
        self.may_look = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_look.set()
        self.may_answer.set()
        self.looks_held = 0
        self.failing_posts = 0
        self.refuse: Callable[[dict[str, Any]], bool] = lambda _: False
        self.url = ""
        self._beats = itertools.count(1)
        self._server: uvicorn.Server | None = None
        self._port = 0

    # --- what a test does ---------------------------------------------------------------------------------------

    def begin(self, session_id: str) -> Session:
        """A session, and a piece of work for it."""
        self.work[f"work_{session_id}"] = Work(f"work_{session_id}", session_id)
        return self.sessions.setdefault(session_id, Session())

    def use(self, session_id: str, use_id: str, name: str, **arguments: Any) -> None:
        """The agent of a session calls a custom tool."""
        self.sessions[session_id].say(
            {"type": "agent.custom_tool_use", "id": use_id, "name": name, "input": arguments, "processed_at": NOW}
        )

    def results(self, *use_ids: str) -> list[dict[str, Any]]:
        """The posted results of tool uses, in the order of posting."""
        return [event for event in self.posted if event["custom_tool_use_id"] in use_ids]

    async def until(self, is_so: Callable[[], object]) -> None:
        """Wait for something to be so here."""
        async with asyncio.timeout(WITHIN_S), self.changed:
            await self.changed.wait_for(is_so)

    def steal(self, session_id: str) -> None:
        """Give the lease of a session's work to somebody else."""
        work = self.work[f"work_{session_id}"]
        work.state, work.last, work.held_until = "active", "somebody else's", time.monotonic() + 3600

    def give_out_again(self, session_id: str) -> None:
        """Queue a session's work, whoever may think that it is theirs."""
        work = self.work[f"work_{session_id}"]
        work.state, work.last = "queued", None

    # --- the protocol -------------------------------------------------------------------------------------------

    def app(self) -> Starlette:
        of_work = f"/v1/environments/{ENVIRONMENT}/work"
        of_events = "/v1/sessions/{session}/events"
        return Starlette(
            routes=[
                Route(f"{of_work}/poll", self._told(self._poll)),
                Route(f"{of_work}/{{work}}/ack", self._told(self._ack), methods=["POST"]),
                Route(f"{of_work}/{{work}}/heartbeat", self._told(self._heartbeat), methods=["POST"]),
                Route(f"{of_work}/{{work}}/stop", self._told(self._stop), methods=["POST"]),
                Route(of_events, self._told(self._list), methods=["GET"]),
                Route(of_events, self._told(self._send), methods=["POST"]),
                Route(f"{of_events}/stream", self._told(self._stream)),
            ]
        )

    def _told(self, answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def told(request: Request) -> Response:
            self.requests.append((request.method, request.url.path))
            if request.headers.get("authorization") != f"Bearer {KEY}" or "x-api-key" in request.headers:
                return _problem(401, "authentication_error")
            response: Response = await answer(request)
            async with self.changed:
                self.changed.notify_all()
            return response

        return told

    async def _poll(self, request: Request) -> Response:
        until = time.monotonic() + int(request.query_params["block_ms"]) / 1000
        while True:
            now = time.monotonic()
            for work in self.work.values():
                unsaid = work.state == "starting" and now - work.claimed_at > 5
                lapsed = work.state == "active" and now > work.held_until
                if work.state == "queued" or unsaid or lapsed:
                    work.state, work.last, work.claimed_at = "starting", None, now
                    work.claims += 1
                    work.holder = request.headers["anthropic-worker-id"]
                    return JSONResponse(self._shown(work))
            if now >= until:
                return Response("null", media_type="application/json")
            await asyncio.sleep(0.02)

    async def _ack(self, request: Request) -> Response:
        work = self.work[request.path_params["work"]]
        work.state, work.held_until = "active", time.monotonic() + self.ttl_s
        return JSONResponse(self._shown(work))

    async def _heartbeat(self, request: Request) -> Response:
        work = self.work[request.path_params["work"]]
        expected = request.query_params.get("expected_last_heartbeat")
        if work.state in {"active", "starting"} and expected != (work.last or "NO_HEARTBEAT"):
            return _problem(412, "heartbeat_precondition_failed")
        if work.state == "queued":
            return _problem(412, "heartbeat_precondition_failed")
        work.last, work.held_until = f"beat-{next(self._beats)}", time.monotonic() + self.ttl_s
        return JSONResponse(
            {
                "type": "work_heartbeat",
                "last_heartbeat": work.last,
                "lease_extended": work.state == "active",
                "state": work.state,
                "ttl_seconds": int(self.ttl_s),
            }
        )

    async def _stop(self, request: Request) -> Response:
        work = self.work[request.path_params["work"]]
        work.stops += 1
        work.state = "stopped"
        return JSONResponse(self._shown(work))

    async def _list(self, request: Request) -> Response:
        if request.query_params.getlist("types[]") or request.query_params.getlist("types"):
            self.looks_held += 1
            async with self.changed:
                self.changed.notify_all()
            await self.may_look.wait()
            self.looks_held -= 1
        session = self.sessions[request.path_params["session"]]
        types = request.query_params.getlist("types[]") or request.query_params.getlist("types")
        events = [
            each for each in session.events if not types or (isinstance(each, dict) and each.get("type") in types)
        ]
        # In ASCII: half a character has no other form.
        return Response(json.dumps({"data": events, "next_page": None}), media_type="application/json")

    async def _send(self, request: Request) -> Response:
        if self.failing_posts:
            self.failing_posts -= 1
            return _problem(529, "overloaded_error")
        session = self.sessions[request.path_params["session"]]
        events = (await request.json())["events"]
        if any(self.refuse(event) for event in events):
            return _problem(400, "invalid_request_error")
        for event in events:
            self.posted.append(event)
            session.say({**event, "id": f"evt_{len(self.posted)}"})
        async with self.changed:
            self.changed.notify_all()
        await self.may_answer.wait()
        return JSONResponse({"data": events})

    async def _stream(self, request: Request) -> Response:
        session = self.sessions[request.path_params["session"]]
        said: asyncio.Queue[Any] = asyncio.Queue()
        session.listeners.append(said)

        async def events() -> AsyncIterator[str]:
            try:
                yield "event: ping\ndata: {}\n\n"
                while True:
                    event = await said.get()
                    if event is HANG_UP:
                        return
                    text = event if isinstance(event, str) else json.dumps(event)
                    yield f"event: {event.get('type') if isinstance(event, dict) else 'event'}\ndata: {text}\n\n"
            finally:
                session.listeners.remove(said)

        return StreamingResponse(events(), media_type="text/event-stream")

    def _shown(self, work: Work) -> dict[str, Any]:
        return {
            "type": "work",
            "id": work.id,
            "environment_id": ENVIRONMENT,
            "data": {"type": "session", "id": work.session},
            "state": work.state,
            "metadata": {},
            "created_at": NOW,
        }

    # --- up and down --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def up(self) -> AsyncIterator[HostedApi]:
        """Serve, on the same port each time."""
        door = socket.socket()
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("127.0.0.1", self._port))
        self._port = door.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        door.listen()
        server = uvicorn.Server(
            uvicorn.Config(self.app(), log_level="error", timeout_graceful_shutdown=1, ws="none", access_log=False)
        )
        serving = asyncio.create_task(server.serve(sockets=[door]))
        try:
            yield self
        finally:
            self.may_look.set()
            self.may_answer.set()
            for session in self.sessions.values():
                for listener in list(session.listeners):
                    listener.put_nowait(HANG_UP)
            server.should_exit = True
            await serving


HANG_UP = object()
"""Said to a listener, its connection ends."""


def _problem(status: int, kind: str) -> Response:
    return JSONResponse({"type": "error", "error": {"type": kind, "message": kind}}, status_code=status)
