"""Whatever the OpenAPI document permits is taken, what it forbids is refused, and all is answered as it says.

Schemathesis makes requests up: `EXAMPLES` for each operation, besides those at the edges of every schema, the same each
time. It does so in each test: its own decorator makes all requests as tests are collected, in each of pytest's
processes, for 8 s and 500 MB. Odd numbers, which no JSON Schema speaks of, are made up here.
"""

import asyncio
import threading
import time

import httpx
import pytest
import requests
from fastapi.routing import APIRoute, iter_route_contexts
from hypothesis import HealthCheck, settings

from tests.imported_when_used import ImportedWhenUsed
from toolfleet.orchestrator.doors.http.app import create_app
from toolfleet.orchestrator.doors.http.listening import listening_socket, server_for
from toolfleet.orchestrator.doors.http.options import ApiOptions
from toolfleet.orchestrator.models import rehearsal_model
from toolfleet.settings import Settings

schemathesis = ImportedWhenUsed("schemathesis")
builder = ImportedWhenUsed("schemathesis.generation.hypothesis.builder")
checks = ImportedWhenUsed("schemathesis.checks")
of_openapi = ImportedWhenUsed("schemathesis.specs.openapi.checks")

EXAMPLES = 4
EACH = settings(
    max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)

APP = create_app(Settings())
OPERATIONS = [
    (method, route.path_format)
    for route in iter_route_contexts(APP.routes)
    if isinstance(route.original_route, APIRoute) and route.include_in_schema
    for method in sorted(route.methods)
]

NOT_IN_THE_DOCUMENT = (
    *("unknown-tool", "unknown-interceptor", "unknown-price", "unsupported-content"),
    *("unsupported-parameter", "invalid-conversation", "invalid-input", "invalid-limit"),
    *("invalid-tool", "not-announced", "invalid-webhook", "unknown-webhook", "invalid-schedule"),
)
"""Refusals for what the fleet or its model does not have, for a model without a price, of a limit that a tool has not
or that nobody has changed, and of messages that do not follow one another: no document can say that. Nor that an image
is one of its link and its bytes, and what of base64 is whole; nor which names tools of workers over HTTPS may have, and
that these are to announce themselves first; nor where the host of a webhook's URL is, and which endpoints there are;
nor which texts are cron expressions and time zones, and how often is too often."""

ODD_NUMBERS = (
    "1e400",
    "-1e400",
    "NaN",
    "Infinity",
    "-Infinity",
    "9" * 400,
    "-" + "9" * 400,
    "18446744073709551616",
    "9007199254740993",
    "1e-400",
    "-0",
    "-0.0",
    "5e-324",
    "1.7976931348623157e308",
    "0x10",
    "1_000",
    "01",
    "1.",
)


JSON = {"content-type": "application/json"}


def no_mistake_of_the_server(ctx, response, case):
    """A server error is one that the operation speaks of: a model that failed, Redis that is away."""
    if response.status_code == 500 or str(response.status_code) not in case.operation.definition.raw["responses"]:
        checks.not_a_server_error(ctx, response, case)


def valid_requests_are_taken(ctx, response, case):
    unsaid = (
        *(f'problem:{code}"' for code in NOT_IN_THE_DOCUMENT),
        "two tools of one name",
        "/images/",
        str(2**63 - 1),
    )  # the last, as those who make requests up round it
    if not any(words in response.text for words in unsaid):
        of_openapi.positive_data_acceptance(ctx, response, case)


def invalid_requests_are_refused(ctx, response, case):
    # This server is an open one: test_keys.py is about keys.
    if getattr(case.meta.phase.data, "parameter", None) != "Authorization":
        of_openapi.negative_data_rejection(ctx, response, case)


@pytest.fixture(scope="module")
def checked():
    return [
        no_mistake_of_the_server,
        valid_requests_are_taken,
        invalid_requests_are_refused,
        of_openapi.status_code_conformance,
        of_openapi.content_type_conformance,
        of_openapi.response_headers_conformance,
        of_openapi.response_schema_conformance,
        of_openapi.unsupported_method,
    ]


@pytest.fixture(scope="module")
def document():
    return APP.openapi()


@pytest.fixture(scope="module")
def schema(document):
    schema = schemathesis.openapi.from_dict(document)
    schema.config.generation.update(deterministic=True)
    return schema


@pytest.fixture(scope="module")
def url(http_fleet):
    """An API in a thread of its own, with a model and workers."""
    server = server_for(create_app(http_fleet.settings, rehearsal_model(), options=ApiOptions(is_insecure=True)))
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


@pytest.fixture(scope="module")
def session():
    """One for all requests: each would make one, connect, and look for proxies in all variables."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda said: said)
def test_requests_are_answered_as_documented(method, path, schema, url, checked, session):
    def ask(case):
        case.call_and_validate(base_url=url, session=session, timeout=20, checks=checked)

    config = builder.HypothesisTestConfig(schema.config, list(builder.HypothesisTestMode), explicit_settings=EACH)
    builder.create_test(operation=schema[path][method], test_func=ask, config=config)()


@pytest.mark.parametrize("number", ODD_NUMBERS, ids=lambda number: number[:12])
def test_an_odd_number_is_taken_or_refused_wherever_one_may_stand(url, number):
    fields = ("timeout_s", "patience_s", "turn_timeout_s", "keep_s", "max_turns")
    bodies = [f'{{"question": "hello", "{field}": {number}}}' for field in fields]
    bodies += [f'{{"question": "hello", "limits": {{"{field}": {number}}}}}' for field in ("calls", "cost", "tokens")]
    bodies += [f'{{"question": "hello", "{field}": {{"x": {number}}}}}' for field in ("context", "state")]
    with httpx.Client(base_url=url, timeout=20) as client:
        answers = [client.post("/v1/runs", content=f"{body}", headers=JSON) for body in bodies]
        asked = {"content": f'{{"arguments": {{"value": {number}}}, "patience_s": 10}}', "headers": JSON}
        answers.append(client.post("/v1/tools/nested/call", **asked))
        answers += [client.get("/v1/runs", params={field: number}) for field in ("limit", "before")]
        answers.append(client.get("/v1/handles/none", params={"wait": number}))
    assert {answer.status_code for answer in answers} <= {200, 202, 400, 404, 422}, [
        (each.status_code, each.request.url, each.request.content[:200], each.text[:200]) for each in answers
    ]


def test_every_operation_is_asked(document):
    documented = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
    assert sorted(OPERATIONS) == sorted(documented)
    assert len(documented) > 20


def test_the_document_is_openapi_3_1_with_an_example_for_everything_that_is_sent(document):
    assert document["openapi"].startswith("3.1")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            body = operation.get("requestBody")
            if body:
                [media] = body["content"].values()
                assert "example" in str(media) or "example" in str(_resolved(document, media["schema"])), (method, path)
            for status, response in operation["responses"].items():
                if int(status) >= 400 and "content" in response:
                    assert list(response["content"]) == ["application/problem+json"], (method, path, status)


def _resolved(document, schema):
    names = [part["$ref"].rsplit("/", 1)[1] for part in (schema, *schema.get("anyOf", ())) if "$ref" in part]
    return [document["components"]["schemas"][name] for name in names]
