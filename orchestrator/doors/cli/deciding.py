"""`toolfleet runs approve` and `deny`: what a person says about calls that wait for it.

Finds the calls that are meant and asks again where that is not plain; whether they may be decided, their run says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import orjson
import typer

from toolfleet.calls import run_of
from toolfleet.orchestrator.doors.cli.sessions import Session, act
from toolfleet.orchestrator.doors.cli.who import who
from toolfleet.orchestrator.doors.cli.wording import one_line, plural
from toolfleet.orchestrator.errors import AmbiguousId, RunNotFound, RunNotOpen
from toolfleet.orchestrator.run.events import Approval, CallRecord
from toolfleet.orchestrator.status.below import with_approvals_below

if TYPE_CHECKING:  # it loads models, Celery and all that works on runs
    from toolfleet.orchestrator.api import Orchestrator

Named = Annotated[
    str, typer.Argument(metavar="ID", help="A call's id (RUN.TURN.POSITION), or its run's if no other call waits.")
]
All = Annotated[bool, typer.Option("--all", help="Every call of the run that waits.")]

Digest = Annotated[
    str,
    typer.Option(
        "--digest", metavar="SHA256", help="Only if the call's arguments are still those: `runs show --json` has it."
    ),
]

ARGUMENTS_CHARACTERS = 100
DIGEST_CHARACTERS = 64


def approve(
    named: Named,
    *,
    arguments: Annotated[
        str | None, typer.Option("--arguments", help="A JSON object to run the call with instead of the model's.")
    ] = None,
    digest: Digest = "",
    everything: All = False,
) -> None:
    """Let a call run that waits for approval."""
    must_be_of_one(digest, everything=everything)
    if arguments is not None:
        if everything:
            raise typer.BadParameter("--arguments are those of one call: name it, without --all")
        check_arguments(arguments)
    approval = Approval(granted=True, arguments=arguments, digest=digest)
    act(lambda session, orchestrator: _decide(session, orchestrator, named, approval, everything=everything))


def deny(
    named: Named,
    *,
    reason: Annotated[str, typer.Option(help="Why not; the model reads it.")] = "",
    digest: Digest = "",
    everything: All = False,
) -> None:
    """Do not let a call run that waits for approval. The model is told, and the run goes on."""
    must_be_of_one(digest, everything=everything)
    approval = Approval(granted=False, reason=reason, digest=digest)
    act(lambda session, orchestrator: _decide(session, orchestrator, named, approval, everything=everything))


def must_be_of_one(digest: str, *, everything: bool) -> None:
    """Raise BadParameter for a digest that can be of no call, or is of one where several are meant."""
    if digest and everything:
        raise typer.BadParameter("--digest is of one call: name it, without --all")
    if digest and (len(digest) != DIGEST_CHARACTERS or set(digest) - set("0123456789abcdef")):
        raise typer.BadParameter("--digest is 64 hexadecimal digits")


def check_arguments(arguments: str) -> None:
    """Raise BadParameter for what is no JSON object."""
    try:
        is_object = isinstance(orjson.loads(arguments), dict)
    except orjson.JSONDecodeError as error:
        raise typer.BadParameter(f"--arguments is no JSON: {error}") from None
    if not is_object:
        raise typer.BadParameter("--arguments must be a JSON object")


async def _decide(
    session: Session, orchestrator: Orchestrator, named: str, approval: Approval, *, everything: bool
) -> None:
    for call_id in await _find_meant(session, named, everything=everything):
        run = await orchestrator.approve(call_id, approval.model_copy(update={"by": who()}))
        typer.echo(f"call {call_id} {'approved' if approval.granted else 'denied'}; run {run.run_id} goes on")
    await session.warn_unless_somebody_goes_on(run.model)


async def _find_meant(session: Session, named: str, *, everything: bool) -> list[str]:
    """Return the ids of the calls to decide about. Raises AmbiguousId, RunNotOpen, RunNotFound."""
    # A call comes first: the run of an agent, which is below it, has its call's id.
    call_id = await _find_waiting_call(session, named)
    if call_id is not None:
        return [call_id]
    run = (await session.store.load(await session.store.named(named))).run
    run = await with_approvals_below(session.store, run)
    waiting = run.awaiting_approval
    if not waiting:
        raise RunNotOpen(f"no call of run {run.run_id} waits for approval: the run is {run.state}")
    if len(waiting) > 1 and not everything:
        raise AmbiguousId(_choice(run.run_id, waiting))
    return [call.call_id for call in waiting]


async def _find_waiting_call(session: Session, named: str) -> str | None:
    """Return the id of the call that is named by its own, whether it waits or not; None for what names a run."""
    _, *position = named.rsplit(".", 2)
    if len(position) != 2 or not all(part.isdigit() for part in position):
        return None
    call_id = await session.call_named(named)
    try:
        run = (await session.store.load(run_of(call_id))).run
    except RunNotFound:
        return None
    waits = any(call.call_id == call_id for call in run.awaiting_approval)
    return call_id if waits or not await _is_run(session, call_id) else None


async def _is_run(session: Session, run_id: str) -> bool:
    return bool(await session.store.runs_among([run_id]))


def _choice(run_id: str, waiting: Sequence[CallRecord]) -> str:
    """Return which calls there are to choose from, as text."""
    lines = [f"  {call.call_id}  {call.tool} {one_line(call.arguments, ARGUMENTS_CHARACTERS)}" for call in waiting]
    return "\n".join(
        [f"{plural(len(waiting), 'call')} of run {run_id} wait for approval: name one, or say --all", *lines]
    )
