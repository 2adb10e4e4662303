"""Images that tools return: shown to models that see in their provider's form, told to the others. Row R2."""

import pytest

from toolfleet import Media
from toolfleet.messages import AssistantMessage, RequestedCall, ToolMessage, UserMessage
from toolfleet.orchestrator.models.anthropic_wire import AnthropicWire
from toolfleet.orchestrator.models.openai_wire import OpenAIWire

IMAGE = Media(b"\x89PNG", "image/png").part
CALLS = AssistantMessage(
    tool_calls=tuple(RequestedCall(id=str(n), name=name, arguments="{}") for n, name in ((1, "draw"), (2, "add")))
)
DRAWN = ToolMessage(tool_call_id="1", name="draw", content="[image/png, 4 bytes]", media=(IMAGE,))
ADDED = ToolMessage(tool_call_id="2", name="add", content="4")
CONVERSATION = [UserMessage(content="draw"), CALLS, DRAWN, ADDED, UserMessage(content="and now?")]


def sent(wire, messages=CONVERSATION):
    return wire.request("m", messages, [], stream=False, provider="host")["messages"]


def test_R2_chat_completions_gets_images_behind_the_last_result_of_their_batch():
    roles = [message["role"] for message in sent(OpenAIWire(sees=True))]
    assert roles == ["user", "assistant", "tool", "tool", "user", "user"]
    _, _, drawn, _, shown, _ = sent(OpenAIWire(sees=True))
    assert drawn["content"] == "[image/png, 4 bytes]"
    assert shown["content"] == [
        {"type": "text", "text": "Returned by draw (call 1):"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE.data}"}},
    ]


def test_R2_an_image_at_the_end_of_the_conversation_is_shown_too():
    assert sent(OpenAIWire(sees=True), CONVERSATION[:4])[-1]["content"][1]["type"] == "image_url"


def test_R2_messages_has_images_inside_the_result():
    [drawn, added, now] = sent(AnthropicWire(max_tokens=10))[2]["content"]
    assert drawn["content"] == [
        {"type": "text", "text": "[image/png, 4 bytes]"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE.data}},
    ]
    assert (added["content"], now["text"]) == ("4", "and now?")


@pytest.mark.parametrize("wire", [OpenAIWire(), AnthropicWire(max_tokens=10, sees=False)])
def test_R2_a_model_that_does_not_see_reads_what_it_was(wire):
    request = str(sent(wire))
    assert "[image/png, 4 bytes]" in request
    assert IMAGE.data not in request


@pytest.mark.parametrize(
    "part",
    [
        IMAGE.model_copy(update={"media_type": "image/tiff"}),
        IMAGE.model_copy(update={"data": "", "artifact": "a" * 64}),
        IMAGE.model_copy(update={"size_bytes": 10**8}),
    ],
    ids=["of_a_type_that_no_provider_takes", "not_at_hand", "too_large"],
)
@pytest.mark.parametrize("wire", [OpenAIWire(sees=True), AnthropicWire(max_tokens=10)])
def test_R2_what_cannot_be_shown_is_told(wire, part):
    message = DRAWN.model_copy(update={"media": (part,)})
    assert "image_url" not in str(sent(wire, [UserMessage(content="draw"), CALLS, message, ADDED]))
    assert "base64" not in str(sent(wire, [UserMessage(content="draw"), CALLS, message, ADDED]))
