"""Batches over HTTP: who sees which, what of them, and what a cancel comes to."""

from __future__ import annotations

import time

from tests.http.fleet_of_doors import Api
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.orchestrator.store.batches import BatchRecord, BatchState


async def noted(api: Api, name: str, **changes: object) -> BatchRecord:
    record = BatchRecord(
        batch_id=f"{name}-abcdef", lines=9, ok=3, source="secret-customers.jsonl", by="ada", updated_unix_s=time.time()
    ).model_copy(update=changes)
    await api.door.looking.batches.save(record)
    return record


async def headers(api: Api, *scopes: Scope, **others: str) -> dict[str, str]:
    key, _ = await api.door.keyring.add("of a test", scopes=scopes, **others)  # type: ignore[arg-type]  # passed on
    return {"authorization": f"Bearer {key}"}


async def test_batches_are_listed_shown_and_cancelled_with_their_runs(api: Api) -> None:
    run_id = f"batched-abcdef-{'0' * 20}"
    await api.door.orchestrator.start("hello", run_id=run_id)
    await noted(api, "batched", orchestrator_id="gone")
    listed = (await api.client.get("/v1/batches", params={"limit": 200})).json()
    assert "batched-abcdef" in [each["batch_id"] for each in listed["batches"]]
    shown = (await api.client.get("/v1/batches/batched-abcdef")).json()
    assert (shown["state"], shown["ok"], shown["lines"], shown["by"]) == ("interrupted", 3, 9, "ada")
    runs = (await api.client.get("/v1/batches/batched-abcdef/runs")).json()
    assert ([run["run_id"] for run in runs["runs"]], runs["after"]) == ([run_id], None)
    cancelled = await api.client.post("/v1/batches/batched-abcdef/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert (await api.client.get(f"/v1/runs/{run_id}")).json()["state"] in {"cancelled", "done"}
    again = await api.client.post("/v1/batches/batched-abcdef/cancel")
    assert (again.status_code, again.json()["type"]) == (409, "urn:toolfleet:problem:batch-not-open")


async def test_a_tenant_has_its_own_batches_and_a_key_that_only_looks_reads_no_names_of_files(api: Api) -> None:
    await noted(api, "acmes", tenant="acme", state=BatchState.DONE)
    await noted(api, "others", tenant="other", state=BatchState.DONE)
    ours = await headers(api, Scope.READ, tenant="acme")
    listed = (await api.client.get("/v1/batches", headers=ours)).json()["batches"]
    assert [each["batch_id"] for each in listed] == ["acmes-abcdef"]
    assert (listed[0]["ok"], listed[0]["source"]) == (3, "hidden (22 bytes)")
    for path in ("/v1/batches/others-abcdef", "/v1/batches/others-abcdef/runs", "/v1/batches/%00%FF"):
        assert (await api.client.get(path, headers=ours)).status_code == 404
    assert (await api.client.post("/v1/batches/acmes-abcdef/cancel", headers=ours)).status_code == 403
    assert (await api.client.get("/v1/batches", params={"after": "x"})).status_code in {400, 422}
