"""The ASGI application: one orchestrator behind HTTP, for as long as the server runs.

Puts the parts together and takes them apart; each noun has its routes in a module of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from toolfleet.connections import connect_async
from toolfleet.errors import ToolfleetError
from toolfleet.local.local_key import LocalKey
from toolfleet.misspelt import exact
from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.agui import routes as agui
from toolfleet.orchestrator.doors.http import (
    approvals,
    artifacts,
    batches,
    budgets,
    dead,
    docs_page,
    exports,
    find,
    fleet_state as fleet,
    handles,
    limits,
    questions,
    runs,
    schedules,
    standing,
    tools,
    versions,
    webhooks,
    work,
)
from toolfleet.orchestrator.doors.http.access import Access
from toolfleet.orchestrator.doors.http.bodies import BoundedBodies
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.following import Followings
from toolfleet.orchestrator.doors.http.idempotency import Idempotency
from toolfleet.orchestrator.doors.http.key_store import Keyring
from toolfleet.orchestrator.doors.http.looking import Looking
from toolfleet.orchestrator.doors.http.mounted_a2a import serve_a2a
from toolfleet.orchestrator.doors.http.mounted_mcp import serve_mcp
from toolfleet.orchestrator.doors.http.openapi_document import corrected
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.doors.http.problems import (
    Problem,
    ProblemDetails,
    on_bug,
    on_http_error,
    on_our_error,
    on_problem,
    on_validation_error,
)
from toolfleet.orchestrator.doors.http.quotas import Quotas
from toolfleet.orchestrator.doors.http.request_ids import RequestIds
from toolfleet.orchestrator.doors.http.stopping import Stopping
from toolfleet.orchestrator.doors.http.tail import Tail
from toolfleet.orchestrator.doors.http.traces import Traces
from toolfleet.orchestrator.doors.http.usage import Usage
from toolfleet.orchestrator.doors.openai import chat as openai_chat, model_list as openai_models
from toolfleet.orchestrator.doors.openai.responses import routes as openai_responses
from toolfleet.orchestrator.doors.page.problems import ProblemPages
from toolfleet.orchestrator.doors.page.serving import ROUTERS as PAGES, serve_page
from toolfleet.orchestrator.models.protocol import ChatModel
from toolfleet.orchestrator.tools.interceptors import Interceptor
from toolfleet.settings import Settings
from toolfleet.wire import Seal
from toolfleet.work import WorkRefused

DESCRIPTION = """Runs the tool calls of LLM agents on a fleet of workers.

`/v1/runs` begins conversations and follows them, `/v1/tools` calls single tools, `/v1/artifacts` has what is too large
for a result, `/v1/chat/completions` and `/v1/responses` speak OpenAI's formats, `/agui` AG-UI. Every error is a problem
document (RFC 9457). A POST with an `Idempotency-Key` is performed once."""

ROUTES: Final = APIRouter(
    responses={
        code: {"model": ProblemDetails, "description": description}
        for code, description in (
            (400, "The request cannot be served as it was made"),
            (401, "No key, or one that is not known"),
            (402, "The budget of the tenant is used up"),
            (403, "The key does not include this"),
            (413, "The body is too large"),
            (422, "A field is missing, or has a wrong value"),
            (429, "A limit of the key or its tenant is used up, or its budget for this day or month"),
            (503, "Redis is away"),
        )
    }
)
"""Those of all applications of a process: FastAPI works a route out for the router that includes it, in a quarter of a
second for all of them, at the first request."""
for router in (
    # What is asked most stands first: a request is compared with one route after the other, a microsecond each.
    work.router,
    runs.router,
    tools.router,
    openai_chat.router,
    openai_responses.router,
    agui.router,
    handles.router,
    artifacts.router,
    fleet.router,
    exports.router,
    find.router,
    approvals.router,
    questions.router,
    standing.router,
    dead.router,
    batches.router,
    webhooks.router,
    schedules.router,
    budgets.router,
    limits.router,
    versions.router,
    openai_models.router,
    docs_page.router,
    *PAGES,
):
    ROUTES.include_router(router)


def document_api(app: FastAPI, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the OpenAPI document, made once."""
    return app.openapi_schema or corrected(make())


@exact()
def create_app(
    settings: Settings | None = None,
    model: ChatModel | None = None,
    *,
    options: ApiOptions | None = None,
    interceptors: Sequence[Interceptor] = (),
    named_interceptors: Mapping[str, Interceptor] | None = None,
    adopts: bool = True,
    closes_model: bool = True,
) -> FastAPI:
    """Make the ASGI application. `model` is closed with it, unless others use it (`closes_model=False`).

    Without a model, runs are for orchestrators elsewhere.

    `interceptors` see every call, `named_interceptors` are those that requests may ask for, as with `Orchestrator`. The
    application finds its fleet as `Orchestrator` does, when its lifespan begins.
    """
    options = options or ApiOptions()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            name = "" if model is None else model.name
            orchestrator = await stack.enter_async_context(
                Orchestrator(
                    model,
                    settings=settings,
                    adopts=adopts,
                    interceptors=interceptors,
                    named_interceptors=named_interceptors,
                    closes_models=closes_model,
                )
            )
            found = orchestrator.settings
            # A thousand requests at once wait for each other; of its connections the tail's reader keeps one to itself.
            client = connect_async(found)
            stack.push_async_callback(client.aclose)
            seal = Seal(found)
            tail = await stack.enter_async_context(
                Tail(client, found, max_frames=options.max_frames, supervisor=orchestrator.supervisor)
            )
            keyring = Keyring(client, found, seal)
            local_key = LocalKey(options.local_key_file)
            quotas = Quotas(found)
            usage = Usage(client, found, quotas)
            followings = Followings(orchestrator, tail)
            stack.push_async_callback(followings.aclose)
            door = Door(
                orchestrator,
                client,
                found,
                seal,
                options,
                keyring,
                tail,
                local_key,
                quotas,
                usage,
                followings,
                Looking.through(client, found, seal),
                model=name,
            )
            app.state.door = door
            app.state.work = work.open_gate(found, orchestrator.supervisor, max_body_bytes=options.max_body_bytes)
            stack.push_async_callback(app.state.work.aclose)
            serve_page(app, door)
            await stack.enter_async_context(serve_mcp(app, orchestrator, quotas))
            await stack.enter_async_context(serve_a2a(app))
            yield
            door.close_streams()

    app = FastAPI(
        title="Toolfleet",
        version=version("toolfleet"),
        description=DESCRIPTION,
        lifespan=lifespan,
        # FastAPI's own page loads its scripts from elsewhere; ours has none.
        docs_url=None,
        redoc_url=None,
    )
    app.router.routes.extend(ROUTES.routes)
    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(WorkRefused, work.on_refused)
    app.add_exception_handler(ToolfleetError, on_our_error)
    app.add_exception_handler(RequestValidationError, on_validation_error)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(Exception, on_bug)
    # The last one added sees a request first.
    app.add_middleware(Idempotency)
    app.add_middleware(Traces)
    app.add_middleware(BoundedBodies, options=options)
    app.add_middleware(Access)
    app.add_middleware(ProblemPages)
    app.add_middleware(Stopping)
    app.add_middleware(RequestIds)
    app.openapi = partial(document_api, app, app.openapi)  # type: ignore[method-assign]  # FastAPI's own way to do it
    return app
