"""How all stands, in one answer: queues, workers, runs. What a page begins with."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from pydantic import BaseModel

from toolfleet.orchestrator.budgets.tenants import Standing as BudgetStanding, TenantBudgets
from toolfleet.orchestrator.doors.http.access import Reader
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.budgets import BudgetView
from toolfleet.orchestrator.doors.http.door import Door
from toolfleet.orchestrator.doors.http.key_store import Grant, Scope
from toolfleet.orchestrator.doors.http.records import WorkerView
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.fleet.limits import LimitsStanding
from toolfleet.orchestrator.fleet.queues import QueueStanding

router = APIRouter(prefix="/v1/overview", tags=["fleet"], route_class=JsonRoute)


class RunsStanding(BaseModel):
    """How the runs of a tenant stand."""

    stored: int
    """How many are stored that are the key's tenant's, or nobody's where it has none: those that a list of runs has."""
    by_state: dict[str, int]
    """How many of these are in which state."""
    awaiting_approval: int
    """How many of these have calls that wait for a person."""


class Standing(BaseModel):
    """How all stands."""

    runs: RunsStanding
    workers: list[WorkerView]
    queues: list[QueueStanding] | None
    """None for a key without the scope `admin`: they are everybody's."""
    limits: LimitsStanding | None
    """What tools declare, and what people have said of that; None likewise."""
    budgets: list[BudgetView]
    """Those of the key's tenant; with the scope `admin` the first of all, by their tenants' names."""
    budgets_stored: int
    """How many tenants have any; for others than `admin` how many are told here."""


async def own_budgets(grant: Grant, door: Door) -> Sequence[BudgetStanding]:
    """Return how the budgets of a key's own tenant stand. Raises StoreUnreachable."""
    return await TenantBudgets(door.client, door.settings).of(grant.tenant)


@router.get("")
async def overview(grant: Reader, door: Through) -> Standing:
    """Tell how runs, workers and queues stand: a few commands, whatever is stored."""
    fleet = await door.looking.fleet.standing() if grant.may(Scope.ADMIN) else None
    budgets = fleet.budgets if fleet else await own_budgets(grant, door)
    tally = await door.looking.run_states.tally(tenant=grant.tenant)
    workers = await door.orchestrator.catalog.workers()
    shown = [WorkerView.of(announced) for announced in workers]
    return Standing(
        runs=RunsStanding(
            stored=tally.runs,
            by_state={state.value: count for state, count in tally.by_state.items()},
            awaiting_approval=tally.awaiting_approval,
        ),
        workers=[
            each.model_copy(update={"tools": [tool for tool in each.tools if grant.may_call(tool)]}) for each in shown
        ],
        queues=list(fleet.queues) if fleet else None,
        limits=fleet.limits if fleet else None,
        budgets=[BudgetView.of(each) for each in budgets],
        budgets_stored=fleet.budgets_stored if fleet else len(budgets),
    )
