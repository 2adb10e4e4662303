"""No door lacks an option of a run, and what is given at a door stands in the stored run."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.cli.command import Terminal
from tests.http.fleet_of_doors import Api, api_of
from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, Message, UserMessage
from toolfleet.orchestrator import Interceptor, Orchestrator, Run
from toolfleet.orchestrator.batch import BatchRunner, Identity, Manner, Output, opened_input, read_lines
from toolfleet.orchestrator.batch.openai_format import _Body
from toolfleet.orchestrator.batch.own_format import OwnLine
from toolfleet.orchestrator.doors.cli.run_options import OPTION_OF
from toolfleet.orchestrator.doors.http.app import create_app
from toolfleet.orchestrator.errors import InvalidOption
from toolfleet.orchestrator.models import REHEARSAL_MODEL, OpenAIChat, RehearsalServer
from toolfleet.orchestrator.models.protocol import ModelEvent, ReplyComplete, TextDelta
from toolfleet.orchestrator.models.recorded import FunctionModel
from toolfleet.orchestrator.options import BESIDE_TERMS, AskOptions, RunOptions
from toolfleet.orchestrator.run.terms import AskedTerms, RunTerms
from toolfleet.orchestrator.webhooks.endpoints import Endpoints
from toolfleet.orchestrator.webhooks.records import Endpoint
from toolfleet.settings import Settings
from toolfleet.streams import Priority
from toolfleet.wire import Seal

GIVEN: dict[str, Any] = {
    "tools": ["add"],
    "slow": "handle",
    "patience_s": 5.0,
    "context": {"customer": 42},
    "state": {"seen": []},
    "merging": {"seen": "append"},
    "interceptors": ["audit"],
    "limits": {"calls": 7, "tokens": 100_000},
    "max_turns": 3,
    "timeout_s": 60.0,
    "turn_timeout_s": 30.0,
    "calls_at_a_time": 2,
    "compensate": True,
    "keep_s": 90.0,
    "model_options": {"temperature": 0.5},
    "output_schema": {"type": "object"},
    "client_tools": [{"name": "lookup", "description": "Look up.", "input_schema": {"type": "object"}}],
    "priority": "batch",
    "webhook": "we_of_nobody",
}
"""Every option that may be given at a door, and none as it is by default."""

FOUND_OUT = {"price", "accounts", "words"}
"""Terms that nobody gives: the orchestrator says them as a run begins."""

EXPECTED = RunTerms.of(GIVEN)

BY_LOCAL_KEY = RunTerms.of({**GIVEN, "subject": "local"})

OF_ACME = {"tenant": "acme", "subject": "ada", "webhook": "we_of_acme"}

QUESTION = 'call add {"a": 2, "b": 3}'

MODEL = "another-model"


@pytest.fixture(scope="module")
def fleet() -> Iterator[LocalFleet]:
    tools = {"PYTHONPATH": str(Path(__file__).parents[1] / "fleet")}
    with LocalFleet(["fleet_tools"], pools={"io": 1}, environment=tools) as running:
        asyncio.run(with_endpoints(running.settings))
        yield running


async def with_endpoints(settings: Settings) -> None:
    """Add the endpoints that the options name: a run hears at once that there is none."""
    async with connect_async(settings) as client:
        endpoints = Endpoints(client, settings, Seal(settings))
        for endpoint_id, tenant in (("we_of_nobody", ""), ("we_of_acme", "acme")):
            url = "https://hooks.example.com/"
            await endpoints.put(Endpoint(endpoint_id=endpoint_id, tenant=tenant, url=url, events=(), created_unix_s=0))


@pytest.fixture
async def server() -> AsyncIterator[RehearsalServer]:
    async with RehearsalServer() as running:
        yield running


def model_of(server: RehearsalServer) -> OpenAIChat:
    return OpenAIChat(REHEARSAL_MODEL, base_url=server.base_url, api_key="rehearsal")


@pytest.fixture
async def api(fleet: LocalFleet, server: RehearsalServer) -> AsyncIterator[Api]:
    async with api_of(fleet.settings, model_of(server), named_interceptors={"audit": Interceptor()}) as running:
        yield running


async def stored(settings: Settings, run_id: str) -> Run:
    """The run as somebody reads it who has not begun it."""
    async with Orchestrator(settings=settings) as orchestrator:
        return await orchestrator.get(run_id)


# --- no door lacks one ----------------------------------------------------------------------------------------------


def test_every_option_is_given_in_this_file_and_none_by_its_default() -> None:
    assert GIVEN.keys() == AskedTerms.model_fields.keys()
    nothing = RunTerms()
    assert [name for name in GIVEN if getattr(EXPECTED, name) == getattr(nothing, name)] == []
    assert RunTerms.model_fields.keys() - GIVEN.keys() == {"tenant", "subject", *FOUND_OUT}


def test_the_keywords_of_python_are_the_terms_and_three_more() -> None:
    assert set(RunOptions.__annotations__) == {*RunTerms.model_fields, *BESIDE_TERMS} - FOUND_OUT
    an_assistants_own = {"tools", "output_schema", "client_tools", *BESIDE_TERMS}
    assert set(RunOptions.__annotations__) - set(AskOptions.__annotations__) == an_assistants_own


def test_the_http_doors_document_every_option() -> None:
    schemas = create_app(Settings()).openapi()["components"]["schemas"]
    assert GIVEN.keys() <= schemas["RunRequest"]["properties"].keys()
    for request in ("ChatRequest", "ResponseRequest"):
        assert "AskedTerms" in json.dumps(schemas[request]["properties"]["toolfleet"])
    assert schemas["AskedTerms"]["properties"].keys() == GIVEN.keys()
    said_by_nobody_who_asks = {"tenant", "subject", *FOUND_OUT}
    assert not said_by_nobody_who_asks & schemas["RunRequest"]["properties"].keys()


def test_lines_of_a_batch_take_every_option() -> None:
    assert GIVEN.keys() <= OwnLine.model_fields.keys()
    assert _Body.model_fields["toolfleet"].annotation is AskedTerms


@pytest.mark.parametrize("command", ["run", "batch"])
def test_the_commands_take_every_option(tmp_path: Path, command: str) -> None:
    assert OPTION_OF.keys() == RunTerms.model_fields.keys() - FOUND_OUT
    told = Terminal(tmp_path).run(command, "--help", COLUMNS="200").out
    assert set(OPTION_OF.values()) <= set(re.findall(r"--[a-z-]+", told))


# --- and each reaches the store -------------------------------------------------------------------------------------


async def test_a_task_of_a2a_is_stored_with_every_option_but_the_tools_of_a_caller(api: Api, fleet: LocalFleet) -> None:
    options = {name: value for name, value in GIVEN.items() if name != "client_tools"}
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": QUESTION}]}
    asked = {"message": message, "metadata": {"toolfleet": options}, "configuration": {"returnImmediately": True}}
    sent = await api.client.post("/a2a/v1/message:send", json=asked, headers={"a2a-version": "1.0"})
    run = await stored(fleet.settings, sent.json()["task"]["id"])
    assert run.terms == RunTerms.of({**options, "subject": "local"})


async def test_a_run_over_http_is_stored_with_every_option(api: Api, fleet: LocalFleet) -> None:
    run_id = await api.begin(QUESTION, **GIVEN)
    run = await stored(fleet.settings, run_id)
    assert run.terms == BY_LOCAL_KEY
    assert run.deadline_unix_s == pytest.approx(run.started_unix_s + 60)


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": QUESTION}]}),
        ("/v1/responses", {"input": QUESTION, "background": True}),
    ],
)
async def test_openais_requests_are_stored_with_every_option(
    api: Api, fleet: LocalFleet, path: str, asked: dict[str, Any]
) -> None:
    answer = await api.client.post(path, json={"model": REHEARSAL_MODEL, "toolfleet": GIVEN, **asked})
    # The rehearsal model answers with text, which is no object: a completion says so, and its run's id with it.
    assert answer.status_code in {200, 424}, answer.text
    [run_id] = re.findall(r"(?:resp_|run )([0-9a-f]{16})", answer.text)[:1]
    assert (await stored(fleet.settings, run_id)).terms == BY_LOCAL_KEY


async def test_the_schema_of_a_response_format_is_the_runs(api: Api, fleet: LocalFleet) -> None:
    format_ = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    asked = {"messages": [{"role": "user", "content": QUESTION}], "response_format": format_}
    answer = await api.client.post("/v1/chat/completions", json={"model": REHEARSAL_MODEL, **asked})
    assert answer.status_code == 424  # it has called a tool by then
    assert "your answer is not JSON" in answer.json()["detail"]


class SecondThoughts(FunctionModel):
    """Answers in words and, told that it must not, with JSON; in pieces, as real ones do."""

    def __init__(self) -> None:
        super().__init__(
            lambda messages: AssistantMessage(
                content='{"city": "Oslo"}' if isinstance(messages[-2], UserMessage) and len(messages) > 2 else "Oslo."
            )
        )

    async def stream(self, messages: Sequence[Message], tools: Any, **options: Any) -> AsyncGenerator[ModelEvent, None]:
        async for event in super().stream(messages, tools, **options):
            if isinstance(event, ReplyComplete):
                yield TextDelta(text=event.message.content)
            yield event


@pytest.mark.parametrize("stream", [False, True])
async def test_of_an_answer_that_must_fit_a_schema_nothing_else_is_read(fleet: LocalFleet, stream: bool) -> None:
    question = {"messages": [{"role": "user", "content": "Which city?"}]}
    asked = {"model": "function", "stream": stream, "toolfleet": {"output_schema": {"type": "object"}}, **question}
    async with api_of(fleet.settings, SecondThoughts()) as api:
        answer = await api.client.post("/v1/chat/completions", json=asked)
    assert answer.status_code == 200, answer.text
    assert json.dumps('{"city": "Oslo"}')[1:-1] in answer.text
    assert "Oslo." not in answer.text


async def test_lines_of_a_batch_are_stored_with_every_option(
    fleet: LocalFleet, server: RehearsalServer, tmp_path: Path
) -> None:
    message = {"role": "user", "content": QUESTION}
    own = {"id": "own", "question": QUESTION, **GIVEN}
    openais = {"custom_id": "openai", "body": {"model": REHEARSAL_MODEL, "messages": [message], "toolfleet": GIVEN}}
    (tmp_path / "in.jsonl").write_text(f"{json.dumps(own)}\n{json.dumps(openais)}\n")
    identity = Identity.given("options", model=REHEARSAL_MODEL)
    audit = {"audit": Interceptor()}
    async with Orchestrator(model_of(server), settings=fleet.settings, named_interceptors=audit) as orchestrator:
        with opened_input(str(tmp_path / "in.jsonl")) as lines, Output(str(tmp_path / "out"), identity) as output:
            runner = BatchRunner(orchestrator, identity, output, Manner())
            await runner.run(read_lines(lines.lines(), model=REHEARSAL_MODEL))
    for line_id in ("own", "openai"):
        assert (await stored(fleet.settings, identity.run_id(line_id))).terms == EXPECTED, line_id


def words_for(folder: Path) -> list[str]:
    """Every option as it is written on a command line."""
    (folder / "schema.json").write_text(json.dumps(GIVEN["output_schema"]))
    (folder / "mine.json").write_text(json.dumps(GIVEN["client_tools"]))
    values: dict[str, str | list[str]] = {
        "tools": "add",
        "context": json.dumps(GIVEN["context"]),
        "state": json.dumps(GIVEN["state"]),
        "merging": "seen=append",
        "interceptors": "audit",
        "limits": ["calls=7", "tokens=100000"],
        "compensate": "",
        "model_options": "temperature=0.5",
        "output_schema": "schema.json",
        "client_tools": "mine.json",
        **OF_ACME,
    }
    words: list[str] = []
    for term, option in OPTION_OF.items():
        value = values.get(term, str(GIVEN.get(term)))
        for each in [value] if isinstance(value, str) else value:
            words += [option, each] if each else [option]
    return words


async def test_a_run_of_the_command_is_stored_with_every_option(fleet: LocalFleet, tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, fleet.settings.as_environment())
    ended = terminal.run(
        "run", QUESTION, "--detach", "--model", f"openai:{MODEL}", *words_for(tmp_path), OPENAI_API_KEY="x"
    )
    assert ended.code == 0, ended
    run = await stored(fleet.settings, ended.out.strip())
    assert run.terms == RunTerms.of({**GIVEN, **OF_ACME})


async def test_the_options_of_a_batch_are_those_of_its_runs(
    fleet: LocalFleet, server: RehearsalServer, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": "a", "question": QUESTION, "max_turns": 5}) + "\n")
    model = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "rehearsal", "OPENAI_MODEL": REHEARSAL_MODEL}
    terminal = Terminal(tmp_path, {**fleet.settings.as_environment(), **model})
    words = words_for(tmp_path)
    at = words.index("--interceptor")  # the command's own orchestrator knows none
    del words[at : at + 2]
    await asyncio.to_thread(terminal.run, "batch", "in.jsonl", "out.jsonl", "--batch-id", "words", *words)
    [line] = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    run = await stored(fleet.settings, line["run_id"])
    assert run.terms == RunTerms.of({**GIVEN, **OF_ACME, "interceptors": None, "max_turns": 5})


# --- what they do, and what cannot be meant -------------------------------------------------------------------------


@pytest.mark.parametrize("priority", list(Priority))
async def test_the_calls_of_a_run_are_queued_with_its_priority(
    fleet: LocalFleet, server: RehearsalServer, priority: Priority
) -> None:
    client = redis.Redis.from_url(fleet.settings.redis_url)

    def added() -> dict[Priority, int]:
        return {
            level: sum(
                client.xinfo_stream(key)["entries-added"]
                for key in client.scan_iter(f"{fleet.settings.namespace}:queue:*:{int(level)}", _type="stream")
            )
            for level in Priority
        }

    before = added()
    async with Orchestrator(model_of(server), settings=fleet.settings) as orchestrator:
        run = await orchestrator.run(QUESTION, priority=priority)
    after = added()
    client.close()
    assert run.state == "done"
    assert {level: after[level] - before[level] for level in Priority} == {
        level: int(level is priority) for level in Priority
    }


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("patience_s", -1, "patience_s must not be negative (0 makes every call a handle), but is -1"),
        ("patience_s", float("inf"), "patience_s must be a number of seconds within a hundred years, but is inf"),
        ("turn_timeout_s", "soon", "turn_timeout_s of 'soon' cannot be meant: Input should be a valid number"),
        ("slow", "maybe", "slow of 'maybe' cannot be meant: Input should be 'wait' or 'handle'"),
        ("tools", "add", "tools of 'add' cannot be meant: Input should be a valid tuple"),
        ("context", "a secret", "context cannot be meant: Input should be a valid dictionary"),
        ("merging", {"seen": "add"}, "merging.seen of 'add' cannot be meant: Input should be 'replace', 'append'"),
        ("limits", {"call": 3}, "limits.call of 3 cannot be meant: unknown field 'call': did you mean 'calls'?"),
        ("priority", "urgent", "priority must be interactive, normal, batch, but is 'urgent'"),
        ("model_options", {"model": "gpt-9"}, "model_options must not have model, which the run itself says"),
        ("output_schema", {"type": "thing"}, "output_schema is no JSON Schema that answers can be checked with"),
        (
            "output_schema",
            {"$ref": "http://127.0.0.1:9/x"},
            "it refers to http://127.0.0.1:9/x, which it does not",
        ),
        ("output_schema", {"pattern": "("}, "$.pattern: '(' is not a 'regex'"),
        ("client_tools", 2 * GIVEN["client_tools"], "client_tools has two tools of one name; rename one of them"),
    ],
)
def test_what_cannot_be_meant_is_said_with_its_name_its_value_and_what_it_may_be(
    option: str, value: Any, said: str
) -> None:
    with pytest.raises(InvalidOption, match=re.escape(said)):
        RunTerms.of({option: value})


def test_terms_are_the_same_once_they_were_stored() -> None:
    assert RunTerms.model_validate_json(EXPECTED.model_dump_json()) == EXPECTED
    assert json.loads(EXPECTED.model_dump_json())["priority"] == "batch"
