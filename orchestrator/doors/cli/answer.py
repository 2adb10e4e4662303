"""`toolfleet answer`: what a person says to a tool that has asked."""

from __future__ import annotations

from typing import Annotated

import typer

from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.cli.sessions import Session, act
from toolfleet.orchestrator.doors.cli.who import who
from toolfleet.questions import meant
from toolfleet.strict_json import read_json
from toolfleet.terminal import harmless


def answer(
    question_id: Annotated[
        str, typer.Argument(metavar="ID", help="A question's id, or its call's if that asks one thing only.")
    ],
    said: Annotated[
        str | None, typer.Argument(metavar="ANSWER", help="JSON that fits the question, or a text.")
    ] = None,
    *,
    decline: Annotated[bool, typer.Option("--decline", help="Say that nobody will answer.")] = False,
    reason: Annotated[str, typer.Option(help="Why not; the tool hears it.")] = "",
) -> None:
    """Answer what a tool asks while it runs, or decline to. The first answer counts."""
    if decline == (said is not None):
        raise typer.BadParameter("give an ANSWER, or say --decline")

    async def reply(_session: Session, orchestrator: Orchestrator) -> None:
        question = await orchestrator.question(question_id)
        if said is None:
            await orchestrator.decline(question.question_id, reason, by=who())
        else:
            value = read_json(meant(said, question.schema_))
            await orchestrator.answer(question.question_id, value, by=who())
        verb = "declined" if said is None else "answered"
        typer.echo(harmless(f"{question.tool} was {verb}: {question.question_id}"))

    act(reply)
