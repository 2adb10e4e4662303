"""What a message to a task is taken for: decisions about what waits for a person or, where nothing does, words to it.

It is noted what a message was taken for before anything is done. So the same message sent again, when what it answered
waits no more, answers just that once more, which changes nothing, and not whatever waits by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Literal, TypeVar, cast

import orjson
from a2a.utils.errors import A2AError, InvalidParamsError, UnsupportedOperationError
from pydantic import BaseModel, ValidationError

from toolfleet.calls import Record
from toolfleet.errors import CallerError, Refused
from toolfleet.keys import IDEMPOTENCY_TTL_S
from toolfleet.messages import UserMessage
from toolfleet.orchestrator.doors.a2a.asked import Asked
from toolfleet.orchestrator.doors.a2a.parts import decisions_in
from toolfleet.orchestrator.doors.a2a.shown import SAID
from toolfleet.orchestrator.doors.a2a.standing import Standing
from toolfleet.orchestrator.doors.http.access import must_have
from toolfleet.orchestrator.doors.http.idempotency import digest_of
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.doors.http.problems import Problem
from toolfleet.orchestrator.doors.http.questions import AnswerBody, answer
from toolfleet.orchestrator.doors.http.records import ApprovalRequest
from toolfleet.orchestrator.doors.http.runs import decide
from toolfleet.orchestrator.errors import InvalidAnswer, QuestionNotFound, RunNotOpen

B = TypeVar("B", bound=BaseModel)

GRANTS: Final = frozenset({"yes", "approve"})
DENIES: Final = frozenset({"no", "deny"})

MOST_REASON_CHARS: Final = 1000


class Target(Record):
    """What a message answers: a call that waits for approval, or a question; or it is said to the model."""

    kind: Literal["call", "question", "model"]
    id: str = ""


class Taken(Record):
    """What a message was taken for."""

    fingerprint: str
    targets: tuple[Target, ...]


def fingerprint_of(message: Mapping[str, Any]) -> str:
    """Return what tells a message that is sent again from another one with its id."""
    return digest_of(orjson.dumps(message, option=orjson.OPT_SORT_KEYS)).hex()


def must_be_the_same(before: str, asked: Asked) -> None:
    """Raise InvalidParamsError for a message whose id was used for another one."""
    if before != fingerprint_of(asked.message):
        raise InvalidParamsError(f"the messageId {asked.message_id!r} was used for another message: choose a new one")


async def take(asked: Asked, standing: Standing, said: UserMessage) -> None:
    """Do what a message to a task is for, once however often it is sent.

    Raises UnsupportedOperationError for a task that has ended, InvalidParamsError, Problem, and what answers raise.
    """
    name = asked.door.settings.keys.idempotent(_digest(asked).hex())
    before = await _taken_before(asked, name)
    if before is None:
        if standing.has_ended:
            raise UnsupportedOperationError(
                f"task {standing.run.run_id} has ended: begin another one in its context, without taskId"
            )
        taken = Taken(fingerprint=fingerprint_of(asked.message), targets=_targets(asked, standing))
        before = await _note(asked, name, taken)
        if before is None:
            await _do_first(asked, name, taken, standing, said)
            return
    must_be_the_same(before.fingerprint, asked)
    await _do(asked, before, standing, said, is_repeat=True)


def _digest(asked: Asked) -> bytes:
    grant = asked.grant
    return digest_of(b"a2a", grant.tenant.encode(), grant.subject.encode(), asked.message_id.encode())


async def _taken_before(asked: Asked, name: str) -> Taken | None:
    return _opened(asked, name, cast("bytes | None", await asked.door.client.get(name)))


async def _note(asked: Asked, name: str, taken: Taken) -> Taken | None:
    """Note what a message is taken for; what it was taken for before, if it was."""
    sealed = asked.door.seal.close_kept(taken.model_dump_json().encode(), name)
    found = await asked.door.client.set(name, sealed, nx=True, get=True, ex=IDEMPOTENCY_TTL_S)
    return _opened(asked, name, cast("bytes | None", found))


def _opened(asked: Asked, name: str, stored: bytes | None) -> Taken | None:
    if stored is None:
        return None
    try:
        return Taken.model_validate_json(asked.door.seal.open_kept(stored, name))
    except (Refused, ValidationError):
        raise InvalidParamsError("what was done with this messageId cannot be read: choose a new one") from None


# --- what it is for ---------------------------------------------------------------------------------------------------


def _targets(asked: Asked, standing: Standing) -> tuple[Target, ...]:
    """Return what a message answers: what it names, or the one thing that waits."""
    waiting = {call.call_id: Target(kind="call", id=call.call_id) for call in standing.approvals}
    waiting |= {each.question_id: Target(kind="question", id=each.question_id) for each in standing.questions}
    named = [str(each.get("question_id") or each.get("call_id")) for each in decisions_in(asked.message)]
    for each in named:
        if each not in waiting:
            raise InvalidParamsError(
                f"nothing waits for an answer under {each[:100]!r}; the task's status says what does"
            )
    if not named and len(waiting) > 1:
        raise InvalidParamsError(
            f"{len(waiting)} things wait for an answer: say which one is meant, in a data part with its call_id and "
            "`granted`, or with its question_id and `answer`"
        )
    return tuple(waiting[each] for each in named or waiting) or (Target(kind="model"),)


async def _do_first(asked: Asked, name: str, taken: Taken, standing: Standing, said: UserMessage) -> None:
    try:
        await _do(asked, taken, standing, said, is_repeat=False)
    except (A2AError, Problem, CallerError):  # of anything else nobody can say whether it was done
        await asked.door.client.delete(name)  # it may be said better under the same id
        raise


async def _do(asked: Asked, taken: Taken, standing: Standing, said: UserMessage, *, is_repeat: bool) -> None:
    for target in taken.targets:
        try:
            if target.kind == "model":
                say, key = asked.door.orchestrator.say, SAID + asked.message_id
                await say(standing.run.run_id, (said,), idempotency_key=key, by=asked.grant.who)
            else:
                await _answer(asked, standing.run.run_id, target, said)
        except (RunNotOpen, QuestionNotFound):
            if not is_repeat:  # else it was done, or came too late, the first time
                raise


# --- answers ----------------------------------------------------------------------------------------------------------


async def _answer(asked: Asked, task_id: str, target: Target, said: UserMessage) -> None:
    must_have(asked.grant, Scope.APPROVE)
    given = next((each for each in decisions_in(asked.message) if target.id in each.values()), None)
    if target.kind == "question":
        await _answer_question(asked, target.id, given, said)
    else:
        await decide(task_id, _decision(target.id, given, said), asked.grant, asked.door)


def _decision(call_id: str, given: dict[str, Any] | None, said: UserMessage) -> ApprovalRequest:
    """Return what is decided about a call. Words that are neither a yes nor a no deny it, and the model reads them."""
    if given is not None:
        return _read(ApprovalRequest, given)
    words = said.content.strip()
    if len(words) > MOST_REASON_CHARS:
        raise InvalidParamsError(
            f"a call waits for approval: say yes or no, or why not in {MOST_REASON_CHARS} characters"
        )
    if words.lower() in GRANTS:
        return ApprovalRequest(call_id=call_id, granted=True)
    return ApprovalRequest(call_id=call_id, granted=False, reason="" if words.lower() in DENIES else words)


async def _answer_question(asked: Asked, question_id: str, given: dict[str, Any] | None, said: UserMessage) -> None:
    if given is not None:
        body = _read(AnswerBody, {name: value for name, value in given.items() if name != "question_id"})
        await answer(question_id, body, asked.grant, asked.door)
        return
    refused: InvalidAnswer | None = None
    for meant in _meanings(said.content):
        try:
            await answer(question_id, AnswerBody(answer=meant), asked.grant, asked.door)
        except InvalidAnswer as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        raise refused


def _meanings(words: str) -> list[Any]:
    """Return what an answer in words may mean, in the order in which it is tried: the text, a yes or no, JSON."""
    meant: list[Any] = [words]
    plain = words.strip().lower()
    if plain in GRANTS | DENIES:
        meant.append(plain in GRANTS)
    with suppress(orjson.JSONDecodeError):
        meant.append(orjson.loads(words))
    return meant


def _read(kind: type[B], given: dict[str, Any]) -> B:
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidParamsError(f"a decision cannot be read: {where}: {first['msg']}"[:500]) from None
