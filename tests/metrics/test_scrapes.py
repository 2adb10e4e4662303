"""What each process tells Prometheus: its own figures, with bounded labels, in our names and in the usual ones."""

from __future__ import annotations

import socket

import httpx
import pytest

from tests.cli.command import Terminal
from tests.metrics.conftest import HERE, Scraped
from tests.metrics.scraping import scrape, scrape_until
from tests.ports import free_port
from toolfleet.connections import connect_async
from toolfleet.local.fleet import LocalFleet
from toolfleet.messages import AssistantMessage, RequestedCall
from toolfleet.metrics.tallies import MAX_NAMES, OTHERS, ByName, Histogram
from toolfleet.orchestrator import Orchestrator

SECRET_WORDS = ("anybody-heard-of-me", "nobody-may-read-this")


def call(scraped: Scraped, tool: str, **arguments: object) -> None:
    scraped.post(f"/v1/tools/{tool}/call", arguments=arguments).raise_for_status()


def test_T9_each_process_tells_its_own_figures(scraped: Scraped) -> None:
    for number in range(3):
        call(scraped, "greet", whom=SECRET_WORDS[0])
        call(scraped, "grind", number=1000 + number)
    call(scraped, "refuse", word=SECRET_WORDS[1])
    ran = scraped.post("/v1/runs", question="greet somebody", tools=["greet"]).json()["run_id"]
    events = f"{scraped.served.url}/v1/runs/{ran}/events"
    httpx.get(events, headers=scraped.served.local_key, timeout=60).raise_for_status()  # to its end

    io = scrape_until(scraped.io, "toolfleet_call_settle_seconds_count", 4)
    cpu = scrape_until(scraped.cpu, "toolfleet_call_settle_seconds_count", 3)
    api, orchestrator = scraped.of_api(), scrape(scraped.orchestrator)

    assert io.sum("toolfleet_call_run_seconds_count", tool="refuse") == 1
    assert io.sum("toolfleet_call_run_seconds_count", tool="grind") == 0
    assert io.sum("toolfleet_call_queue_seconds_count") == io.sum("toolfleet_calls_received_total")
    assert 0 < io.sum("toolfleet_call_settle_seconds_sum") < 60
    # Counted in the worker's own process, though they ran in children of it:
    assert cpu.sum("toolfleet_call_run_seconds_count", tool="grind") == 3
    assert cpu.sum("toolfleet_deliveries_ended_total", tool="grind", ending="settled") == 3
    assert 0 < cpu.sum("toolfleet_call_run_seconds_sum", tool="grind") < 60
    turns = [each.sum("toolfleet_turn_seconds_count") for each in (api, orchestrator)]
    assert sum(turns) >= 1
    replies = [each.sum("toolfleet_model_replies_total", outcome="complete") for each in (api, orchestrator)]
    assert sum(replies) >= 1
    assert api.sum("toolfleet_calls_dispatched_total") >= 7
    assert api.sum("toolfleet_queue_workers", queue="cpu") == 1
    assert api.sum("toolfleet_calls_settled_total") >= 7
    assert all(each.sum("toolfleet_listeners_down") == 0 for each in (io, cpu, orchestrator, api))
    assert all(each.sum("process_cpu_seconds_total") > 0 for each in (io, cpu, orchestrator, api))


def test_T9_no_argument_result_or_message_is_in_any_figure(scraped: Scraped) -> None:
    call(scraped, "greet", whom=SECRET_WORDS[0])
    call(scraped, "refuse", word=SECRET_WORDS[1])
    scrape_until(scraped.io, "toolfleet_deliveries_ended_total", 1, tool="refuse")
    for each in scraped.all():
        assert not any(word in each.text for word in SECRET_WORDS)


async def test_T9_a_thousand_tenants_and_runs_add_no_series(scraped: Scraped) -> None:
    call(scraped, "greet", whom="first")
    before = {port: scrape_until(port, "toolfleet_calls_received_total", 0) for port in (scraped.io, scraped.cpu)}
    api_before = scraped.of_api()
    message = AssistantMessage(tool_calls=(RequestedCall(id="1", name="greet", arguments='{"whom": "you"}'),))
    async with Orchestrator(settings=scraped.settings) as orchestrator:
        for number in range(1000):
            [answer] = await orchestrator.execute(message, tenant=f"tenant-{number}")
            assert not answer.is_error
    after = scrape_until(
        scraped.io, "toolfleet_calls_received_total", before[scraped.io].sum("toolfleet_calls_received_total") + 1000
    )
    assert {key for key in after.values if "tenant" in str(key)} == set()
    assert len(after.values) - len(before[scraped.io].values) <= 1  # an ending that had not come to pass before
    assert scraped.of_api().values.keys() == api_before.values.keys()


