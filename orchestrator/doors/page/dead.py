"""Dead letters: counted, sifted by tool and reason, and all that are meant put back or dropped, after one more look."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from toolfleet.orchestrator.doors.http import dead as http_dead
from toolfleet.orchestrator.doors.http.access import Admin
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.doors.page.forms import form_of
from toolfleet.orchestrator.doors.page.rendering import page

router = APIRouter(include_in_schema=False)

SHOWN: Final = 100
MAX_DIGITS: Final = 9

Part = Annotated[str, Query(max_length=1000)]


@router.get("/dead-letters")
async def letters(request: Request, grant: Admin, door: Through, *, tool: Part = "", reason: Part = "") -> Response:
    """Count and list the letters that are meant."""
    return await _shown(request, grant, door, tool=tool, reason=reason)


@router.post("/dead-letters")
async def handle(request: Request, grant: Admin, door: Through) -> Response:
    """Put back or drop all that are meant; the number that was confirmed has to be theirs still."""
    form = form_of(request)
    expected, tool, reason = form.get("expected", ""), form.get("tool", ""), form.get("reason", "")
    if not (expected.isascii() and expected.isdigit() and len(expected) <= MAX_DIGITS):
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "say how many letters are meant")
    if form.get("confirmed") != "yes":
        asked = {"action": form.get("action", ""), "expected": int(expected), "force": form.get("force", "")}
        return await _shown(request, grant, door, tool=tool, reason=reason, asked=asked)
    meant = {"tool": tool, "reason": reason, "expected": int(expected)}
    match form.get("action"):
        case "replay":
            force = form.get("force") == "yes"
            outcome = await http_dead.replay(http_dead.ToReplay(**meant, force=force), grant, door)
        case "drop":
            outcome = await http_dead.drop(http_dead.Handled(**meant), grant, door)
        case _:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "say whether to put them back or to drop them")
    done = {"action": form["action"], "outcome": outcome}
    return await _shown(request, grant, door, tool=tool, reason=reason, done=done)


async def _shown(request: Request, grant: Any, door: Any, *, tool: str, reason: str, **values: Any) -> Response:
    wanted = http_dead.LettersAsked(tool=tool, reason=reason, limit=SHOWN)
    found = await http_dead.list_letters(wanted, grant, door)
    shown = {"asked": None, "done": None, **values}
    return await page(request, "dead.html", found=found, tool=tool, reason=reason, **shown)
