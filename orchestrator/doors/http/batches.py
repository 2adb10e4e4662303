"""Batches over HTTP: how each stands, its runs, its cancel. They are begun by the command, where their files are."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from toolfleet.messages import Usage
from toolfleet.orchestrator.batch.cancelling import cancel_batch
from toolfleet.orchestrator.doors.http.access import Reader, Runner
from toolfleet.orchestrator.doors.http.bodies import JsonRoute
from toolfleet.orchestrator.doors.http.problems import ProblemDetails
from toolfleet.orchestrator.doors.http.records import RunBody, RunSummary, SomeWanted
from toolfleet.orchestrator.doors.http.runs import Through
from toolfleet.orchestrator.store.batches import BatchRecord

router = APIRouter(prefix="/v1/batches", tags=["batches"], route_class=JsonRoute)

EXAMPLE: Final = BatchRecord(
    batch_id="nightly-3fa1c2",
    model="gpt-5-mini",
    by="ada@build-7",
    source="questions.jsonl",
    target="answers.jsonl",
    orchestrator_id="6f0c2b1d9a7e",
    starts=2,
    lines=4000,
    ok=1210,
    failed=14,
    refused=2,
    in_hand=100,
    calls=6041,
    failed_calls=33,
    usage=Usage(input_tokens=4812911, output_tokens=912004),
    cost=12.6191,
    began_unix_s=1767225600.0,
    started_unix_s=1767229200.0,
    updated_unix_s=1767229800.5,
).model_dump(mode="json")

SHOWN: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"application/json": {"example": EXAMPLE}}}}
UNKNOWN: Final[dict[int | str, dict[str, Any]]] = {404: {"model": ProblemDetails, "description": "No such batch"}}
NOT_NOW: Final[dict[int | str, dict[str, Any]]] = {
    **UNKNOWN,
    409: {"model": ProblemDetails, "description": "The batch is through, or was cancelled"},
}


class BatchList(BaseModel):
    """The batches of a tenant, those first that are open, then those that ended last."""

    batches: list[BatchRecord]
    after: str | None = Field(description="What the next page is asked for with; null behind the last batch.")


class BatchRunsWanted(RunBody):
    """Which runs of a batch to list."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    after: Annotated[str, Field(max_length=400)] = Field(default="", description="`after` of the page that you have.")


class BatchRuns(BaseModel):
    """Runs of a batch, in the order of their ids."""

    runs: list[RunSummary]
    after: str | None = Field(description="What the next page is asked for with; null behind the last run.")


@router.get("")
async def list_batches(grant: Reader, door: Through, wanted: Annotated[SomeWanted, Query()]) -> BatchList:
    """List the tenant's batches, those first that are open, then those that ended last."""
    found = await door.looking.batches.page(tenant=grant.tenant, limit=wanted.limit, after=wanted.after)
    return BatchList(batches=found.batches, after=found.after or None)


@router.get("/{batch_id}", responses={**SHOWN, **UNKNOWN})
async def show(batch_id: str, grant: Reader, door: Through) -> BatchRecord:
    """Tell how a batch stands."""
    return await door.looking.batches.load(batch_id, tenant=grant.tenant)


@router.get("/{batch_id}/runs", responses=UNKNOWN)
async def runs(batch_id: str, grant: Reader, door: Through, wanted: Annotated[BatchRunsWanted, Query()]) -> BatchRuns:
    """List the runs of a batch that are stored."""
    record = await door.looking.batches.load(batch_id, tenant=grant.tenant)
    found = await door.looking.batches.runs(record, limit=wanted.limit, after=wanted.after)
    return BatchRuns(runs=[RunSummary.of(head) for head in found.heads], after=found.after or None)


@router.post("/{batch_id}/cancel", responses={**SHOWN, **NOT_NOW})
async def cancel(batch_id: str, grant: Runner, door: Through) -> BatchRecord:
    """Cancel a batch: its process stops within seconds, and cancels the runs in hand.

    Those of a batch whose process is gone are cancelled here.
    """
    return await cancel_batch(door.looking.batches, door.orchestrator, batch_id, tenant=grant.tenant, by=grant.who)
