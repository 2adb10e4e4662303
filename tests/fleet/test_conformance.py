"""The same tools give the same results on every pool."""

import hashlib
import json
from collections.abc import Iterator

import pytest
from fleets import asking, fleet_of

from tests.workers_go import processes as in_go
from tests.workers_ts import processes as in_typescript
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator

POOLS = {
    "asyncio": ("--kind", "asyncio", "--concurrency", "8"),
    "prefork": ("--kind", "prefork", "--concurrency", "2"),
    "threads": ("--kind", "threads", "--concurrency", "4"),
    "solo": (
        "--kind",
        "solo",
    ),
}

LANGUAGES = {"typescript": in_typescript, "go": in_go}

OF_PYTHON = {
    "system_exit_ends_the_call_only": "process.exit() and os.Exit() end the process, and nobody can catch them",
    "memory_error_ends_the_call_only": "neither language tells a program that memory is short: it is ended",
    "keyboard_interrupt_ends_the_call_only": "a signal is no exception there",
    "a_tools_own_cancellation_is_its_failure": "what is cancelled there is the worker's: a signal, a context",
}
"""What only Python can raise, and why the others have no such case."""


@pytest.fixture(scope="module", params=[*POOLS, *LANGUAGES])
def fleet(request) -> Iterator[LocalFleet]:
    if request.param in LANGUAGES:
        with LANGUAGES[request.param].fleet_of() as running:
            yield running
    else:
        with fleet_of(*POOLS[request.param], "--queues", "io,cpu,long") as running:
            yield running


CASES = {
    "text_as_it_is": ("echo", {"value": "plain ☃"}, "plain ☃"),
    "a_plain_number": ("echo", {"value": 4}, "4"),
    "json_for_structures": ("echo", {"value": {"a": [1, None]}}, '{"a":[1,null]}'),
    "null_from_any": ("echo", {"value": None}, "null"),
    "a_plain_function": ("blocking_echo", {"value": "from a thread or process"}, "from a thread or process"),
    "done_from_none": ("nothing", {}, "Done"),
    "a_tool_with_an_effect": ("add", {"a": 2, "b": 40}, "42"),
    "models_both_ways": ("mirrored", {"point": {"x": 1, "y": 2}}, '{"x":2,"y":1}'),
    "types_of_pydantic": ("price", {}, '"9.90"'),
    "a_tool_error_is_its_text": ("fail", {"kind": "tool", "text": "ask me later"}, "ask me later"),
    "an_exception_is_its_text": ("fail", {"kind": "value", "text": "no such row"}, "no such row"),
    "an_empty_exception_is_its_type": ("fail", {"kind": "value"}, "tool failed: ValueError"),
    "system_exit_ends_the_call_only": ("fail", {"kind": "exit"}, "tool failed: SystemExit"),
    "memory_error_ends_the_call_only": ("fail", {"kind": "memory"}, "tool failed: MemoryError"),
    "keyboard_interrupt_ends_the_call_only": ("fail", {"kind": "interrupt"}, "tool failed: KeyboardInterrupt"),
    "a_tools_own_cancellation_is_its_failure": ("fail", {"kind": "cancel"}, "tool failed: CancelledError"),
    "a_limit_stops_it": ("hurried", {}, "hurried did not finish within 0.3 s and was stopped."),
}


@pytest.mark.parametrize(("tool", "arguments", "content"), CASES.values(), ids=CASES)
async def test_result(request, fleet, tool, arguments, content):
    is_python = fleet.workers[0].pool not in {each.POOL for each in LANGUAGES.values()}
    if not is_python and request.node.callspec.id.split("-")[-1] in OF_PYTHON:
        return
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        [message] = await orchestrator.execute(asking((tool, arguments)))
    assert message.content == content


async def test_what_has_no_json_form_is_a_failure_that_says_so(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        [message] = await orchestrator.execute(asking(("unprintable", {})))
    assert message.is_error
    assert "object that has no JSON form" in message.content


async def test_bad_arguments_name_parameter_and_tool(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        messages = await orchestrator.execute(asking(("add", {"a": "x", "b": 1}), ("add", "{nonsense"), ("add", {})))
    assert all(message.is_error for message in messages)
    assert "add" in messages[0].content
    assert "a" in messages[0].content
    assert "b" in messages[2].content


@pytest.mark.parametrize("tool", ["who_am_i", "who_am_i_blocking"])
async def test_the_context_reaches_the_tool(fleet, tool):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        [message] = await orchestrator.execute(asking((tool, {})), context={"tenant": "acme"})
    seen = json.loads(message.content)
    assert (seen["attempt"], seen["context"]) == (1, {"tenant": "acme"})


async def test_a_long_result_is_kept_and_previewed(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        result = await orchestrator.call("wordy", {"characters": 200_000})
    assert len(result.content.encode()) < 10_000
    assert result.artifact == hashlib.sha256(("☃" * 200_000).encode()).hexdigest()
    assert result.artifact in result.content


async def test_B1_many_calls_come_back_in_the_models_order(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        messages = await orchestrator.execute(asking(*(("echo", {"value": n}) for n in range(300))))
    assert [message.content for message in messages] == [str(n) for n in range(300)]
    assert [message.tool_call_id for message in messages] == [f"call-{n}" for n in range(300)]
