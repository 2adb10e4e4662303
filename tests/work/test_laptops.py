"""Real servers, real workers over HTTPS, and what happens to them: cut off, killed, stopped."""

from __future__ import annotations

import json
import re
import secrets
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cli.command import Terminal, read_until
from tests.http.serving import serving
from tests.ports import free_port
from tests.work.laptops import TOOLS, Caller, key_of, laptop, ledger, until_noted
from toolfleet.errors import InvalidSettings
from toolfleet.orchestrator.doors.http.key_store import Scope
from toolfleet.settings import Settings, new_secret
from toolfleet.testing import Proxy
from toolfleet.workers.over.client import address_of, headers_of
from toolfleet.workers.over.command import stopping

QUICK = {"lease_s": 4.0, "heartbeat_s": 0.5}


@pytest.fixture(scope="module")
def quick(redis_server):
    """Settings of this module's own, under which a lost worker is noticed soon."""
    return Settings(
        redis_url=redis_server.url, namespace=f"laptops-{secrets.token_hex(4)}", secret=new_secret(), **QUICK
    )


@pytest.fixture(scope="module")
def served(quick, tmp_path_factory):
    with serving(quick, tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(scope="module")
def caller(served, quick):
    return Caller(served.url, key_of(quick, Scope.RUN))


def test_X5_a_laptop_serves_its_tools_with_one_command_and_ends_what_it_has(served, caller, quick, tmp_path):
    with laptop(tmp_path, served.url, key_of(quick, Scope.WORK)) as worker:
        caller.until_served("echoed")
        said = caller.call("echoed", text="ünïcödé 🐙", number=9007199254740993)
        assert said["content"] == "ünïcödé 🐙 9007199254740993 True False"
        assert caller.call("echoed", text=1)["kind"] == "bad_arguments"
        large = caller.call("large", size_bytes=100_000_000)
        assert (large["kind"], "refused" in large["message"]) == ("error", True)
        handle = caller.submitted("paid", amount=1, seconds=1.0)
        until_noted(tmp_path, "began")
        worker.send_signal(signal.SIGTERM)
        assert caller.ended(handle)["content"] == "paid 1"
        assert worker.wait(30) == 0
    assert len([line for line in ledger(tmp_path) if "paid 1" in line]) == 1


def test_a_worker_that_stops_says_what_is_running_and_how_long_it_may():
    assert stopping(0, 30.0) == "Stopping: no call is running."
    assert stopping(1, 30.0).startswith("Stopping: 1 call that runs has 30 s to end. Ctrl-C again ")
    assert stopping(2, 2.5).startswith("Stopping: 2 calls that run have 2.5 s to end. ")


def test_X5_a_worker_that_is_cut_off_keeps_its_calls_within_their_lease_and_each_result_counts_once(
    served, caller, quick, tmp_path
):
    key = key_of(quick, Scope.WORK)
    with Proxy(served.url.replace("http://", "redis://")) as proxy:
        url = re.sub(r"^redis://", "http://", proxy.url)
        with laptop(tmp_path, url, key):
            caller.until_served("paid")
            handles = [caller.submitted("paid", amount=n, seconds=0.5) for n in range(4)]
            until_noted(tmp_path, "began")
            proxy.refuse()
            time.sleep(1.5)  # the results are ready, and go nowhere
            proxy.admit()
            results = [caller.ended(handle) for handle in handles]
            assert sorted(result["content"] for result in results) == [f"paid {n}" for n in range(4)]
            assert {result["attempt"]["number"] for result in results} == {1}
    began = [line for line in ledger(tmp_path) if "began" in line]
    assert len(began) == len(set(began)) == 4


def test_X5_the_calls_of_a_killed_worker_are_in_doubt_or_run_again_as_their_tools_say(served, caller, quick, tmp_path):
    key = key_of(quick, Scope.WORK)
    with laptop(tmp_path, served.url, key) as first:
        caller.until_served("counted")
        once, again = caller.submitted("paid", amount=7, seconds=60), caller.submitted("counted", seconds=60)
        until_noted(tmp_path, "began")
        until_noted(tmp_path, "from 0")
        time.sleep(0.5)  # the checkpoint is kept by now
        first.kill()
        first.wait()
        with laptop(tmp_path, served.url, key, "second"):
            assert caller.ended(again)["content"] == "counted in attempt 2 from 1"
            assert caller.ended(once)["kind"] == "in_doubt"
    assert [line.split(" ", 1)[1] for line in ledger(tmp_path) if "paid" in line] == []
    assert len([line for line in ledger(tmp_path) if "began" in line]) == 1


def test_X5_a_server_that_is_killed_and_comes_back_costs_no_call(quick, tmp_path):
    quick = quick.model_copy(update={"lease_s": 60.0})  # longer than a server takes to start on a busy machine
    key, caller_key, port = key_of(quick, Scope.WORK), key_of(quick, Scope.RUN), free_port()
    url = f"http://127.0.0.1:{port}"
    caller = Caller(url, caller_key)
    (tmp_path / "served").mkdir()
    terminal = Terminal(tmp_path / "served", quick.as_environment())
    with terminal.start("serve", "--port", str(port), "--no-model") as first:
        read_until(first, "Ready")
        with laptop(tmp_path, url, key):
            caller.until_served("paid")
            handle = caller.submitted("paid", amount=3, seconds=1.0)
            until_noted(tmp_path, "began")
            first.kill()
            first.wait()
            until_noted(tmp_path, "paid 3")
            with terminal.start("serve", "--port", str(port), "--no-model") as second:
                read_until(second, "Ready")
                assert caller.ended(handle)["content"] == "paid 3"
                with ThreadPoolExecutor(8) as callers:
                    said = list(callers.map(lambda n: caller.call("echoed", text="n", number=n)["content"], range(8)))
                assert said == [f"n {n} True False" for n in range(8)]
                second.send_signal(signal.SIGTERM)
                second.wait(30)
    assert len(ledger(tmp_path)) == 2


def test_X5_a_call_whose_result_has_arrived_is_not_told_of_as_lost(served, caller, quick, tmp_path):
    """Though it is no longer its worker's when that is told by a heartbeat, before the answer."""
    with laptop(tmp_path, served.url, key_of(quick, Scope.WORK), instrument="slow_results") as worker:
        caller.until_served("echoed")
        assert caller.call("echoed", text="a", number=1)["content"] == "a 1 True False"
        time.sleep(3 * QUICK["heartbeat_s"])  # so long its worker hears nothing of the result
        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert "lost" not in out + err


def test_X6_a_worker_with_a_wrong_key_says_so_in_one_line_and_shows_no_key(served, quick, tmp_path):
    operator = Terminal(tmp_path, quick.as_environment())
    made = json.loads(operator.run("keys", "add", "--scope", "work", "--tools", TOOLS, "--json").out)
    assert (made["scopes"], made["tools"]) == (["work"], TOOLS.split(","))
    assert "--tools a,b" in operator.run("keys", "add", "--scope", "work").err
    terminal = Terminal(tmp_path, {"TOOLFLEET_WORKER_KEY": "tf_" + "guessed" * 6})
    terminal.write("own_tools", "from toolfleet import tool\n\n@tool\ndef f() -> str:\n    'F.'\n    return ''\n")
    words = ("worker", "--import", "own_tools", "--over", served.url)
    refused = terminal.run(*words)
    assert "not known" in refused.err
    assert "guessed" not in refused.err
    assert "does not include f" in terminal.run(*words, TOOLFLEET_WORKER_KEY=made["key"]).err


def test_X6_a_key_is_sent_where_nobody_between_can_read_it():
    assert address_of("toolfleet.example.com/api/") == "https://toolfleet.example.com/api"
    assert address_of("http://127.0.0.1:8000") == "http://127.0.0.1:8000"
    for url in (
        "http://toolfleet.example.com",
        "ftp://x",
        "https://",
        "https://user:word@x",
        "http://127.0.0.1.evil.example",
    ):
        with pytest.raises(InvalidSettings):
            address_of(url)
    for key in ("", "tf_ü", "tf_a b", "tf_a\r\nx: y"):
        with pytest.raises(InvalidSettings, match="TOOLFLEET_WORKER_KEY"):
            headers_of(key)
