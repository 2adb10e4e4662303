"""Interceptors around tools on real workers: their order, their powers, and those that are shipped. Rows P1 and P2."""

import asyncio
import json
import secrets
from collections.abc import Iterator

import pytest
from fleets import HERE, asking

from toolfleet import Failed, FailureKind
from toolfleet.errors import WorkerNotReady
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator

KINDS = {"asyncio": ("--kind", "asyncio", "--concurrency", "8"), "prefork": ("--kind", "prefork", "--concurrency", "2")}
TOKEN = "tok-" + secrets.token_hex(8)


@pytest.fixture(scope="module", params=KINDS)
def fleet(request) -> Iterator[LocalFleet]:
    with LocalFleet(
        ["surrounded_tools"],
        pools={"io": 1},
        environment=HERE,
        worker_options=[*KINDS[request.param], "--queues", "io,cpu"],
        interceptors=["surrounded_tools:watch"],
        namespace=f"around-{request.param}",
    ) as running:
        yield running


@pytest.fixture
async def call(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        yield orchestrator.call


@pytest.mark.parametrize("tool", ["doubled", "doubled_blocking"])
async def test_P1_the_workers_stand_around_the_tools_own_and_share_attributes_that_reach_the_caller(call, tool):
    result = await call(tool, {"n": 21})
    assert result.content == "42"
    assert result.attributes == {"seen": [f"worker>{tool}", "tool>", "run", "tool<", "worker<returned"]}


async def test_P1_changed_arguments_are_checked_before_the_tool_sees_them(call):
    result = await call("spoiled", {"n": 1})
    assert (result.type, result.kind) == ("failed", FailureKind.BAD_ARGUMENTS)
    assert "bad arguments for spoiled" in result.message
    assert "parameter 'n' is" in result.message
    assert "unknown argument 'm'" in result.message


async def test_P1_what_the_model_sent_is_checked_before_any_interceptor_sees_it(call):
    result = await call("shortened", {"n": "many"})
    assert result.kind is FailureKind.BAD_ARGUMENTS


async def test_P1_an_interceptor_may_answer_instead_of_the_tool(call):
    assert (await call("shortened", {"n": 7})).content == '{"instead":7}'


async def test_P1_an_interceptor_may_raise_what_a_tool_may_raise(call):
    assert await call("rude", {"n": 7}) == Failed(kind=FailureKind.ERROR, message="please: I hate 7")


async def test_P1_one_that_cannot_be_loaded_keeps_the_worker_from_starting():
    fleet = LocalFleet(
        ["surrounded_tools"], pools={"io": 1}, environment=HERE, interceptors=["surrounded_tools:nobody"]
    )
    with pytest.raises(WorkerNotReady, match="cannot load an interceptor from 'surrounded_tools:nobody'"), fleet:
        pass


# --- the ones that are shipped ---------------------------------------------------------------------------------------


async def test_P2_permission_is_given_or_denied_with_the_reason(call):
    assert (await call("guarded", {}, context={"tenant": "acme"})).content == "welcome"
    refused = await call("guarded", {}, context={"tenant": "umbrella"})
    assert refused == Failed(kind=FailureKind.DENIED, message="guarded was not allowed: only acme may")


async def test_P2_a_time_limit_ends_what_takes_longer(call):
    assert (await call("limited", {"seconds": 0})).content == "in time"
    late = await call("limited", {"seconds": 60})
    assert late == Failed(kind=FailureKind.TIMED_OUT, message="limited did not finish within 0.1 s and was stopped.")


async def test_P2_secrets_are_masked_in_results_and_attributes(call):
    said = await call("leaky", {"text": f"user-77 sends sk-{'a' * 20} and {TOKEN},", "token": TOKEN})
    assert said.content == "*** sends *** and ***, ***"
    assert said.attributes["sent"] == ["***"]


@pytest.mark.parametrize("raises", ["tool", "other"])
async def test_P2_secrets_are_masked_in_errors_and_so_in_the_log(fleet, call, raises):
    said = await call("leaky", {"text": "could not log in with", "token": TOKEN, "raises": raises})
    assert said == Failed(kind=FailureKind.ERROR, message="could not log in with ***")
    assert TOKEN not in fleet.workers[0].log_path.read_text()


async def test_P2_a_read_only_tool_is_asked_once_for_each_question_and_tenant(call, tmp_path):
    def question(query, tenant, subject="ada", city="Rome"):
        asked = {"path": str(tmp_path / "n"), "query": query}
        return call("remembered", asked, context={"city": city}, tenant=tenant, subject=subject)

    first = await question({"a": 1, "b": 2}, "acme")
    again = await question({"b": 2, "a": 1}, "acme")
    assert again.content == first.content
    assert again.attributes["cached"] is True
    assert "cached" not in first.attributes
    assert (await question({"a": 1, "b": 2}, "umbrella")).content != first.content
    assert (await question({"a": 1, "b": 2}, "acme", subject="bob")).content != first.content
    assert (await question({"a": 1, "b": 2}, "acme", city="Oslo")).content != first.content
    assert (await question({"a": 1, "b": 3}, "acme")).content != first.content


async def test_P2_a_tool_with_an_effect_is_never_answered_from_a_cache(call, tmp_path):
    path = str(tmp_path / "n")
    assert (await call("not_remembered", {"path": path})).content == "the 1. time"
    assert (await call("not_remembered", {"path": path})).content == "the 2. time"


async def test_P2_a_tool_runs_in_one_process_no_more_often_than_it_may(fleet, request):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        messages = await orchestrator.execute(asking(*[("crowded", {})] * 8))
    # A child of prefork has one call at a time; eight at once on an event loop would be eight.
    at_most = 1 if request.node.callspec.params["fleet"] == "prefork" else 2
    assert max(json.loads(message.content) for message in messages) == at_most


# --- R8: trying again ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["flaky", "flaky_blocking"])
async def test_R8_a_listed_error_is_tried_again_and_the_tries_are_counted(call, tool):
    result = await call(tool, {"succeeds_at": 3})
    seen = json.loads(result.content)
    assert (seen["tried"], seen["tries"], result.attributes["tries"]) == (3, 3, 3)
    assert seen.get("attempt", 1) == 1


async def test_R8_the_last_error_stands_when_all_tries_failed(call):
    assert (await call("flaky", {"succeeds_at": 9})).message == "down (tried 4 times)"


@pytest.mark.parametrize(("kind", "message"), [("ValueError", "wrong"), ("ToolError", "no")])
async def test_R8_an_error_that_is_not_listed_is_not_tried_again(call, kind, message):
    assert (await call("flaky", {"succeeds_at": 2, "kind": kind})).message == message


async def test_R8_bad_arguments_are_never_tried_again(call):
    result = await call("flaky", {"succeeds_at": "soon"})
    assert result.kind is FailureKind.BAD_ARGUMENTS
    assert "tried" not in result.message


async def test_R8_a_wait_beyond_the_deadline_is_not_begun(call):
    result = await call("hopeless", {}, timeout_s=20)
    assert result == Failed(kind=FailureKind.ERROR, message="still down")


async def test_R8_a_cancelled_call_is_not_tried_again(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        submitted = await orchestrator.call("flaky_for_ever", {}, patience_s=0)
        while (await orchestrator.task(submitted.handle)).state == "queued":
            await asyncio.sleep(0.01)
        status = await orchestrator.cancel_task(submitted.handle)
        assert status.state == "cancelled"
        ended = await orchestrator.task(submitted.handle, wait_s=20)
    assert ended.result.kind is FailureKind.CANCELLED
