"""An option that does not exist is refused by name, with the nearest that does: never swallowed."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from toolfleet import Context, FromContext, Returned, Submitted, tool
from toolfleet.errors import CallerError, InvalidSettings, UnknownOption
from toolfleet.interceptors import Cache, ConcurrencyLimit, Mask, Retry, TimeLimit, ToolPermission
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import UserMessage
from toolfleet.orchestrator import Agent, Limits, Orchestrator, agent_of, asks, assistant, forget, sync
from toolfleet.orchestrator.adapters.langchain import FleetToolNode
from toolfleet.orchestrator.doors.http.app import create_app
from toolfleet.orchestrator.models import AnthropicMessages, FallbackModel, HttpOptions, OpenAIChat
from toolfleet.orchestrator.tools.interceptors import Emulation, OnFailure
from toolfleet.settings import Settings, read_settings
from toolfleet.testing import MortalFleet

fleet = Orchestrator()

ENTRIES = {
    "Orchestrator": (Orchestrator, {"agent": ()}, "agents"),
    "run": (lambda **o: asyncio.run(fleet.run("?", **o)), {"tool": ["safe"]}, "tools"),
    "run_timeout": (lambda **o: asyncio.run(fleet.run("?", **o)), {"timeout": 3}, "timeout_s"),
    "run_turns": (lambda **o: asyncio.run(fleet.run("?", **o)), {"max_turn": 3}, "max_turns"),
    "run_sync": (lambda **o: fleet.run_sync("?", **o), {"tool": ["safe"]}, "tools"),
    "sync.run_sync": (lambda **o: sync.run_sync(fleet, "?", **o), {"max_turn": 3}, "max_turns"),
    "stream": (lambda **o: fleet.stream("?", **o), {"tool": ["safe"]}, "tools"),
    "start": (lambda **o: asyncio.run(fleet.start("?", **o)), {"on_events": print}, "on_event"),
    "submit": (lambda **o: asyncio.run(fleet.submit("?", model="m", **o)), {"contxt": {}}, "context"),
    "execute": (lambda **o: asyncio.run(fleet.execute(None, **o)), {"aproved": ()}, "approved"),
    "execute_results": (lambda **o: asyncio.run(fleet.execute_results(None, **o)), {"timeout": 1}, "timeout_s"),
    "complete": (lambda **o: asyncio.run(fleet.complete([], **o)), {"prioriti": 1}, "priority"),
    "call": (lambda **o: asyncio.run(fleet.call("add", {}, **o)), {"patience": 1}, "patience_s"),
    "task": (lambda **o: asyncio.run(fleet.task("h", **o)), {"wait": 1}, "wait_s"),
    "runs": (lambda **o: asyncio.run(fleet.runs(**o)), {"limits": 1}, "limit"),
    "run_page": (lambda **o: asyncio.run(fleet.run_page(**o)), {"befor": ""}, "before"),
    "assistant": (lambda **o: assistant(object, fleet, **o), {"max_turn": 1}, "max_turns"),
    "agent_of": (lambda **o: agent_of(asks, **o), {"tool": ()}, "tools"),
    "forget": (lambda **o: asyncio.run(forget(object, fleet, "c", **o)), {"tenants": ""}, "tenant"),
    "Agent": (Agent, {"name": "a", "description": "b", "instruction": "c"}, "instructions"),
    "Limits": (Limits, {"call": 3}, "calls"),
    "LocalFleet": (lambda **o: LocalFleet(["m"], **o), {"pool": {}}, "pools"),
    "LocalFleet_setting": (lambda **o: LocalFleet(["m"], **o), {"lease": 3}, "lease_s"),
    "MortalFleet": (lambda **o: MortalFleet(["m"], **o), {"lease": 3}, "lease_s"),
    "tool": (tool, {"readonly": True}, "read_only"),
    "tool_of_a_function": (lambda **o: tool(lambda: 1, **o), {"time_out_s": 1}, "timeout_s"),
    "Settings": (Settings, {"redis": "x"}, "redis_url"),
    "read_settings": (read_settings, {"lease": 3}, "lease_s"),
    "Cache": (Cache, {"ttl": 3}, "ttl_s"),
    "TimeLimit": (TimeLimit, {"limits": 3}, "limit_s"),
    "ConcurrencyLimit": (ConcurrencyLimit, {"call": 3}, "calls"),
    "Mask": (Mask, {"pattern": ()}, "patterns"),
    "Retry": (Retry, {"retry": 3}, "retries"),
    "ToolPermission": (ToolPermission, {"allowed": ()}, None),
    "OnFailure": (OnFailure, {"messages": 1}, None),
    "Emulation": (Emulation, {"modell": 1}, "model"),
    "OpenAIChat": (lambda **o: OpenAIChat("m", **o), {"base_urls": "x"}, "base_url"),
    "AnthropicMessages": (lambda **o: AnthropicMessages("m", **o), {"apikey": "x"}, "api_key"),
    "FallbackModel": (FallbackModel, {"models_": ()}, None),
    "HttpOptions": (HttpOptions, {"timeouts": 1}, None),
    "create_app": (lambda **o: create_app(Settings(), **o), {"option": 1}, "options"),
    "FleetToolNode": (lambda **o: FleetToolNode(fleet, **o), {"message_key": "x"}, "messages_key"),
    "Returned": (Returned, {"contents": "x"}, "content"),
    "Submitted": (Submitted, {"handel": "x"}, "handle"),
    "UserMessage": (UserMessage, {"contents": "x"}, "content"),
    "FromContext": (FromContext, {"keys": "x"}, "key"),
    "progress": (lambda **o: context().progress(0.5, **o), {"mesage": "x"}, "message"),
}


def context() -> Context:
    return Context(call_id="r.1.0", run_id="r", tool="t", deadline_unix_s=0)


@pytest.mark.parametrize(("entry", "given", "meant"), ENTRIES.values(), ids=ENTRIES)
def test_every_entry_names_an_option_that_it_does_not_have_and_the_nearest_one(entry, given, meant) -> None:
    with pytest.raises(UnknownOption) as raised:
        entry(**given)
    assert isinstance(raised.value, TypeError)
    assert isinstance(raised.value, CallerError)
    assert f"unknown option '{list(given)[-1]}'" in str(raised.value)
    if meant:
        assert f": did you mean {meant!r}?" in str(raised.value)


def test_where_no_name_is_near_all_are_named() -> None:
    with pytest.raises(
        UnknownOption, match=r"Orchestrator\.call: unknown option 'qqq': there are approved, arguments, context, "
    ):
        asyncio.run(fleet.call("add", {}, qqq=1))


def test_what_looks_into_an_entry_still_finds_its_signature() -> None:
    assert inspect.iscoroutinefunction(Orchestrator.run)
    assert "options" in inspect.signature(Orchestrator.run).parameters
    assert next(iter(inspect.signature(Cache).parameters)) == "ttl_s"


# --- the environment -------------------------------------------------------------------------------------------------

MISSPELT = {
    "TOOLFLEET_REDISURL": "did you mean TOOLFLEET_REDIS_URL?",
    "toolfleet_lease": "did you mean TOOLFLEET_LEASE_S?",
    "TOOLFLEET_FLOWR_AUTH": "did you mean TOOLFLEET_FLOWER_AUTH?",
    "TOOLFLEET_TOOL": "did you mean TOOLFLEET_TOOLS?",
    "TOOLFLEET_HTTP_ALLOWED": "did you mean TOOLFLEET_HTTP_ALLOW?",
    "TOOLFLEET_FLOWR_PORT": "did you mean TOOLFLEET_FLOWER_PORT?",
    "TOOLFLEET_QQQ": "variables of your own must not begin with TOOLFLEET_",
}


@pytest.mark.parametrize(("variable", "hint"), MISSPELT.items())
def test_a_variable_of_ours_that_nobody_reads_is_refused(monkeypatch, variable: str, hint: str) -> None:
    monkeypatch.setenv(variable, "x")
    with pytest.raises(InvalidSettings) as raised:
        read_settings()
    assert str(raised.value) == f"{variable} is no setting: {hint}"


OF_A_SERVICE = {
    "SERVICE_HOST": "10.0.0.11",
    "SERVICE_PORT": "6379",
    "SERVICE_PORT_REDIS": "6379",
    "PORT": "tcp://10.0.0.11:6379",
    "PORT_6379_TCP": "tcp://10.0.0.11:6379",
    "PORT_6379_TCP_PROTO": "tcp",
    "PORT_6379_TCP_PORT": "6379",
    "PORT_6379_TCP_ADDR": "10.0.0.11",
}
"""https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables"""


@pytest.mark.parametrize("service", ["TOOLFLEET", "TOOLFLEET_REDIS", "TOOLFLEET_API"])
def test_what_kubernetes_says_of_a_service_is_let_be(monkeypatch, service: str) -> None:
    for name, value in OF_A_SERVICE.items():
        monkeypatch.setenv(f"{service}_{name}", value)
    assert read_settings()


def test_settings_that_were_used_give_another_process_settings_only() -> None:
    settings = read_settings()
    assert settings.keys
    assert settings.as_environment().keys() <= {f"TOOLFLEET_{name.upper()}" for name in Settings.model_fields}
