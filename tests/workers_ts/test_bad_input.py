"""What nobody should do to a worker in TypeScript: each gets a clear answer, and nothing is lost."""

from __future__ import annotations

import json

import pytest

from tests.workers_ts.processes import fleet_of, process
from toolfleet.calls import Returned
from toolfleet.exit_status import ExitStatus
from toolfleet.orchestrator import Orchestrator

WAIT_S = 20


@pytest.fixture(scope="module")
def fleet():
    with fleet_of() as running:
        yield running


def refused(fleet, program="fleet_tools.ts", **environment):
    """The last line of a worker that does not start."""
    variables = {**fleet.settings.as_environment(), **environment}
    worker = process(program, fleet._directory, variables, lifeline=fleet._lifeline)
    assert worker.process.wait(WAIT_S) == ExitStatus.CONFIGURATION, worker.log_tail()
    return worker.ending()


def test_X2_another_secret_or_no_schema_ends_a_worker_with_one_line(fleet):
    assert "another TOOLFLEET_SECRET" in refused(fleet, TOOLFLEET_SECRET="0" * 32)
    assert "TOOLFLEET_SECRET must have at least" in refused(fleet, TOOLFLEET_SECRET="short")
    assert "tool odd: not a JSON Schema" in refused(fleet, "no_schema.ts")
    assert "live workers serve another tool as echo" in refused(fleet, "rival.ts")


async def test_X2_what_is_no_call_is_buried_and_the_worker_goes_on(post):
    call = post.call("echo", {"value": 1})
    text, mac = post.seal.close_call(call)
    post.send_text(text, mac[:-1] + ("0" if mac[-1] != "0" else "1"), call)
    assert b"unsigned or altered" in (await post.letter())["reason"]
    await post.write(b="[", h="{}", p="{}")
    assert (await post.letter())["reason"]
    post.send_text(text, mac, call.model_copy(update={"tool": "add"}))
    assert b"another call or tool" in (await post.letter())["reason"]
    for arguments in ("[1", '{"value": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"value":' + "9" * 5000 + "}"):
        bad = post.call("echo").model_copy(update={"arguments": arguments})
        post.send(bad)
        call_id, result = await post.result()
        assert (call_id, result.kind) == (bad.call_id, "bad_arguments"), result
    await post.serves()


async def test_X2_a_call_sent_twice_has_one_effect(post):
    call = post.call("add", {"a": 1, "b": 2})
    for _ in range(2):
        post.send(call, claim=700)
    assert await post.result() == (call.call_id, Returned(content="3"))
    await post.serves()
    assert await post.counted("duplicate_messages") == 1


async def test_X2_a_result_of_100_mb_is_cut_and_says_so(fleet):
    async with Orchestrator(settings=fleet.settings) as orchestrator:
        result = await orchestrator.call("wordy", {"characters": 35_000_000})
        assert result.content.endswith(f"[cut: the result has 105000000 bytes, the first {262144 // 3 * 3} are shown]")
        odd = await orchestrator.call(
            "echo", {"value": "half a \ud83d character".encode("utf-16", "surrogatepass").decode("utf-16", "replace")}
        )
        assert json.dumps(odd.content)
