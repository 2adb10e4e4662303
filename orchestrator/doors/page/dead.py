"""Dead letters: counted, sifted by tool and reason, and all that are meant put back or dropped, after one more look."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import urlencode

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
async def letters(
    request: Request,
    grant: Admin,
    door: Through,
    *,
    tool: Part = "",
    reason: Part = "",
    after: Annotated[str, Query(max_length=50)] = "",
) -> Response:
    """Count and list the letters that are meant."""
    return await _shown(request, grant, door, meant={"tool": tool, "reason": reason, "after": after})


@router.post("/dead-letters")
async def handle(request: Request, grant: Admin, door: Through) -> Response:
    """Put back or drop all that are meant; the number that was confirmed has to be theirs still."""
    form = form_of(request)
    expected = form.get("expected", "")
    meant = {name: form.get(name, "") for name in ("tool", "reason", "after")}
    if not (expected.isascii() and expected.isdigit() and len(expected) <= MAX_DIGITS):
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "say how many letters are meant")
    if form.get("confirmed") != "yes":
        asked = {"action": form.get("action", ""), "expected": int(expected), "force": form.get("force", "")}
        return await _shown(request, grant, door, meant=meant, asked=asked)
    counted = {**meant, "expected": int(expected)}
    match form.get("action"):
        case "replay":
            force = form.get("force") == "yes"
            outcome = await http_dead.replay(http_dead.ToReplay(**counted, force=force), grant, door)
        case "drop":
            outcome = await http_dead.drop(http_dead.Handled(**counted), grant, door)
        case _:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "say whether to put them back or to drop them")
    done = {"action": form["action"], "outcome": outcome}
    return await _shown(request, grant, door, meant=meant, done=done)


async def _shown(request: Request, grant: Any, door: Any, *, meant: Mapping[str, str], **values: Any) -> Response:
    wanted = http_dead.LettersAsked(**meant, limit=SHOWN)
    found = await http_dead.list_letters(wanted, grant, door)
    following = "" if found.after is None else f"/dead-letters?{urlencode({**meant, 'after': found.after})}"
    shown = {"asked": None, "done": None, "following": following, **meant, **values}
    return await page(request, "dead.html", found=found, **shown)
