"""Images that users show reach models that see, in their provider's form, and are refused by name by the others."""

import base64
import json

import openai
import pytest

from tests.http.strict_door import strict_door
from toolfleet import Image, Media, UserMessage
from toolfleet.messages import is_same_conversation
from toolfleet.orchestrator.errors import NotForThisModel
from toolfleet.orchestrator.models import REHEARSAL_MODEL

PNG = b"\x89PNG\r\n\x1a\n"
SMALL = base64.b64encode(PNG).decode()
LARGE = base64.b64encode(PNG * 20_000).decode()
LINK = "https://example.org/cat.png?signature=secret"
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def url(data):
    return f"data:image/png;base64,{data}"


def asked(*urls, **more):
    shown = [{"type": "image_url", "image_url": {"url": each, **more}} for each in urls]
    content = [{"type": "text", "text": "What is "}, *shown, {"type": "text", "text": "this?"}]
    return [{"role": "user", "content": content}]


@pytest.fixture
async def door(http_fleet):
    async with strict_door(http_fleet.settings, sees=True) as running:
        yield running


@STREAMED
@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "kept_as_an_artifact"])
async def test_an_image_reaches_a_model_that_sees_where_it_stood_in_the_text(door, stream, data):
    said = await door.ask(stream=stream, messages=asked(url(data), detail="low"))
    assert door.sent["messages"] == asked(url(data), detail="low")
    run = (await door.api.client.get(f"/v1/runs/{said.run_id}")).json()
    assert run["messages"][0]["content"] == "What is this?"
    # However large it is, the run's record stays small.
    assert len(json.dumps(run)) < 5_000


async def test_a_link_is_passed_on_as_it_is(door):
    await door.ask(messages=asked(LINK))
    assert door.sent["messages"] == asked(LINK)


async def test_anthropics_models_get_images_in_their_form(http_fleet):
    async with strict_door(http_fleet.settings, "anthropic") as door:
        await door.ask(messages=asked(url(LARGE), LINK, detail="auto"))
        assert door.sent["messages"][0]["content"] == [
            {"type": "text", "text": "What is "},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": LARGE}},
            {"type": "image", "source": {"type": "url", "url": LINK}},
            {"type": "text", "text": "this?"},
        ]
        with pytest.raises(openai.BadRequestError, match="without a detail"):
            await door.ask(messages=asked(LINK, detail="high"))


async def test_a_model_that_does_not_see_refuses_by_name(http_fleet, api):
    async with strict_door(http_fleet.settings) as door:
        with pytest.raises(openai.BadRequestError, match="the model strict is not known to see"):
            await door.ask(messages=asked(url(SMALL)))
        assert not door.provider.requests
    body = {"messages": [{"role": "user", "content": "?", "images": [{"url": LINK}]}]}
    refused = await api.client.post("/v1/runs", json=body)
    assert (refused.status_code, "is not known to see" in refused.json()["detail"]) == (400, True)
    again = await api.client.post(f"/v1/runs/{await ended(api)}/messages", json=body)
    assert (again.status_code, "is not known to see" in again.json()["detail"]) == (400, True)


async def ended(api):
    run_id = await api.begin("Hello.")
    await api.ended(run_id)
    return run_id


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [
        ("http://example.org/cat.png", "https:// or data:"),
        ("file:///etc/passwd", "https:// or data:"),
        ("data:image/png,plain", "data:image/png;base64"),
        ("data:image/png;base64,*", "base64"),
        ("data:image/png;base64,", "empty"),
        ("data:image/svg+xml;base64," + SMALL, "image/svg"),
        ("data:text/html;base64," + SMALL, "text/html"),
        (url(base64.b64encode(bytes(3_750_001)).decode()), "413"),
    ],
)
async def test_what_is_no_image_that_models_take_is_refused(door, shown, wrong):
    with pytest.raises(openai.APIStatusError) as refused:
        await door.ask(messages=asked(shown))
    assert 400 <= refused.value.status_code < 500
    assert wrong in f"{refused.value.status_code} {refused.value.message}"
    assert not door.provider.requests


async def test_an_image_that_is_larger_than_models_take_is_refused_before_the_run_begins(door):
    image = Image.of(Media(PNG * 500_000, "image/png"))
    with pytest.raises(NotForThisModel, match="4000000 bytes"):
        await door.api.door.orchestrator.run([UserMessage(content="?", images=(image,))])


