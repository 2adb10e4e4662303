"""When an evaluated run has passed: what is asked of its answer, each as a function of both runs. Pure.

A check returns None where it is content, or what it has against the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolfleet.orchestrator.errors import InvalidOption
from toolfleet.orchestrator.run.states import State
from toolfleet.orchestrator.run.structured import parsed, problem_with, problem_with_schema
from toolfleet.orchestrator.run.value import Run

OWN_WORDS: Final = 200
"""Characters of what a user's own check has raised."""

NO_ANSWER: Final = "the recorded run has no answer that this one could have"


@dataclass(frozen=True, slots=True)
class Check:
    """One question to an answer: the recorded run, then the evaluated one."""

    name: str
    complaint: Callable[[Run, Run], str | None]


def exact() -> Check:
    """The same answer: the same JSON value where both are JSON, otherwise the same text but for white space."""

    def complaint(recorded: Run, run: Run) -> str | None:
        if recorded.answer is None:
            return NO_ANSWER
        return None if _value(recorded.answer) == _value(run.answer) else "the answer is another one"

    return Check("exact", complaint)


def contains() -> Check:
    """An answer that has the recorded one in it, whatever their case and white space."""

    def complaint(recorded: Run, run: Run) -> str | None:
        if not _words(recorded.answer):
            return NO_ANSWER
        return None if _words(recorded.answer) in _words(run.answer) else "the recorded answer is not in it"

    return Check("contains", complaint)


def fits(schema: Mapping[str, Any] | None = None) -> Check:
    """An answer that is JSON of this schema, or of the one that the run was begun with. Raises InvalidOption."""
    if schema is not None and (problem := problem_with_schema(schema)):
        raise InvalidOption(f"schema: {problem}")

    def complaint(recorded: Run, run: Run) -> str | None:
        wanted = schema or recorded.terms.output_schema
        return "the run has no schema for its answer" if wanted is None else problem_with(run.answer or "", wanted)

    return Check("schema", complaint)


def own(name: str, function: Callable[[Run, Run], Any]) -> Check:
    """A function of the recorded run and the evaluated one: true or None is content, a text says what is wrong."""

    def complaint(recorded: Run, run: Run) -> str | None:
        try:
            said = function(recorded, run)
        except Exception as error:  # noqa: BLE001  # whatever a user's own check raises, the others are still asked
            return f"{type(error).__name__}: {error}"[:OWN_WORDS]
        return None if said is None or said is True else said if isinstance(said, str) and said else "it says no"

    return Check(name, complaint)


def ended_well(run: Run) -> str | None:
    """Why a run has no answer that could be checked; None for one that is done."""
    return None if run.state is State.DONE else f"{run.state}: {run.reason}"


def _value(answer: str | None) -> Any:
    try:
        return parsed(answer or "")
    except ValueError:
        return (answer or "").strip()


def _words(answer: str | None) -> str:
    return " ".join((answer or "").split()).casefold()
