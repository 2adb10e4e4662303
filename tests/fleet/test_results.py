"""What a tool returns or raises, as the model and the caller get it from real workers. Rows R1 to R4, R6 and R7."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator

import pytest
from conversations import WrittenModel, requesting
from fleets import HERE, asking
from surrounded_tools import PNG

from toolfleet import Failed, FailureKind, Returned, read_result
from toolfleet.artifacts import Artifacts, OfRun
from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.orchestrator import Orchestrator


@pytest.fixture(scope="module")
def fleet() -> Iterator[LocalFleet]:
    with LocalFleet(
        ["surrounded_tools", "fleet_tools"],
        pools={"io": 1},
        environment=HERE,
        worker_options=["--queues", "io,cpu"],
        namespace="results",
    ) as running:
        yield running


@pytest.fixture
def call(orchestrator):
    return orchestrator.call


@pytest.mark.parametrize(
    ("tool", "arguments", "content"),
    [
        ("nothing", {}, "Done"),
        ("echo", {"value": None}, "null"),
        ("echo", {"value": "as it is ☃"}, "as it is ☃"),
        ("echo", {"value": 4.5}, "4.5"),
        ("echo", {"value": [1, {"a": None}]}, '[1,{"a":null}]'),
        ("mirrored", {"point": {"x": 1, "y": 2}}, '{"x":2,"y":1}'),
    ],
    ids=["none_declared", "none_otherwise", "text", "number", "list_and_dict", "model"],
)
async def test_R1_a_value_becomes_what_the_model_reads(call, tool, arguments, content):
    assert await call(tool, arguments) == Returned(content=content)


async def test_R2_an_image_comes_back_as_it_was_with_a_text_that_says_what_it_is(call):
    result = await call("drawn", {})
    assert result.content == f"[image/png chart.png, {len(PNG)} bytes]"
    [part] = result.media
    assert (part.media_type, part.name, part.size_bytes, part.artifact) == ("image/png", "chart.png", len(PNG), None)
    assert base64.b64decode(part.data) == PNG


async def test_R2_text_and_media_keep_their_order(call):
    result = await call("drawn", {"text": "the chart:"})
    assert result.content == f'the chart:\n[image/png chart.png, {len(PNG)} bytes]\n{{"n":1}}'
    assert len(result.media) == 1


async def test_R2_a_large_image_is_kept_as_an_artifact(fleet, call):
    copies = fleet.settings.max_inline_media_bytes // len(PNG) + 1
    result = await call("drawn", {"copies": copies})
    [part] = result.media
    assert result.content == f"[image/png chart.png, {copies * len(PNG)} bytes, kept as artifact {part.artifact}]"
    assert (part.data, part.size_bytes) == ("", copies * len(PNG))
    assert part.artifact == hashlib.sha256(PNG * copies).hexdigest()


@pytest.mark.parametrize(
    ("tool", "arguments", "result"),
    [
        ("converted", {"rows": [7, 8, 9]}, Returned(content="3 rows", attributes={"first": 7})),
        ("shouted", {"text": "hey"}, Returned(content="HEY")),
        ("misconverted", {"value": "text"}, Returned(content="text")),
    ],
)
async def test_R3_the_tools_own_converter_is_used(call, tool, arguments, result):
    assert await call(tool, arguments) == result


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        (
            "converted",
            {"rows": []},
            "converted has run, but its converter failed: IndexError('list index out of range')",
        ),
        ("misconverted", {"value": 4}, "misconverted has run, but its converter returned int, not str or Returned"),
    ],
)
async def test_R3_a_converter_that_fails_says_that_the_tool_has_run(call, tool, arguments, message):
    assert await call(tool, arguments) == Failed(kind=FailureKind.ERROR, message=message)


async def test_R4_an_error_is_its_text_for_the_model_and_its_traceback_in_the_log(fleet, call):
    assert (await call("fail", {"kind": "tool", "text": "ask me later"})).message == "ask me later"
    assert (await call("fail", {"kind": "value"})).message == "tool failed: ValueError"
    failed = await call("fail", {"kind": "value", "text": "no such row"})
    assert failed == Failed(kind=FailureKind.ERROR, message="no such row")
    log = fleet.workers[0].log_path.read_text()
    assert "Traceback" in log
    assert "fleet_tools.py" in log


async def test_R4_a_failure_that_is_returned_is_a_failure(orchestrator, call):
    failed = await call("shouted", {"text": "x", "fails": True})
    assert failed == Failed(kind=FailureKind.DENIED, message="not you")
    [message] = await orchestrator.execute(asking(("shouted", {"text": "x", "fails": True})))
    assert (message.content, message.is_error) == ("not you", True)


async def test_R6_a_large_result_is_a_preview_and_a_reference_that_can_be_read_on(fleet, orchestrator):
    message = asking(("lines", {"count": 40_000}))
    ended = []
    await orchestrator.execute(message, on_event=ended.append)
    [end] = [event for event in ended if hasattr(event, "result")]
    result, whole = end.result, "\n".join(f"line {n}: {'needle' if n == 20_000 else 'hay'}" for n in range(40_000))
    assert result.artifact == hashlib.sha256(whole.encode()).hexdigest()
    assert result.content.startswith("line 0: hay\n")
    assert f"{len(whole)} characters in 40000 lines" in result.content
    assert "line 39999: hay" in result.content
    assert "needle" not in result.content
    async with connect_async(fleet.settings) as client:
        artifacts = Artifacts(client, fleet.settings)
        kept = await (await artifacts.find(result.artifact, OfRun(end.run_id))).read()
        asked = json.dumps({"artifact": result.artifact, "search": "NEEDLE"})
        found = await read_result.answer(artifacts, asked, OfRun(end.run_id))
    assert kept.decode() == whole
    assert f"at {whole.index('needle')}: " in found.content


async def test_R6_what_may_not_be_kept_is_cut_and_says_so():
    with LocalFleet(
        ["surrounded_tools", "fleet_tools"],
        pools={"io": 1},
        environment=HERE,
        max_artifact_bytes=1000,
        max_result_bytes=1024,
    ) as fleet:
        async with Orchestrator(settings=fleet.settings) as orchestrator:
            result = await orchestrator.call("wordy", {"characters": 1000})
            lost = await orchestrator.call("drawn", {"copies": 1000, "text": "look"})
    assert result.content.endswith("\n[cut: the result has 3000 bytes, the first 1023 are shown]")
    assert result.artifact is None
    assert lost.content == f'look\n[image/png chart.png, {1000 * len(PNG)} bytes, too large to be kept]\n{{"n":1}}'


async def test_R7_attributes_reach_the_caller_and_not_the_model(orchestrator, call):
    assert await call("sourced", {}) == Returned(content="42", attributes={"source": "page 7"})
    [message] = await orchestrator.execute(asking(("sourced", {})))
    assert message.content == "42"
    assert "page 7" not in message.model_dump_json()


async def test_R6_a_model_is_offered_read_result_once_it_has_a_use_for_it(fleet):
    offered = []

    def reads_on(messages):
        artifact = re.search(r'artifact="([0-9a-f]{64})"', messages[-1].content)[1]
        return requesting(("2", "read_result", json.dumps({"artifact": artifact, "search": "needle"})))

    class Curious(WrittenModel):
        def stream(self, messages, tools, **options):
            offered.append("read_result" in {tool.name for tool in tools})
            return super().stream(messages, tools, **options)

    model = Curious((requesting(("1", "lines", '{"count": 40000}')), "tool_calls"), (reads_on, "tool_calls"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("?")
    assert offered == [False, True, True]
    assert "line 20000: needle" in run.messages[-2].content


async def test_R6_another_run_reads_nothing_of_it(fleet):
    def reads_on(artifact):
        return requesting(("1", "read_result", json.dumps({"artifact": artifact})))

    big = (requesting(("1", "lines", '{"count": 40000}')), "tool_calls")
    async with Orchestrator(model=WrittenModel(big), settings=fleet.settings) as orchestrator:
        first = await orchestrator.run("?")
    artifact = first.calls[0].result.artifact
    other = (requesting(("1", "lines", '{"count": 39999}')), "tool_calls")
    async with Orchestrator(
        model=WrittenModel(other, (reads_on(artifact), "tool_calls")), settings=fleet.settings
    ) as orchestrator:
        second = await orchestrator.run("?")
    assert f"no artifact '{artifact}' was given to whoever asks" in second.messages[-2].content


@pytest.mark.parametrize("copies", [1, 1000], ids=["small", "kept_as_an_artifact"])
async def test_R2_a_model_is_shown_the_image_that_a_tool_has_returned(fleet, copies):
    model = WrittenModel((requesting(("1", "drawn", json.dumps({"copies": copies}))), "tool_calls"))
    async with Orchestrator(model=model, settings=fleet.settings) as orchestrator:
        run = await orchestrator.run("?")
    [part] = model.heard[-1][-1].media
    assert base64.b64decode(part.data) == PNG * copies
    assert len(run.messages[-2].model_dump_json()) < 100_000
