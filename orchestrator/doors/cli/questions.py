"""`toolfleet questions`: what tools that run ask people, and nobody has answered yet."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from toolfleet.orchestrator.api import Orchestrator
from toolfleet.orchestrator.doors.cli.sessions import Session, act
from toolfleet.orchestrator.doors.cli.tables import Column, Listing
from toolfleet.orchestrator.doors.cli.telling import AsJson, print_json
from toolfleet.orchestrator.doors.cli.wording import plural
from toolfleet.orchestrator.status.questions import QuestionPage
from toolfleet.strict_json import written

MOST = 200


def questions(
    *,
    tenant: Annotated[str, typer.Option(help="Whose; without it, those of calls of no tenant.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show what tools ask people while they run, those first that have waited longest.

    On a terminal as a table; into a pipe one line for each question, with tabs between the columns: id, tool, schema of
    the answer, question.
    """

    async def show(_session: Session, orchestrator: Orchestrator) -> None:
        _print(await orchestrator.questions(tenant=tenant, limit=MOST), as_json=as_json)

    act(show)


def _print(page: QuestionPage, *, as_json: bool) -> None:
    if as_json:
        print_json([each.model_dump(mode="json") for each in page.waiting])
        return
    if not page.waiting:
        typer.echo("Nobody is asked anything.")
        return
    listing = Listing("id", "tool", Column("answer", is_spared=True), elastic="question")
    for each in page.waiting:
        listing.add(each.question_id, each.tool, written(each.answer_schema), each.message)
    more = " and more" if page.after else ""
    listing.print(Console(), f"{plural(len(page.waiting), 'question')}{more}: toolfleet answer ID ANSWER")
