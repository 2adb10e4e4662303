"""LiteLLM: as a client of its own, and as a proxy that the official client is pointed at."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.clients import environments
from tests.clients.every_client import EveryClient, asked
from tests.clients.served import Place
from tests.clients.started import ALONE, Client, Started, each_of, litellm, own_environment, python, started
from tests.truth.ledger import Ledger
from toolfleet.orchestrator.models import REHEARSAL_MODEL

READY_WITHIN_S = 90

FALSE_KEY = "with-a-false-key"


@each_of([Client("litellm", litellm, "litellm_client.py")])
class TestLiteLLM(EveryClient):
    """Its `acompletion`."""


@pytest.fixture(scope="module")
def through(place: Place, until_the_end: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> Started:
    """The official client, behind LiteLLM's proxy."""
    variables = until_the_end.enter_context(proxy(place, tmp_path_factory.mktemp("proxy")))
    client = Client("openai-through-litellm", python, "openai_chat.py")
    return until_the_end.enter_context(started(client, tmp_path_factory.mktemp("client"), variables))


class TestThroughLiteLLMsProxy(EveryClient):
    """The same through the proxy, whose own keys and models are its own business."""

    @pytest.fixture
    def client(self, through: Started) -> Started:
        return through

    def test_a_key_that_is_none_is_said_to_be_none(self, client: Started, ledger: Ledger) -> None:
        outcome = client.ask("complete", question=asked(ledger, "charge", "a"), model=FALSE_KEY)
        assert outcome.get("status") == 401, outcome
        assert ledger.effects == {}


@contextmanager
def proxy(place: Place, folder: Path) -> Iterator[Mapping[str, str]]:
    """LiteLLM's proxy before the fleet, and the variables of a client of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    key = f"sk-{secrets.token_hex(24)}"
    settings = folder / "proxy.yaml"
    settings.write_text(json.dumps(_settings(place, key)))  # JSON is YAML
    program = environments.litellm() / "bin" / "litellm"
    command = [str(program), "--config", str(settings), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, cwd=folder, env={**own_environment(), **ALONE}) as process:
        try:
            _until_ready(process, f"http://127.0.0.1:{port}/health/liveliness")
            yield {
                "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
                "OPENAI_API_KEY": key,
                "MODEL": REHEARSAL_MODEL,
            }
        finally:
            process.kill()  # asked to, it takes seconds


def _settings(place: Place, key: str) -> dict[str, object]:
    there = place.as_environment()
    served = {"api_base": there["OPENAI_BASE_URL"], "api_key": there["OPENAI_API_KEY"]}
    models = {
        REHEARSAL_MODEL: {"model": f"openai/{REHEARSAL_MODEL}", **served},
        "gpt-9": {"model": "openai/gpt-9", **served},
        FALSE_KEY: {"model": f"openai/{REHEARSAL_MODEL}", **served, "api_key": "tf_0000000000000000"},
    }
    return {
        "model_list": [{"model_name": name, "litellm_params": model} for name, model in models.items()],
        "general_settings": {"master_key": key},
    }


def _until_ready(process: subprocess.Popen[bytes], url: str) -> None:
    give_up = time.monotonic() + READY_WITHIN_S
    while True:
        with suppress(urllib.error.URLError), urllib.request.urlopen(url, timeout=5):
            return
        assert process.poll() is None, "the proxy has ended"
        assert time.monotonic() < give_up, "the proxy is not ready"
        time.sleep(0.1)
