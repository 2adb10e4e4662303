"""What a call says of itself afterwards: how it was read, when it ran, and that its run is the newest."""

import json
import time

import pytest
from conversations import WrittenModel, requesting
from fleets import fleet_of
from strict_provider import StrictProvider, openai_calls

from toolfleet.calls import Failed, FailureKind, Returned
from toolfleet.messages import ToolMessage
from toolfleet.orchestrator import Orchestrator
from toolfleet.orchestrator.run.updates import CallEnded, CallStarted


@pytest.fixture(scope="module")
def fleet():
    with fleet_of(pools={"io": 1}) as running:
        yield running


async def test_A2_a_call_that_was_repaired_says_so_and_the_model_reads_what_was_run(fleet):
    async with StrictProvider() as provider, Orchestrator(provider.openai(), settings=fleet.settings) as orchestrator:
        asked = [("add", ['{"a": 1, "b": 2,}']), ("add", ['"a": 3, "b": 4}']), ("add", ['{"a": 5, "b": 6}'])]
        provider.replies.append(openai_calls(*asked, ("add", ['{"a": "x'])))
        events = [event async for event in orchestrator.stream("?")]
        shown = provider.requests[-1]["messages"][1]["tool_calls"]
    ended = {event.call_id: event.result for event in events if isinstance(event, CallEnded)}
    run = events[-1].run
    assert [ended[call.call_id].repaired for call in run.calls] == [True, True, False, False]
    assert [call.result.repaired for call in run.calls] == [True, True, False, False]
    assert [call.result.content for call in run.calls[:3]] == ["3", "7", "11"]
    said = [json.loads(call["function"]["arguments"]) for call in shown]
    assert said == [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5, "b": 6}, {"malformed_arguments": '{"a": "x'}]


async def test_calls_and_events_say_when_a_worker_began_and_ended(fleet):
    before = time.time()
    model = WrittenModel((requesting(("a", "add", '{"a": 1, "b": 2}'), ("b", "nope", "{}")), "stop"))
    async with Orchestrator(model, settings=fleet.settings) as orchestrator:
        events = [event async for event in orchestrator.stream("?")]
    after = time.time()
    [started] = [event for event in events if isinstance(event, CallStarted)]
    [ended] = [event for event in events if isinstance(event, CallEnded)]
    added, unknown = events[-1].run.calls
    assert before <= started.at_unix_s <= ended.at_unix_s <= after
    assert before - 1 <= ended.began_unix_s <= ended.ended_unix_s <= after + 1
    assert (added.began_unix_s, added.ended_unix_s) == (ended.began_unix_s, ended.ended_unix_s)
    assert (unknown.began_unix_s, unknown.ended_unix_s) == (None, None)


async def test_runs_that_begin_within_one_second_are_listed_with_the_newest_first(fleet):
    async with Orchestrator(WrittenModel(), settings=fleet.settings) as orchestrator:
        begun = [
            await orchestrator.start("?", tenant="t", run_id=name) for name in ("zoe", "adam", "mia", "bob", "yan")
        ]
        for listed in (await orchestrator.runs(limit=5), await orchestrator.runs(limit=5, tenant="t")):
            assert [head.run_id for head in listed] == begun[::-1]
        for run_id in begun:
            await orchestrator.wait(run_id)


def in_words(call):
    return f"{call.tool} is out of order"


async def in_words_later(call):
    return in_words(call)


def with_a_result(call):
    return Returned(content=f"{call.tool} answered")


@pytest.mark.parametrize("own", [in_words, in_words_later])
async def test_a_text_for_an_unknown_tool_is_what_the_model_is_told(fleet, own):
    model = WrittenModel((requesting(("a", "nope", "{}")), "stop"))
    async with Orchestrator(model, on_unknown_tool=own, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("?")
    assert run.calls[0].result == Failed(kind=FailureKind.UNKNOWN_TOOL, message="nope is out of order")
    [answer] = [message for message in run.messages if isinstance(message, ToolMessage)]
    assert (answer.content, answer.is_error) == ("nope is out of order", True)


async def test_a_result_for_an_unknown_tool_may_come_from_a_plain_function(fleet):
    model = WrittenModel((requesting(("a", "nope", "{}")), "stop"))
    async with Orchestrator(model, on_unknown_tool=with_a_result, settings=fleet.settings) as orchestrator:
        assert (await orchestrator.run("?")).calls[0].result == Returned(content="nope answered")


def add_is_meant(query, tools):
    return [tool for tool in tools if tool.name == "add" and query == "sum up"]


async def add_is_meant_later(query, tools):
    return add_is_meant(query, tools)


@pytest.mark.parametrize("search", [add_is_meant, add_is_meant_later])
async def test_tools_may_be_searched_by_a_strategy_of_ones_own(fleet, search):
    model = WrittenModel((requesting(("a", "search_tools", '{"query": "sum up"}')), "stop"))
    few = fleet.settings.model_copy(update={"max_offered_tools": 1})
    async with Orchestrator(model, tool_search=search, settings=few) as orchestrator:
        run = await orchestrator.run("?")
    assert [tool["name"] for tool in json.loads(run.calls[0].result.content)["tools"]] == ["add"]
