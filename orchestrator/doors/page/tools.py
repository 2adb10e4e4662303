"""The tools that live workers serve: who serves them, what they take, and a form to call one."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from toolfleet.calls import Submitted
from toolfleet.orchestrator.doors.http.access import Reader, Runner
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.http.records import CallRequest
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.doors.http.tools import called
from toolfleet.orchestrator.doors.page.forms import form_of
from toolfleet.orchestrator.doors.page.rendering import page
from toolfleet.orchestrator.doors.page.schema_form import NotFilledIn, arguments_of, fields_of
from toolfleet.orchestrator.doors.page.tool_versions import versions_shown
from toolfleet.orchestrator.doors.page.wording import segment
from toolfleet.tool import ToolSpec

router = APIRouter(include_in_schema=False)

PATIENCE_S: Final = 3.0
"""How long a form waits for a result; what takes longer has a page of its own by then."""


@router.get("/tools")
async def tools(request: Request, grant: Reader, door: Through) -> Response:
    """List the tools."""
    offered = await door.orchestrator.catalog.offered()
    served = await _workers_by_tool(door)
    shown = [spec for name, spec in sorted(offered.items()) if grant.may_call(name)]
    versions = await versions_shown(door, grant)
    return await page(request, "tools.html", tools=shown, served=served, versions=versions.values())


@router.get("/tools/{name}")
async def tool(request: Request, name: str, grant: Reader, door: Through) -> Response:
    """Show a tool, with a form to call it."""
    return await _shown(request, await _found(name, grant, door), grant, door)


@router.post("/tools/{name}/call")
async def call(request: Request, name: str, grant: Runner, door: Through) -> Response:
    """Call a tool, and show what it came to; a slow one goes on by itself."""
    spec = await _found(name, grant, door)
    form = form_of(request)
    try:
        arguments = arguments_of(form, spec.input_schema)
    except NotFilledIn as error:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
        return await _shown(request, spec, grant, door, form=form, wrong=str(error), status=status)
    result = await called(name, arguments, CallRequest(patience_s=PATIENCE_S), grant, door)
    if isinstance(result, Submitted):
        return RedirectResponse(f"/jobs/{segment(result.handle)}", status_code=HTTPStatus.SEE_OTHER)
    return await _shown(request, spec, grant, door, form=form, result=result)


async def _found(name: str, grant: Grant, door: Door) -> ToolSpec:
    spec = (await door.orchestrator.catalog.offered(name)).get(name)
    if spec is None or not grant.may_call(name):
        raise Problem(HTTPStatus.NOT_FOUND, f"no live worker serves {name}, or this key does not include it")
    return spec


async def _shown(request: Request, spec: ToolSpec, grant: Grant, door: Door, **values: Any) -> Response:
    status = values.pop("status", HTTPStatus.OK)
    shown = {"form": {}, "wrong": "", "result": None, **values}
    served = (await _workers_by_tool(door)).get(spec.name, [])
    versions = (await versions_shown(door, grant)).get(spec.name)
    schema = orjson.dumps(spec.input_schema, option=orjson.OPT_INDENT_2).decode()
    fields = fields_of(spec.input_schema)
    return await page(
        request,
        "tool.html",
        status=status,
        tool=spec,
        fields=fields,
        schema=schema,
        workers=served,
        versions=versions,
        **shown,
    )


async def _workers_by_tool(door: Door) -> dict[str, list[str]]:
    served: dict[str, list[str]] = {}
    for worker in await door.orchestrator.catalog.workers():
        for spec in worker.tools:
            served.setdefault(spec.name, []).append(worker.worker)
    return served