def test_T9_names_beyond_a_number_are_told_as_one() -> None:
    figures = ByName(Histogram)
    for number in range(10_000):
        figures[f"tool-{number}"].observe(1.0)
    told = dict(figures.told())
    assert len(told) == MAX_NAMES + 1
    assert sum(told[OTHERS].counts) == 10_000 - MAX_NAMES


async def test_T9_a_message_for_a_tool_that_nobody_has_adds_no_series(scraped: Scraped) -> None:
    before = scrape(scraped.io).values.keys()
    async with connect_async(scraped.settings) as client:
        for number in range(50):
            await client.xadd(scraped.settings.keys.queue("io", 1), {"id": f"x{number}", "task": f"strange{number}"})
    call(scraped, "greet", whom="after them")
    after = scrape_until(scraped.io, "toolfleet_calls_received_total", 1)
    assert not any("strange" in value for value in after.label_values)
    assert len(after.values.keys() - before) <= 60  # one name more at most: that of all tools that are not here


def test_T9_the_api_tells_at_its_own_port_too_without_a_key(scraped: Scraped) -> None:
    assert httpx.get(f"{scraped.served.url}/metrics").status_code == 401
    assert scrape(scraped.api).names == scraped.of_api().names


def test_T10_the_names_that_dashboards_for_celery_ask_for_are_there(scraped: Scraped) -> None:
    for number in range(2):
        call(scraped, "greet", whom="you")
        call(scraped, "grind", number=number)
    call(scraped, "refuse", word="no")
    scrape_until(scraped.cpu, "celery_task_succeeded_total", 2)
    scrape_until(scraped.io, "celery_task_failed_total", 1)
    every = scraped.all()
    host = socket.gethostname()

    def told(name: str, /, **labels: str) -> float:
        return sum(each.sum(name, **labels) for each in every)

    for event in ("sent", "received", "started", "succeeded"):
        assert told(f"celery_task_{event}_total", name="greet", hostname=host, queue_name="io") >= 2, event
        assert told(f"celery_task_{event}_total", name="grind", hostname=host, queue_name="cpu") >= 2, event
    assert told("celery_task_failed_total", name="refuse", queue_name="io", exception="Failed") >= 1
    there = set().union(*(each.names for each in every))
    assert {f"celery_task_{event}_total" for event in ("revoked", "retried", "rejected")} <= there
    assert told("celery_task_runtime_count", name="grind", queue_name="cpu") >= 2
    assert told("celery_task_runtime_bucket", name="grind", le="+Inf") >= 2
    assert told("celery_worker_up", hostname=host) == 2
    assert told("celery_worker_tasks_active") == 0
    api = every[-1]
    assert api.of("celery_queue_length").keys() >= {(("queue_name", "cpu"),), (("queue_name", "io"),)}
    assert api.sum("celery_active_worker_count", queue_name="io") == 1
    assert api.sum("celery_active_process_count", queue_name="cpu") == 2
    assert api.sum("celery_active_consumer_count", queue_name="cpu") == 1


def test_whoever_connects_and_says_nothing_keeps_nobody_from_the_figures(scraped: Scraped) -> None:
    mute = [socket.create_connection(("127.0.0.1", scraped.io)) for _ in range(20)]
    try:
        assert scrape(scraped.io).names
        assert httpx.get(f"http://127.0.0.1:{scraped.io}/").status_code == 404
        assert httpx.post(f"http://127.0.0.1:{scraped.io}/metrics").status_code == 501
        with socket.create_connection(("127.0.0.1", scraped.io), timeout=30) as garbled:
            garbled.sendall(b"\x00\xff" * 500 + b"\r\n\r\n")
            garbled.recv(100)
        assert scrape(scraped.io).names
    finally:
        for each in mute:
            each.close()


def test_a_worker_whose_port_another_process_has_works_and_waits_for_it() -> None:
    port = free_port()
    with LocalFleet(["measured_tools"], pools={}, environment=HERE) as fleet:
        with socket.create_server(("127.0.0.1", port)):
            fleet.start_worker("io", "--metrics-port", str(port))
            fleet.wait_until_ready()
        assert "toolfleet_worker_slots" in scrape(port).names


@pytest.mark.parametrize("port", ["-1", "70000", "none"])
def test_a_port_that_is_none_is_refused_in_one_line(tmp_path, port: str) -> None:
    refused = Terminal(tmp_path).run("orchestrator", TOOLFLEET_METRICS_PORT=port)
    assert "TOOLFLEET_METRICS_PORT" in refused.complaint()
