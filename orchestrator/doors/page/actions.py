"""What people do from the page: plain forms, each doing what the API's own route does, for whoever may do it there.

Every form leads back to where it was sent from. That it was sent by this page, and not by another site, is settled
before any of this (`sessions.must_be_from_here`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import orjson
from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from toolfleet.calls import run_of
from toolfleet.orchestrator.doors.http import questions as http_questions, runs as http_runs
from toolfleet.orchestrator.doors.http.access import Approver, Runner
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.idempotency import digest_of
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.http.questions import AnswerBody
from toolfleet.orchestrator.doors.http.records import ApprovalRequest, CancelBody, ForkRequest, GoOnRequest, RetryBody
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.doors.page.forms import form_of, own_path
from toolfleet.orchestrator.doors.page.wording import segment
from toolfleet.questions import meant
from toolfleet.strict_json import read_json

router = APIRouter(include_in_schema=False)

MAX_REASON: Final = 1000
MAX_DIGITS: Final = 6
DIGEST: Final = re.compile("[0-9a-f]{64}")


@router.post("/runs/{run_id}/cancel")
async def cancel_run(request: Request, run_id: str, grant: Runner, door: Through) -> Response:
    """End a run, and its calls on the workers."""
    reason = form_of(request).get("reason", "").strip()[:MAX_REASON]
    await http_runs.cancel(run_id, grant, door, CancelBody(reason=reason) if reason else None)
    return _back(request, f"/runs/{segment(run_id)}")


@router.post("/runs/{run_id}/resume")
async def resume(request: Request, run_id: str, grant: Runner, door: Through) -> Response:
    """Let a run that has ended go on, with a message or without."""
    said = form_of(request).get("message", "").strip()
    asked = GoOnRequest(question=said) if said else GoOnRequest(messages=[])
    await http_runs.go_on(run_id, asked, grant, door, request)
    return _back(request, f"/runs/{segment(run_id)}")


@router.post("/runs/{run_id}/say")
async def say(request: Request, run_id: str, grant: Runner, door: Through) -> Response:
    """Say something to a run that goes on, or has ended just now. A form that is sent twice says it once."""
    form = form_of(request)
    said = form.get("message", "").strip()
    if not said:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "say something: the message is empty")
    _derive_id(request, door, grant, run_id)
    asked = GoOnRequest(question=said, interrupt=form.get("interrupt") == "yes")
    await http_runs.go_on(run_id, asked, grant, door, request)
    return _back(request, f"/runs/{segment(run_id)}")


@router.post("/runs/{run_id}/fork")
async def fork(request: Request, run_id: str, grant: Runner, door: Through) -> Response:
    """Begin a new run from what another had come to after one of its turns, and lead there."""
    form = form_of(request)
    turn, question = form.get("turn", ""), form.get("question", "").strip()
    if not (turn.isascii() and turn.isdigit() and len(turn) <= MAX_DIGITS):
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "say after which turn the new run begins")
    asked = ForkRequest(turn=int(turn), question=question or None)
    begun = await http_runs.fork(run_id, asked, grant, door, request)
    new_id = begun.headers["location"].rpartition("/")[2]
    return RedirectResponse(f"/runs/{segment(new_id)}", status_code=HTTPStatus.SEE_OTHER)


@router.post("/calls/{call_id}/cancel")
async def cancel_call(request: Request, call_id: str, grant: Runner, door: Through) -> Response:
    """Cancel one call; its run goes on with the others."""
    await door.must_see(run_of(call_id), grant)
    await door.orchestrator.cancel_call(call_id, by=grant.who)
    return _back(request, f"/calls/{segment(call_id)}")


@router.post("/calls/{call_id}/retry")
async def retry(request: Request, call_id: str, grant: Runner, door: Through) -> Response:
    """Make a call that has failed again, in a new run, and lead there. A form that is sent twice begins one run."""
    form = form_of(request)
    _derive_id(request, door, grant, call_id)
    asked = RetryBody(force=form.get("force") == "yes")
    begun = await http_runs.retry(run_of(call_id), call_id, grant, door, request, asked=asked)
    new_id = begun.headers["location"].rpartition("/")[2]
    return RedirectResponse(f"/runs/{segment(new_id)}", status_code=HTTPStatus.SEE_OTHER)


@router.post("/calls/{call_id}/decide")
async def decide(request: Request, call_id: str, grant: Approver, door: Through) -> Response:
    """Let a call run that waits for a person, with its arguments or others, or deny it."""
    form = form_of(request)
    granted = form.get("decision") == "approve"
    if not granted and form.get("decision") != "deny":
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "say whether to approve the call or to deny it")
    # Browsers end lines with two characters, and what was not edited is to go out as it was.
    edited = form.get("arguments", "").replace("\r\n", "\n")
    arguments = edited if granted and edited != form.get("as_asked", "").replace("\r\n", "\n") else None
    if arguments is not None and not _is_object(arguments):
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "the arguments are no JSON object: go back, and mend them")
    reason = form.get("reason", "").strip()[:MAX_REASON]
    digest = form.get("digest", "")
    if digest and not DIGEST.fullmatch(digest):
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "the digest of what is decided about is none: go back")
    asked = ApprovalRequest(call_id=call_id, granted=granted, arguments=arguments, reason=reason, digest=digest)
    await http_runs.decide(run_of(call_id), asked, grant, door)
    return _back(request, f"/calls/{segment(call_id)}")


def _derive_id(request: Request, door: Door, grant: Grant, about: str) -> None:
    """Give a form that may be sent twice what its likes have in common; without scripts, too."""
    if once := form_of(request).get("once", ""):
        whose = (grant.tenant, grant.who, about, once)
        digest = digest_of(*(each.encode() for each in whose)).hex()
        request.state.derived_id = door.settings.id_prefix + digest[:32]


@router.post("/questions/{question_id}/answer")
async def answer(request: Request, question_id: str, grant: Approver, door: Through) -> Response:
    """Answer what a tool asks: with a choice, with what was typed, or not at all."""
    form = form_of(request)
    question = await http_questions.theirs(question_id, grant, door)
    if form.get("decline") == "yes":
        said = AnswerBody(declined=True)
    else:
        said = AnswerBody(answer=_chosen(form, question.schema_))
    await http_questions.answer(question_id, said, grant, door)
    return _back(request, f"/calls/{segment(question.call_id)}")


def _chosen(form: Mapping[str, str], schema: Mapping[str, Any]) -> Any:
    """Return what a form answers: one of the schema's choices by its place, or what was typed."""
    choices, at = schema.get("enum", ()), form.get("choice", "")
    if at.isascii() and at.isdigit() and len(at) <= MAX_DIGITS and int(at) < len(choices):
        return choices[int(at)]
    return read_json(meant(form.get("answer", ""), schema))


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _back(request: Request, otherwise: str) -> Response:
    following = form_of(request).get("next", "")
    return RedirectResponse(own_path(following) if following else otherwise, status_code=HTTPStatus.SEE_OTHER)
