"""What a tool may ask while it is called: the user who waits for the call, or the model of their client.

The call ends with the questions, and is made again with the answers, so nothing waits on a worker. Over MCP the client
is asked; any other caller reads what is wanted. Holds values; knows no protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from toolfleet.calls import Record, Returned
from toolfleet.context import current_context
from toolfleet.errors import ToolError
from toolfleet.misspelt import exact

QUESTIONS: Final = "toolfleet/questions"
"""Where a result's attributes have the questions that its tool asks instead of returning."""

ANSWERS: Final = "toolfleet/answers"
"""Where the context of the call that is made again has what was said."""


class FormAsked(Record):
    """A form as it travels: what it says, and the JSON Schema of what is filled in."""

    type: Literal["form"] = "form"
    message: str
    schema_: dict[str, Any] = Field(alias="schema")


class ModelAsked(Record):
    """A prompt as it travels."""

    type: Literal["model"] = "model"
    prompt: str
    system: str = ""
    max_tokens: int


Asked = Annotated[FormAsked | ModelAsked, Field(discriminator="type")]
ASKED: Final[TypeAdapter[dict[str, Asked]]] = TypeAdapter(dict[str, Asked])


class Answer(Record):
    """What was said to one question: a filled in form, a model's text, or neither."""

    form: dict[str, Any] | None = None
    text: str | None = None
    refused: str = ""
    """Why nobody answers: the user declined, or put it aside."""


@exact()
@dataclass(frozen=True, slots=True)
class Form:
    """A question to the user: `Form("Which day?", {"day": {"type": "string", "format": "date"}})`.

    `fields` are JSON schemas, each of text, a number, yes or no, or a choice: what MCP's clients can show. All are
    required but those in `optional`. Never ask for secrets: what is filled in passes through the client and its logs.
    """

    message: str
    fields: Mapping[str, Mapping[str, Any]]
    optional: Sequence[str] = ()

    def asked(self) -> FormAsked:
        """Return it as it travels."""
        required = [name for name in self.fields if name not in self.optional]
        properties = {name: dict(schema) for name, schema in self.fields.items()}
        return FormAsked(
            message=self.message, schema={"type": "object", "properties": properties, "required": required}
        )


@exact()
@dataclass(frozen=True, slots=True)
class ModelPrompt:
    """A question to the model that the client has: it decides which, and may let its user see and change it."""

    prompt: str
    system: str = ""
    max_tokens: int = 1000

    def asked(self) -> ModelAsked:
        """Return it as it travels."""
        return ModelAsked(prompt=self.prompt, system=self.system, max_tokens=self.max_tokens)


class Declined(ToolError):
    """The user did not answer; raised out of the tool, it tells the model so."""


class Unanswered(BaseException):
    """Ends a call with questions. No failure, so nothing that catches failures, or tries again, sees it."""

    def __init__(self, questions: Mapping[str, FormAsked | ModelAsked]) -> None:
        super().__init__("asks, and is called again with the answers")
        self._questions = questions

    @property
    def result(self) -> Returned:
        """What the call returns instead of a result."""
        wanted = "; ".join(f"{name}: {_said(asked)}" for name, asked in self._questions.items())
        content = (
            f"Nothing is done yet: the tool asks for more than its arguments, and cannot be answered here. {wanted}"
        )
        questions = {name: asked.model_dump(mode="json", by_alias=True) for name, asked in self._questions.items()}
        return Returned(content=content, attributes={QUESTIONS: questions})


def ask(**questions: Form | ModelPrompt) -> dict[str, Any]:
    """Return the answers: of a form the values that were filled in, of a model its text, under the questions' names.

    Where they are not known yet the call ends here, and the tool runs again from its beginning once they are: ask
    before you do anything. Questions that were asked before are answered at once, so a tool may ask on. Raises
    Declined, NoContext.
    """
    known = current_context().context.get(ANSWERS)
    asked = {name: question.asked() for name, question in questions.items()}
    given: Mapping[str, Any] = known if isinstance(known, Mapping) else {}
    answers = {name: _answer(each, given.get(name)) for name, each in asked.items()}
    missing = {name: asked[name] for name, answer in answers.items() if answer is None}
    if missing:
        raise Unanswered(missing)
    return answers


def _answer(asked: FormAsked | ModelAsked, given: object) -> Any:
    """Return what was said, or None where nothing was that answers the question."""
    try:
        said = Answer.model_validate(given)
    except ValidationError:
        return None
    if said.refused:
        raise Declined(f"the user was asked ({_said(asked)}) and did not answer: {said.refused}")
    if isinstance(asked, ModelAsked):
        return said.text
    return said.form if said.form is not None and _fits(said.form, asked.schema_) else None


def _fits(form: dict[str, Any], schema: dict[str, Any]) -> bool:
    from jsonschema import Draft202012Validator  # noqa: PLC0415  # slow to import, and few tools ask

    return bool(Draft202012Validator(schema).is_valid(form))


def _said(asked: FormAsked | ModelAsked) -> str:
    return asked.message if isinstance(asked, FormAsked) else asked.prompt
