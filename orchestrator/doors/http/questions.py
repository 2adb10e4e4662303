"""What tools ask people while they run, over HTTP: the list of what waits, and the answers."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool

from toolfleet.orchestrator.doors.http.access import Approver, Reader
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant
from toolfleet.orchestrator.doors.http.problems import Problem, ProblemDetails
from toolfleet.orchestrator.doors.http.records import RunBody, SomeWanted
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.errors import QuestionNotFound
from toolfleet.orchestrator.status.questions import AwaitedAnswer
from toolfleet.questions import Question

router = APIRouter(prefix="/v1/questions", tags=["runs"], route_class=JsonRoute)

ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    404: {"model": ProblemDetails, "description": "No call asks this"},
    409: {"model": ProblemDetails, "description": "It is answered already, has expired, or its call has ended"},
}


class QuestionList(BaseModel):
    """What waits for an answer, those first that have waited longest."""

    questions: list[AwaitedAnswer]
    after: str | None = Field(description="What the next page is asked for with; null behind the last call.")


class AnswerBody(RunBody):
    """What a person says: an answer, or that they will not give one."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"answer": "savings"}]})

    answer: JsonValue = Field(default=None, description="What fits the question's `answer_schema`.")
    declined: StrictBool = False
    reason: Annotated[str, Field(max_length=1000, description="Why it is declined; the tool hears it.")] = ""


class AnswerTaken(BaseModel):
    """The answer is written down, and the tool goes on with it."""

    question_id: str
    call_id: str
    run_id: str


@router.get("")
async def list_questions(grant: Reader, door: Through, wanted: Annotated[SomeWanted, Query()]) -> QuestionList:
    """List what the tenant's tools ask people, of `limit` calls at most."""
    found = await door.orchestrator.questions(tenant=grant.tenant, limit=wanted.limit, after=wanted.after)
    return QuestionList(questions=found.waiting, after=found.after or None)


@router.post("/{question_id}/answer", responses=ANSWERS)
async def answer(question_id: str, said: AnswerBody, grant: Approver, door: Through) -> AnswerTaken:
    """Answer what a tool asks, or decline to. Needs a key that includes the tool; the first answer counts."""
    question = await theirs(question_id, grant, door)
    if said.declined:
        await door.orchestrator.decline(question.question_id, said.reason, by=grant.who)
    elif "answer" in said.model_fields_set:
        await door.orchestrator.answer(question.question_id, said.answer, by=grant.who)
    else:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "give an `answer`, or say that you have `declined`")
    return AnswerTaken(question_id=question.question_id, call_id=question.call_id, run_id=question.run_id)


async def theirs(question_id: str, grant: Grant, door: Door) -> Question:
    """Return a question that a key may answer. Raises QuestionNotFound, also for another tenant's, and Problem."""
    question = await door.orchestrator.question(question_id)
    if question.tenant != grant.tenant:
        raise QuestionNotFound(f"no call asks {question_id}: its id is wrong, or its call ended long ago")
    if not grant.may_call(question.tool):
        raise Problem(HTTPStatus.FORBIDDEN, f"this key does not include the tool {question.tool}")
    return question
