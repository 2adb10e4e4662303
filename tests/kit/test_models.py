"""Models for tests: a function of the conversation, and a recording."""

import pytest

from toolfleet.messages import AssistantMessage, RequestedCall, UserMessage
from toolfleet.orchestrator.errors import ModelRefused
from toolfleet.orchestrator.models import reply
from toolfleet.orchestrator.models.recorded import FunctionModel, RecordedModel

QUESTION = [UserMessage(content="how many?")]
ASKS = AssistantMessage(tool_calls=(RequestedCall(id="a", name="count", arguments="{}"),))


async def test_a_function_model_says_what_the_function_makes_of_the_conversation():
    model = FunctionModel(lambda messages: AssistantMessage(content=f"{len(messages)} so far"))
    said = await reply(model, QUESTION)
    assert (said.message.content, said.finish_reason) == ("1 so far", "stop")


async def test_a_recorded_model_says_again_what_was_said_and_asks_nobody(tmp_path):
    path, asked = tmp_path / "replies.jsonl", []
    original = FunctionModel(lambda messages: asked.append(messages) or ASKS, name="original")
    recording = RecordedModel(path, original)
    first, second = await reply(recording, QUESTION), await reply(recording, QUESTION)
    assert first.message == second.message == ASKS
    replayed = RecordedModel(path)
    assert (await reply(replayed, QUESTION)).message == ASKS
    assert len(asked) == 1


async def test_a_recorded_model_refuses_what_it_has_never_heard(tmp_path):
    with pytest.raises(ModelRefused, match="no reply to this conversation"):
        await reply(RecordedModel(tmp_path / "none"), QUESTION)
