"""Batches on the page: one that goes on is seen going on, leads to its runs, and can be cancelled."""

from __future__ import annotations

import time

import pytest

from tests.http.fleet_of_doors import Api
from tests.page.browsers import Window
from toolfleet.orchestrator.store.batches import BatchRecord, BatchState

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_batch_is_seen_going_on_leads_to_its_runs_and_is_cancelled(tab: Window, served: Api):
    door, now = served.door, time.time()
    run_id = f"shown-abcdef-{'a' * 20}"
    await served.door.orchestrator.run("What is a batch?", run_id=run_id)
    record = BatchRecord(
        batch_id="shown-abcdef",
        orchestrator_id=door.orchestrator.orchestrator_id,
        source="<b>in</b>\x1b[2J.jsonl",
        by="ada@desk",
        lines=40,
        ok=10,
        in_hand=5,
        began_unix_s=now,
        started_unix_s=now,
        updated_unix_s=now,
    )
    await door.looking.batches.save(record)
    await tab.go("/batches")
    await tab.page.wait_for_selector("#live >> text=Live")
    assert "10 of 40 lines" in await tab.text()
    await door.looking.batches.save(record.model_copy(update={"ok": 20}))
    await tab.page.wait_for_selector("text=20 of 40 lines")
    await tab.page.click("a:has-text('shown-abcdef')")
    assert "<b>in</b>" in await tab.page.inner_text("h1")
    await tab.page.wait_for_selector("#live >> text=Live")
    await door.looking.batches.save(record.model_copy(update={"ok": 30}))
    await tab.page.wait_for_selector("text=30 of 40 lines")
    await tab.page.click("text=Cancel it, and its runs")
    assert await door.looking.batches.save(record) != ""
    cancelled = {"state": BatchState.CANCELLED, "reason": "the batch was cancelled by ada"}
    await door.looking.batches.save(record.model_copy(update=cancelled))
    await tab.page.wait_for_selector("text=The batch was cancelled by ada")
    await tab.page.click("a:has-text('What is a batch?')")
    assert tab.page.url.endswith(f"/runs/{run_id}")
