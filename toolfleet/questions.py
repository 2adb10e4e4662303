"""What a running tool asks a person, and what is said to it: records, how an answer is read, and whether it fits.

The tool waits, and goes on with the answer; `asking.py` has the questions that end a call instead. Must not know Redis.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import Field, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from toolfleet.asking import Declined
from toolfleet.calls import Record
from toolfleet.errors import BadAnswer, BadQuestion, QuestionExpired
from toolfleet.schema import ArgumentsSchema
from toolfleet.strict_json import encodable, read_json, written

if TYPE_CHECKING:
    from toolfleet.context import Context
    from toolfleet.sleeping import Sleep

MAX_MESSAGE_CHARS: Final = 10_000
MAX_SCHEMA_BYTES: Final = 32_768
MAX_ANSWER_BYTES: Final = 65_536
MAX_QUESTIONS: Final = 100
"""A call that asks more often than this asks for ever."""

TOLD_IN_TIME_S: Final = 5.0
"""A question expires so long before its call's deadline, at most a tenth of what is left: its tool shall hear of it."""

FAULTS_TOLD: Final = 5

_REF_ELSEWHERE: Final = re.compile(r'"\$(?:dynamicR|r)ef":"[^#"][^"]*"')
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Question(Record):
    """A question as it is stored: what a person reads, and the JSON Schema of what they may say."""

    call_id: str
    run_id: str
    tool: str
    tenant: str = ""
    key: str
    """Which of its call's questions it is: its number, or the name that the tool gave it."""
    message: str
    schema_: dict[str, Any] = Field(alias="schema")
    asked_unix_s: float
    expires_unix_s: float

    @property
    def question_id(self) -> str:
        """What it is answered under."""
        return question_id(self.call_id, self.key)

    def is_same(self, other: Question) -> bool:
        """Whether a person would read the same in both."""
        return (self.call_id, self.key, self.message, self.schema_) == (
            other.call_id,
            other.key,
            other.message,
            other.schema_,
        )


class Said(Record):
    """What has come of a question: an answer, or that there will be none."""

    answer: str | None = None
    """The answer as JSON; None where nobody has given one."""
    declined: bool = False
    """A person does not want to answer."""
    expired: bool = False
    """Nobody has said anything in time."""
    reason: str = ""
    """Why a person does not want to."""
    by: str = ""
    """Who has said so, as the door knows them; "" where nobody is known."""
    said_unix_s: float = 0.0


class Answerless(BaseException):
    """Ends an attempt whose call waits elsewhere, for an answer or a time. What catches failures does not see it."""

    def __init__(self, question: Question | Sleep) -> None:
        super().__init__(f"{question.tool} waits elsewhere, and goes on from its checkpoint")
        self.question = question


class Reading(NamedTuple):
    """How the answers to a question are read: the schema that people see, and what makes a value of an answer."""

    schema: dict[str, Any]
    value_of: Callable[[str], Any]


def question_id(call_id: str, key: str) -> str:
    """Return what a question is answered under."""
    return f"{call_id}:{key}"


def named(id_: str) -> tuple[str, str]:
    """Return the call and the key that an id names; an empty key where it names a call only."""
    call_id, colon, key = id_.rpartition(":")
    return (call_id, key) if colon else (id_, "")


async def ask(context: Context, message: str, schema: Any, key: str, expires_s: float | None) -> Any:
    """Ask, and return the answer: what `Context.ask` does."""
    question, reading = _asked(context, message, schema, key, expires_s)
    return _heard(question, reading, await asyncio.wrap_future(context.put_question(context, question, False)))


def ask_blocking(context: Context, message: str, schema: Any, key: str, expires_s: float | None) -> Any:
    """The same for a tool that blocks its thread or its process: what `Context.ask_blocking` does."""
    question, reading = _asked(context, message, schema, key, expires_s)
    return _heard(question, reading, context.put_question(context, question, True).result())


def faults_of(answer: Any, schema: Mapping[str, Any]) -> list[str]:
    """Return where and why an answer does not fit; nothing if it does."""
    from jsonschema import Draft202012Validator  # noqa: PLC0415  # slow to import, and few tools ask
    from referencing.exceptions import Unresolvable  # noqa: PLC0415  # likewise

    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    try:
        found = sorted(validator.iter_errors(answer), key=lambda error: str(error.json_path))
    except RecursionError:
        return ["$: it nests too deep"]
    except Unresolvable as error:
        return [f"$: its schema refers to what is not there: {error!s:.200}"]
    return [f"{error.json_path}: {error.message[:300]}" for error in found[:FAULTS_TOLD]]


