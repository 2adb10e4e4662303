"""A worker in Go answers as workers in Python do (X2)."""

import json
import secrets
from collections.abc import Iterator

import pytest

from tests.workers_go.conftest import go_worker
from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.orchestrator import Orchestrator
from toolfleet.settings import Settings, new_secret


def asking(*calls):
    return AssistantMessage(
        tool_calls=tuple(
            RequestedCall(
                id=f"call-{position}", name=name, arguments=given if isinstance(given, str) else json.dumps(given)
            )
            for position, (name, given) in enumerate(calls)
        )
    )


@pytest.fixture(scope="module")
def fleet(redis_server, program) -> Iterator[Settings]:
    settings = Settings(redis_url=redis_server.url, namespace=f"test-{secrets.token_hex(4)}", secret=new_secret())
    with go_worker(settings, program):
        yield settings


CASES = {
    "text_as_it_is": ("echo", {"value": "plain ☃ <b>&"}, "plain ☃ <b>&"),
    "a_plain_number": ("echo", {"value": 4}, "4"),
    "json_for_structures": ("echo", {"value": {"a": [1, None]}}, '{"a":[1,null]}'),
    "null": ("echo", {"value": None}, "null"),
    "a_large_integer_as_it_came": ("echo", {"value": 9007199254740993}, "9007199254740993"),
    "a_large_integer_parsed": ("parsed_echo", {"value": 10**30 + 1}, f'{{"value":{10**30 + 1}}}'),
    "done_from_none": ("nothing", {}, "Done"),
    "a_tool_with_an_effect": ("add", {"a": 9007199254740993, "b": 1}, "9007199254740994"),
    "an_error_is_its_text": ("fail", {"kind": "error", "text": "no such row"}, "no such row"),
    "a_panic_ends_the_call_only": ("fail", {"kind": "panic", "text": "broken"}, "tool failed: broken"),
    "a_limit_stops_it": ("hurried", {}, "hurried did not finish within 0.3 s and was stopped."),
}


@pytest.mark.parametrize(("tool", "arguments", "content"), CASES.values(), ids=CASES)
async def test_X2_a_worker_in_go_gives_the_same_results(fleet, tool, arguments, content):
    async with Orchestrator(settings=fleet) as orchestrator:
        [message] = await orchestrator.execute(asking((tool, arguments)))
    assert message.content == content


async def test_X2_arguments_that_do_not_fit_are_told_by_name(fleet):
    async with Orchestrator(settings=fleet) as orchestrator:
        messages = await orchestrator.execute(
            asking(
                ("add", {"a": "x", "b": 1}),
                ("add", "{nonsense"),
                ("add", {}),
                ("add", {"a": 2**70, "b": 1}),
                ("add", {"a": 1, "b": 2, "c": 3}),
            )
        )
    assert all(message.is_error for message in messages)
    assert "a: Invalid type" in messages[0].content
    assert "no JSON object" in messages[1].content
    assert "b is required" in messages[2].content
    assert "int64" in messages[3].content
    assert "c is not allowed" in messages[4].content


async def test_X2_what_has_no_json_form_is_a_failure_that_says_so(fleet):
    async with Orchestrator(settings=fleet) as orchestrator:
        [message] = await orchestrator.execute(asking(("unprintable", {})))
    assert message.is_error
    assert "no JSON form" in message.content


async def test_X2_the_context_reaches_the_tool(fleet):
    async with Orchestrator(settings=fleet) as orchestrator:
        [message] = await orchestrator.execute(asking(("who_am_i", {})), context={"tenant": "acme"})
    seen = json.loads(message.content)
    assert (seen["attempt"], seen["context"], seen["left"]) == (1, {"tenant": "acme"}, True)
    assert seen["key"] == seen["call_id"]


async def test_X2_a_long_result_is_cut_at_a_letter_and_says_so(fleet):
    async with Orchestrator(settings=fleet) as orchestrator:
        [message] = await orchestrator.execute(asking(("wordy", {"characters": 200_000})))
    assert message.content.endswith("[cut: the result has 600000 bytes, of which 8190 are shown]")
    assert message.content.startswith("☃" * 2730 + "\n")


async def test_X2_many_calls_come_back_in_the_models_order(fleet):
    async with Orchestrator(settings=fleet) as orchestrator:
        messages = await orchestrator.execute(asking(*(("echo", {"value": n}) for n in range(300))))
    assert [message.content for message in messages] == [str(n) for n in range(300)]
