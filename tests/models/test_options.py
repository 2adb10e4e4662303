"""What a model is asked with besides the conversation, under the names that it takes, or refused by its name."""

import pytest

from tests.fleet.strict_provider import StrictProvider
from toolfleet import Image, Media, UserMessage
from toolfleet.errors import InvalidSettings
from toolfleet.orchestrator.errors import ModelRefused
from toolfleet.orchestrator.models import FallbackModel, OpenAIChat, model_from_environment, rehearsal_model, reply
from toolfleet.orchestrator.models.anthropic_options import (
    anthropic_options,
    objection_to_options as objection_of_anthropics,
)
from toolfleet.orchestrator.models.openai_options import limit_name, openai_options

SHOWN = [UserMessage(content="?", images=(Image.of(Media(b"\x89PNG", "image/png")),))]


@pytest.mark.parametrize(
    ("host", "model", "name"),
    [
        ("api.openai.com", "gpt-4o", "max_completion_tokens"),
        ("eu.api.openai.com", "gpt-4.1", "max_completion_tokens"),
        ("mine.openai.azure.com", "my-deployment", "max_completion_tokens"),
        ("proxy.example.org", "openai/gpt-5.2", "max_completion_tokens"),
        ("proxy.example.org", "gpt-10", "max_completion_tokens"),
        ("127.0.0.1", "o3-mini", "max_completion_tokens"),
        ("127.0.0.1", "gpt-oss:20b", "max_tokens"),
        ("127.0.0.1", "llama-3", "max_tokens"),
        ("notopenai.com", "gpt-4o", "max_tokens"),
    ],
)
@pytest.mark.parametrize("given", ["max_tokens", "max_completion_tokens"])
def test_the_bound_of_a_reply_has_the_name_that_the_model_takes(host, model, name, given):
    assert openai_options({given: 5}, limit=limit_name(host, model), has_tools=False) == {name: 5}


def test_what_is_said_of_tools_goes_only_where_there_are_some():
    asked = {"tool_choice": "auto", "parallel_tool_calls": False, "seed": 1}
    assert openai_options(asked, limit="max_tokens", has_tools=False) == {"seed": 1}
    assert openai_options(asked, limit="max_tokens", has_tools=True) == asked
    assert anthropic_options({**asked, "seed": None}, has_tools=False) == {"seed": None}


def test_a_tool_that_must_be_called_has_the_name_on_the_wire():
    choice = {"type": "function", "function": {"name": "a.b"}}
    named = openai_options({"tool_choice": choice}, limit="max_tokens", has_tools=True)["tool_choice"]
    assert (
        named["function"]["name"] == anthropic_options({"tool_choice": choice}, has_tools=True)["tool_choice"]["name"]
    )
    assert named["function"]["name"].startswith("t_a_b")


def test_anthropics_own_words_stay_as_they_are():
    own = {
        "max_tokens": 9,
        "stop_sequences": ["x"],
        "thinking": {"type": "enabled", "budget_tokens": 2000},
        "metadata": {"user_id": "someone"},
        "tool_choice": {"type": "any"},
        "service_tier": "standard_only",
        "top_k": 5,
    }
    assert objection_of_anthropics(own) is None
    assert anthropic_options(own, has_tools=True) == own


async def test_two_names_of_one_bound_are_refused():
    async with StrictProvider() as provider:
        for model in (provider.openai(), provider.anthropic()):
            with pytest.raises(ModelRefused, match="two names of one bound"):
                await reply(model, [UserMessage(content="?")], extra_body={"max_tokens": 1, "max_completion_tokens": 1})
            await model.aclose()
        assert provider.requests == []


@pytest.mark.parametrize("own", ["max_tokens", "max_completion_tokens"])
async def test_a_bound_that_is_asked_for_takes_the_place_of_the_models_own_whatever_that_is_called(own):
    async with StrictProvider() as provider:
        for model in (provider.openai(extra_body={own: 7, "seed": 1}), provider.anthropic(extra_body={own: 7})):
            await reply(model, [UserMessage(content="?")], extra_body={"max_tokens": 5})
            await model.aclose()
    for request in provider.requests:
        assert [request[name] for name in ("max_tokens", "max_completion_tokens") if name in request] == [5]


async def test_of_several_models_one_that_sees_is_shown_an_image():
    async with StrictProvider() as provider:
        model = FallbackModel([provider.openai(), provider.openai(sees=True)])
        assert model.objection(SHOWN, {}) is None
        assert (await reply(model, SHOWN)).message.content == "done"
        assert len(provider.requests) == 1
        await model.aclose()
        blind = FallbackModel([provider.openai(), provider.anthropic(sees=False)])
        assert "is not known to see" in (blind.objection(SHOWN, {}) or "")
        with pytest.raises(ModelRefused, match="is not known to see"):
            await reply(blind, SHOWN)
        await blind.aclose()


@pytest.mark.parametrize(
    ("name", "sees"),
    [
        ("gpt-5.2", True),
        ("gpt-4o-mini", True),
        ("gpt-4.1", True),
        ("o3", True),
        ("o4-mini", True),
        ("openai/gpt-4o", True),
        ("gpt-12", True),
        ("o3-mini", False),
        ("o1-mini", False),
        ("gpt-3.5-turbo", False),
        ("gpt-4", False),
        ("gpt-oss:20b", False),
        ("llama-3", False),
    ],
)
def test_openais_own_models_are_known_to_see_by_their_names(name, sees):
    model = OpenAIChat(name, api_key="k", base_url="http://127.0.0.1:1/v1")
    assert (model.objection(SHOWN, {}) is None) == sees


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_the_environment_says_whether_a_model_sees(provider):
    variables = {f"{provider.upper()}_API_KEY": "k", "TOOLFLEET_MODEL": f"{provider}:mine"}
    unsaid = model_from_environment(variables)
    assert (unsaid.objection(SHOWN, {}) is None) == (provider == "anthropic")
    for said, sees in (("1", True), ("0", False), ("", provider == "anthropic")):
        model = model_from_environment({**variables, "TOOLFLEET_MODEL_SEES": said})
        assert (model.objection(SHOWN, {}) is None) == sees
    with pytest.raises(InvalidSettings, match="TOOLFLEET_MODEL_SEES is 1 or 0"):
        model_from_environment({**variables, "TOOLFLEET_MODEL_SEES": "maybe"})


def test_the_rehearsal_model_does_not_see():
    assert "toolfleet-rehearsal" in rehearsal_model().objection(SHOWN, {})
