"""`toolfleet serve`, `keys` and `up` as people start them."""

import json
import re
import signal

import httpx
import pytest

from tests.cli.command import Terminal, ended, interrupted, read_until


@pytest.fixture
def terminal(tmp_path):
    return Terminal(tmp_path)


def address(lines):
    return re.search(r"http://\S+?:\d+", next(line for line in lines if line.startswith("API:"))).group(0)


def local_key(terminal):
    """The key of this terminal's user, as another terminal of theirs prints it."""
    with terminal.start("keys", "local") as process:
        return {"authorization": f"Bearer {ended(process).out.strip()}"}


def test_serve_says_where_and_stops_when_told(terminal):
    with terminal.start("serve", "--port", "0") as process:
        url = address(read_until(process, "Ready"))
        assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
        key = local_key(terminal)
        accepted = httpx.post(f"{url}/v1/runs", json={"question": "hello"}, headers=key)
        assert accepted.status_code == 202
        interrupted(process)
    with terminal.start("serve", "--port", "0", "--no-model") as process:
        url = address(read_until(process, "Ready"))
        assert httpx.get(f"{url}/v1/models", headers=key).json()["data"] == []
        process.send_signal(signal.SIGTERM)
        assert "Traceback" not in ended(process).err
    terminal.until_nothing_is_left()


def test_serve_stops_in_order_when_nobody_reads_what_it_says(terminal):
    with terminal.start("serve", "--port", "0", "--no-model") as process:
        read_until(process, "Ready")
        for pipe in (process.stdout, process.stderr):
            pipe.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    terminal.until_nothing_is_left()


def test_serve_opens_to_others_only_with_a_key(terminal):
    refused = terminal.run("serve", "--host", "0.0.0.0", "--port", "0").complaint()
    assert "toolfleet keys add" in refused
    made = json.loads(terminal.run("keys", "add", "ci", "--tenant", "acme", "--rate", "50", "--json").out)
    assert made["key"].startswith("tf_")
    [listed] = json.loads(terminal.run("keys", "list", "--json").out)
    assert (listed["key_id"], listed["tenant"]) == (made["key_id"], "acme")
    with terminal.start("serve", "--host", "0.0.0.0", "--port", "0") as process:
        url = address(read_until(process, "Ready")).replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/v1/runs").status_code == 401
        assert httpx.get(f"{url}/v1/runs", headers={"authorization": f"Bearer {made['key']}"}).status_code == 200
        interrupted(process)
    assert "revoked" in terminal.run("keys", "revoke", made["key_id"][:6]).out
    assert "toolfleet keys list" in terminal.run("keys", "revoke", "nope").complaint()


def test_up_opens_the_api(terminal):
    with terminal.start(
        "up", "--cpu", "0", "--long", "0", "--orchestrators", "0", "--no-flower", "--api-port", "0"
    ) as process:
        url = address(read_until(process, "Ready"))
        asked = {"json": {"arguments": {"x": 4}}, "timeout": 20}
        assert httpx.post(f"{url}/v1/tools/square_root/call", **asked).status_code == 401
        answer = httpx.post(f"{url}/v1/tools/square_root/call", headers=local_key(terminal), **asked)
        assert answer.json()["content"] == "2.0"
        interrupted(process)
    terminal.until_nothing_is_left()