async def test_a_run_over_http_shows_images_and_goes_on_with_them(door):
    images = [{"url": url(LARGE), "at": 5}]
    body = {"messages": [{"role": "user", "content": "Look: what?", "images": images}]}
    begun = (await door.api.client.post("/v1/runs", json=body)).json()["run_id"]
    run = await door.api.ended(begun)
    assert (run["state"], run["answer"]) == ("done", "done")
    kinds = [part["type"] for part in door.sent["messages"][0]["content"]]
    assert kinds == ["text", "image_url", "text"]
    more = {"messages": [{"role": "user", "content": "And this?", "images": [{"url": url(LARGE)}]}]}
    assert (await door.api.client.post(f"/v1/runs/{begun}/messages", json=more)).status_code == 202
    await door.api.ended(begun)
    shown = [part for message in door.sent["messages"] if message["role"] == "user" for part in message["content"]]
    assert [part["image_url"]["url"] for part in shown if part["type"] == "image_url"] == [url(LARGE)] * 2


async def test_a_later_run_gets_the_images_of_an_earlier_one_of_its_tenant_and_of_no_other(door):
    fleet = door.api.door.orchestrator
    image = Image.of(Media(PNG * 20_000, "image/png"))
    first = await fleet.run([UserMessage(content="?", images=(image,))], tools=[], tenant="a")
    [kept] = first.messages[0].images
    assert (kept.data, bool(kept.artifact)) == ("", True)
    assert is_same_conversation(first.messages[:1], [UserMessage(content="?", images=(image,))])
    other = Image.of(Media(PNG * 20_001, "image/png"))
    assert not is_same_conversation(first.messages[:1], [UserMessage(content="?", images=(other,))])
    more = [*first.messages, UserMessage(content="And now?")]
    await fleet.run(more, tools=[], tenant="a")
    assert door.sent["messages"][0]["content"][0]["image_url"]["url"] == url(LARGE)
    await fleet.run(more, tools=[], tenant="b")
    assert door.sent["messages"][0]["content"][0] == {
        "type": "text",
        "text": "[image/png, 160000 bytes, kept no longer]",
    }


async def test_a_stranger_cannot_ask_for_an_image_of_another_run_by_its_hash(door):
    fleet = door.api.door.orchestrator
    # Of its own: the door's tenant was shown the others.
    image = Image.of(Media(PNG * 20_002, "image/png"))
    first = await fleet.run([UserMessage(content="?", images=(image,))], tools=[], tenant="other")
    [kept] = first.messages[0].images
    stolen = {"artifact": kept.artifact, "media_type": "image/png", "size_bytes": 8}
    body = {"messages": [{"role": "user", "content": "?", "images": [stolen]}]}
    begun = await door.api.client.post("/v1/runs", json=body)
    await door.api.ended(begun.json()["run_id"])
    assert image.data not in json.dumps(door.sent)
    assert "kept no longer" in json.dumps(door.sent)


@pytest.mark.parametrize(
    ("media_type", "size_bytes", "wrong"),
    [("application/pdf", 200_000, "application/pdf"), ("image/png", 3_750_001, "3750001 bytes")],
)
async def test_what_is_kept_and_is_no_image_that_models_take_is_refused_whatever_it_is_called(
    door, media_type, size_bytes, wrong
):
    arguments = {"size_bytes": size_bytes, "media_type": media_type}
    called = await door.api.client.post("/v1/tools/exported/call", json={"arguments": arguments})
    [part] = called.json()["media"]
    named = {"artifact": part["artifact"], "media_type": "image/png", "size_bytes": 8}
    body = {"messages": [{"role": "user", "content": "?", "images": [named]}]}
    begun = await door.api.client.post("/v1/runs", json=body)
    more = await door.api.client.post(f"/v1/runs/{await ended(door.api)}/messages", json=body)
    for refused in (begun, more):
        assert (refused.status_code, wrong in refused.text) == (400, True)


async def test_nothing_of_an_image_stands_in_logs_or_reprs():
    message = UserMessage(content="?", images=(Image(url=LINK), Image.of(Media(PNG, "image/png"))))
    assert "secret" not in repr(message)
    assert SMALL not in repr(message)


async def test_the_rehearsal_model_says_that_it_takes_no_images(api):
    async with openai.AsyncOpenAI(base_url=f"{api.url}/v1", api_key=api.local_key.read(), max_retries=0) as client:
        with pytest.raises(openai.BadRequestError, match=REHEARSAL_MODEL):
            await client.chat.completions.create(model=REHEARSAL_MODEL, messages=asked(url(SMALL)))
