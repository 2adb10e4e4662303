"""What tenants may use up, over HTTP: one's own, and for administrators any. They are set with `toolfleet budget`."""

from __future__ import annotations

import redis.asyncio
from fastapi import APIRouter
from pydantic import BaseModel, Field

from toolfleet.orchestrator.budgets.tenants import Amounts, Standing, TenantBudgets
from toolfleet.orchestrator.doors.http.access import Admin, Reader
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.settings import Settings
from toolfleet.spendings import spent_by_tools

router = APIRouter(tags=["budgets"])


class AmountsView(BaseModel):
    """How one limit stands: dollars, tokens or calls."""

    limit: float
    used: float
    reserved: float = Field(description="For replies that are being waited for.")
    remaining: float

    @classmethod
    def of(cls, amounts: Amounts) -> AmountsView:
        """The limit as it is shown."""
        return cls(remaining=amounts.remaining, **amounts.model_dump())


class BudgetView(BaseModel):
    """How a tenant's budget of one period stands."""

    tenant: str
    period: str = Field(examples=["day"])
    strict: bool
    resets_unix_s: float | None = Field(description="When it begins anew; null for one that never does.")
    amounts: dict[str, AmountsView] = Field(description="By what is limited: usd, tokens, calls.")

    @classmethod
    def of(cls, standing: Standing) -> BudgetView:
        """The budget as it is shown."""
        amounts = {unit: AmountsView.of(each) for unit, each in standing.amounts.items()}
        return cls.model_validate({**standing.model_dump(), "amounts": amounts})


class BudgetList(BaseModel):
    """A tenant's budgets; empty where it has none."""

    budgets: list[BudgetView]


@router.get("/v1/budget")
async def own_budget(grant: Reader, door: Through) -> BudgetList:
    """Show what is left of the budgets of the key's own tenant."""
    return await _shown(door.client, door.settings, grant.tenant)


@router.get("/v1/budgets/{tenant}")
async def budget_of(tenant: str, _grant: Admin, door: Through) -> BudgetList:
    """Show what is left of the budgets of a tenant."""
    return await _shown(door.client, door.settings, tenant)


class SpendingView(BaseModel):
    """What tools have spent elsewhere so far, as they have said with `ctx.spend`."""

    usd_by_tool: dict[str, float] = Field(description="US dollars by the tool's name; those that have spent something.")


@router.get("/v1/spending")
async def spending(_grant: Admin, door: Through) -> SpendingView:
    """Show what the fleet's tools have spent elsewhere, added up by tool since it began."""
    return SpendingView(usd_by_tool=await spent_by_tools(door.client, door.settings.keys))


async def _shown(client: redis.asyncio.Redis, settings: Settings, tenant: str) -> BudgetList:
    return BudgetList(budgets=[BudgetView.of(each) for each in await TenantBudgets(client, settings).of(tenant)])
