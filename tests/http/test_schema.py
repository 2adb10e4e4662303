"""Whatever the OpenAPI document permits, and much that it does not: never a 500, and errors as promised."""

import asyncio
import re
import threading
import time

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from toolfleet.orchestrator.doors.http.app import create_app
from toolfleet.orchestrator.doors.http.listening import listening_socket, server_for
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.settings import Settings, new_secret

DOCUMENT = create_app(Settings()).openapi()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
SCHEMA.config.generation.update(deterministic=True)


@pytest.fixture(scope="module")
def url(redis_server):
    """An API in a thread of its own, with neither model nor workers: what is tested here is the door."""
    api_settings = Settings(redis_url=redis_server.url, namespace="schema-test", secret=new_secret())
    server = server_for(create_app(api_settings, options=ApiOptions(is_insecure=True)))
    bound = listening_socket("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: asyncio.run(server._serve(sockets=[bound])))
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    bound.close()


def _asked_with_anything(method, path):
    @SCHEMA.include(method=method, path=path).parametrize()
    @settings(max_examples=12, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def ask(case, url):
        if isinstance(case.body, dict):
            case.body.pop("stream", None)  # of a run that nobody works on: it would not end
        case.call_and_validate(
            base_url=url,
            timeout=20,
            checks=[not_a_server_error, content_type_conformance, response_schema_conformance],
        )

    return ask


# A function for each operation: Schemathesis gives all tests of one function the same id, and pytest-xdist runs one of
# those that have the same.
for _path, _methods in DOCUMENT["paths"].items():
    for _method in _methods:
        _at = f"{_method}_{re.sub('[^a-z0-9]+', '_', _path.lower()).strip('_')}"
        globals()[f"test_no_request_makes_the_server_fail_at_{_at}"] = _asked_with_anything(_method.upper(), _path)


def test_every_operation_is_asked():
    asked = [name for name in globals() if name.startswith("test_no_request_makes_the_server_fail_at_")]
    assert len(asked) == sum(len(methods) for methods in DOCUMENT["paths"].values()) > 20


def test_the_document_is_openapi_3_1_with_an_example_for_everything_that_is_sent():
    assert DOCUMENT["openapi"].startswith("3.1")
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            body = operation.get("requestBody")
            if body:
                [media] = body["content"].values()
                assert "example" in str(media) or "example" in str(_resolved(media["schema"])), (method, path)
            for status, response in operation["responses"].items():
                if int(status) >= 400 and "content" in response:
                    assert list(response["content"]) == ["application/problem+json"], (method, path, status)


def _resolved(schema):
    names = [part["$ref"].rsplit("/", 1)[1] for part in (schema, *schema.get("anyOf", ())) if "$ref" in part]
    return [DOCUMENT["components"]["schemas"][name] for name in names]