def _asked(context: Context, message: str, schema: Any, key: str, expires_s: float | None) -> tuple[Question, Reading]:
    """Return a question of a call, and how its answers are read. Raises BadQuestion."""
    context.questions += 1
    if context.questions > MAX_QUESTIONS:
        raise BadQuestion(f"{context.tool} has asked {MAX_QUESTIONS} times in this attempt, and asks again")
    if not message.strip() or len(message) > MAX_MESSAGE_CHARS:
        raise BadQuestion(f"{context.tool} asks without words, or with more than {MAX_MESSAGE_CHARS} characters")
    if key and not _KEY.fullmatch(key):
        raise BadQuestion(f"{context.tool} asks under {key!r:.100}: a key is up to 64 of a-z, A-Z, 0-9, _ and -")
    now_unix_s = time.time()
    reading = _reading(context.tool, schema)
    question = Question(
        call_id=context.call_id,
        run_id=context.run_id,
        tool=context.tool,
        tenant=context.tenant,
        key=key or str(context.questions),
        message=encodable(message),
        schema=reading.schema,
        asked_unix_s=now_unix_s,
        expires_unix_s=_expiry(context, expires_s, now_unix_s),
    )
    return question, reading


def _expiry(context: Context, expires_s: float | None, now_unix_s: float) -> float:
    if expires_s is not None and not 0 < expires_s < float("inf"):
        raise BadQuestion(f"{context.tool} gives {expires_s!r} seconds to answer: more than 0, or leave it out")
    left_s = max(0.0, context.deadline_unix_s - now_unix_s)
    in_time_s = left_s - min(TOLD_IN_TIME_S, left_s / 10)
    return now_unix_s + (in_time_s if expires_s is None else min(expires_s, in_time_s))


def _heard(question: Question, reading: Reading, said: Said) -> Any:
    """Return what the tool gets of what was said. Raises Declined, QuestionExpired, BadAnswer."""
    if said.declined:
        raise Declined(
            f"the question was not answered ({question.message:.200}): {said.reason or 'the person declined'}"
        )
    if said.expired or said.answer is None:
        raise QuestionExpired(f"nobody has answered in time ({question.message:.200})")
    try:
        return reading.value_of(said.answer)
    except ValidationError as error:
        raise BadAnswer(f"the answer to {question.message:.200} does not fit: {error.errors()[0]['msg']}") from error


def _reading(tool: str, schema: Any) -> Reading:
    """Return how answers of a type, or by a JSON Schema, are read. Raises BadQuestion."""
    reading = Reading(dict(schema), read_json) if isinstance(schema, Mapping) else _of_type(tool, schema)
    try:
        text = written(reading.schema)
    except (TypeError, RecursionError) as error:
        raise BadQuestion(f"{tool} asks by a schema that is no JSON: {error}") from None
    if len(text) > MAX_SCHEMA_BYTES:
        raise BadQuestion(f"{tool} asks by a schema of {len(text)} bytes, and at most {MAX_SCHEMA_BYTES} are taken")
    return Reading(_checked(tool, read_json(text)), reading.value_of)


def _of_type(tool: str, type_: Any) -> Reading:
    try:
        adapter = TypeAdapter[Any](type_)
        return Reading(adapter.json_schema(schema_generator=ArgumentsSchema), adapter.validate_json)
    except (PydanticUserError, PydanticSchemaGenerationError, PydanticInvalidForJsonSchema) as error:
        raise BadQuestion(f"{tool} asks for {type_!r:.200}, which has no JSON Schema: {error!s:.200}") from None


def _checked(tool: str, schema: dict[str, Any]) -> dict[str, Any]:
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415  # slow to import, and few tools ask

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise BadQuestion(f"{tool} asks by what is no JSON Schema: {error.message:.200}") from None
    if (elsewhere := _REF_ELSEWHERE.search(written(schema))) is not None:
        raise BadQuestion(f"{tool} asks by a schema that refers elsewhere: {elsewhere[0]:.200}")
    return schema


def meant(text: str, schema: Mapping[str, Any]) -> str:
    """Return the JSON of what a person has typed: the JSON that it is if that fits, else the text itself."""
    try:
        if not faults_of(read_json(text), schema):
            return text
    except ValueError:
        pass
    quoted = written(encodable(text))
    is_text = not faults_of(text, schema)
    return quoted if is_text or not _is_json(text) else text


def _is_json(text: str) -> bool:
    try:
        read_json(text)
    except ValueError:
        return False
    return True
