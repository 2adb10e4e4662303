"""Which of our errors is answered with which status: who must act is told, and nobody is sent to wait for nothing."""

import inspect
from http import HTTPStatus

import pytest

from tests.http.fleet_of_doors import api_of
from toolfleet import errors as of_both_halves
from toolfleet.errors import CallerError, InvalidSettings, OperatorError, ToolfleetError
from toolfleet.orchestrator import errors as of_the_orchestrator
from toolfleet.orchestrator.doors.http import mounted_a2a, mounted_mcp
from toolfleet.orchestrator.doors.http.problems import STATUSES, problem_of

MENDED_BY_WAITING = {
    "AllShardsDrain",
    "BrokerUnreachable",
    "OrchestratorClosed",
    "StoreRefuses",
    "StoreUnreachable",
    "TooFewReplicas",
}

KINDS = sorted(
    {
        kind
        for module in (of_both_halves, of_the_orchestrator)
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, ToolfleetError)
    },
    key=lambda kind: kind.__name__,
)


def problem(kind):
    return problem_of(kind.__new__(kind))


def test_only_what_may_be_mended_meanwhile_sends_the_client_to_wait():
    assert len(KINDS) > 40
    waits = {kind.__name__ for kind in KINDS if problem(kind).status is HTTPStatus.SERVICE_UNAVAILABLE}
    assert waits == MENDED_BY_WAITING
    assert {kind.__name__ for kind in KINDS if "retry-after" in problem(kind).headers} == MENDED_BY_WAITING


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_family_of_an_error_says_whose_fault_it_is(kind):
    status = problem(kind).status
    if issubclass(kind, InvalidSettings | OperatorError):
        assert status >= HTTPStatus.INTERNAL_SERVER_ERROR
    elif issubclass(kind, CallerError) and kind.__name__ not in MENDED_BY_WAITING:
        assert status < HTTPStatus.INTERNAL_SERVER_ERROR


def test_no_row_is_shadowed_by_one_above_it():
    kinds = [kind for kind, _ in STATUSES]
    for at, kind in enumerate(kinds):
        assert not any(issubclass(kind, earlier) for earlier in kinds[:at]), kind.__name__


async def test_a_full_redis_is_503_with_when_to_come_again(settings):
    async with api_of(settings) as api:
        key, _ = await api.door.keyring.add(rate_per_s=50)
        await api.door.client.config_set("maxmemory", "1")
        try:
            asked = {"question": "?", "model": "nobody-has-this"}
            for said in ({}, {"authorization": f"Bearer {key}"}, {"idempotency-key": "full"}):
                answer = await api.client.post("/v1/runs", json=asked, headers=said)
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "2"), answer.text
        finally:
            await api.door.client.config_set("maxmemory", "0")


async def test_a_body_that_does_not_say_what_it_is_is_told_how_to(settings):
    """What curl sends with `-d` alone."""
    async with api_of(settings) as api:
        form = {"content-type": "application/x-www-form-urlencoded"}
        refused = await api.client.post("/v1/runs", content=b'{"question": "?"}', headers=form)
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("send the body with `content-type: application/json`; it came as appl")


async def test_a_door_whose_package_is_not_installed_says_what_to_install(settings, monkeypatch):
    for module in (mounted_mcp, mounted_a2a):
        monkeypatch.setattr(module, "find_spec", lambda _name: None)
    asked = (
        ("POST", "/mcp", "mcp"),
        ("GET", "/mcp", "mcp"),
        ("POST", "/a2a", "a2a"),
        ("GET", "/a2a/v1/tasks/t", "a2a"),
        ("GET", "/.well-known/agent-card.json", "a2a"),
    )
    async with api_of(settings) as api:
        for method, path, extra in asked:
            answer = await api.client.request(method, path)
            assert (answer.status_code, answer.json()["type"]) == (501, "urn:toolfleet:problem:extra-missing"), path
            assert f"pip install 'toolfleet[{extra}]'" in answer.json()["detail"]


async def test_whoever_asks_for_the_head_alone_is_told_whether_a_server_is_well(settings):
    async with api_of(settings) as api:
        for path in ("/healthz", "/readyz"):
            answer = await api.client.head(path)
            assert (answer.status_code, answer.content, answer.headers["content-length"]) == (200, b"", "15")
            assert (await api.client.get(path)).content == b'{"status":"ok"}'
