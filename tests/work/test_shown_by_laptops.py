"""What is seen of a worker over HTTPS: spans, figures, signs of life, and its place among the workers of the fleet."""

from __future__ import annotations

import json
import secrets

import httpx
import pytest
import redis

from tests.cli.command import Terminal
from tests.http.serving import serving
from tests.metrics.scraping import parsed, scrape
from tests.ports import free_port
from tests.telemetry.otlp_collector import collecting
from tests.work.laptops import Caller, key_of, laptop
from toolfleet.calls import Returned, ToolCall
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.settings import Settings, new_secret
from toolfleet.wire import Seal

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def settings(redis_server):
    return Settings(redis_url=redis_server.url, namespace=f"shown-{secrets.token_hex(4)}", secret=new_secret())


@pytest.fixture(scope="module")
def served(settings, tmp_path_factory):
    with serving(settings, tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(scope="module")
def collector():
    with collecting() as running:
        yield running


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def alive(tmp_path_factory):
    return tmp_path_factory.mktemp("alive")


@pytest.fixture(scope="module")
def caller(settings, served, collector, port, alive, tmp_path_factory):
    """Somebody who calls the tools of a laptop that shows all that it can show."""
    folder = tmp_path_factory.mktemp("laptop")
    shows = {"TOOLFLEET_METRICS_PORT": str(port), "TOOLFLEET_ALIVE_DIR": str(alive), "OTEL_SERVICE_NAME": "laptop"}
    more = {**collector.environment, **shows}
    with laptop(folder, served.url, key_of(settings, Scope.WORK), instrument="own_telemetry", **more):
        caller = Caller(served.url, key_of(settings, Scope.RUN))
        caller.until_served("echoed")
        yield caller


def sent(settings: Settings, tool: str, arguments: str, **more: str) -> Returned:
    """The result of a call that somebody has put into the queue who is in a trace."""
    run_id = f"x-{secrets.token_hex(8)}"
    call = ToolCall(
        call_id=f"{run_id}.1.0",
        run_id=run_id,
        tool=tool,
        arguments=arguments,
        deadline_unix_s=4e9,
        reply_to=run_id,
        **more,
    )
    seal = Seal(settings)
    text, mac = seal.close_call(call)
    body = json.dumps([[text, mac], {}, {}], separators=(",", ":"))
    headers = json.dumps({"task": tool, "id": call.call_id, "contract": ""})
    with redis.Redis.from_url(settings.redis_url) as client:
        client.xadd(settings.keys.queue(f"work.{tool}", 3), {"b": body, "h": headers, "p": "{}", "id": call.call_id})
        last = "0"
        while (sealed := client.get(settings.keys.result(call.call_id))) is None:
            [[_, news]] = client.xread({settings.keys.replies(run_id): last}, block=30_000)  # its progress, its result
            last = news[-1][0]
        return seal.open_result(sealed, call.call_id)


def test_X5_an_attempt_over_https_is_a_span_of_the_worker_below_that_of_its_caller(settings, caller, collector):
    result = sent(settings, "echoed", '{"text": "a", "number": 1}', traceparent=PARENT)
    assert isinstance(result, Returned)
    spans = collector.until(lambda spans: [span for span in spans if span.trace_id == TRACE])
    [span] = [span for span in spans if span.trace_id == TRACE]
    assert (span.name, span.kind, span.service) == ("process work.echoed", "consumer", "laptop")
    assert (span.parent, span.attributes["toolfleet.outcome"]) == ("00f067aa0ba902b7", "returned")
    assert sent(settings, "echoed", "{}", traceparent=PARENT.removesuffix("1") + "0").kind == "bad_arguments"
    assert len([span for span in collector.spans if span.trace_id == TRACE]) == 1  # what is not sampled is not shown


def test_X5_a_worker_over_https_answers_prometheus_and_probes_as_any_other(caller, port, alive, settings):
    before = scrape(port)
    assert caller.call("echoed", text="a", number=1)["content"].startswith("a 1")
    assert caller.call("echoed", text=1)["kind"] == "bad_arguments"
    after = scrape(port)
    grown = {
        (name, *labels): after.sum(name, tool="echoed", **dict(labels))
        - before.sum(name, tool="echoed", **dict(labels))
        for name, labels in (
            ("toolfleet_calls_received_total", ()),
            ("toolfleet_calls_started_total", ()),
            ("toolfleet_deliveries_ended_total", (("ending", "settled"),)),
            ("toolfleet_deliveries_ended_total", (("ending", "failed"),)),
            ("toolfleet_call_run_seconds_count", ()),
        )
    }
    assert list(grown.values()) == [2, 2, 1, 1, 2], grown
    assert after.sum("toolfleet_worker_slots") == 4
    assert settings.secret.get_secret_value() not in after.text
    assert {sign.name for sign in alive.iterdir()} == {"lease", "loop"}


def test_X5_the_fleet_lists_a_worker_over_https_with_its_tools(caller, served, settings, tmp_path):
    terminal = Terminal(tmp_path, settings.as_environment())
    for words in (("tools",), ("watch", "--once")):
        assert "laptop@work." in terminal.run(*words).out, words
    shown = httpx.get(f"{served.url}/v1/workers", headers=served.local_key).json()["workers"]
    assert [each["pool"] for each in shown] == ["https"]
    told = httpx.get(f"{served.url}/metrics", headers=served.local_key).text
    assert parsed(told).of("toolfleet_workers", pool="https") == {(("pool", "https"),): 1}
