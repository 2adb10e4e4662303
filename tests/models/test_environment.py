import pytest

from toolfleet.errors import InvalidSettings
from toolfleet.orchestrator.models import AnthropicMessages, OpenAIChat, model_from_environment


def test_without_a_variable_there_is_no_model():
    assert model_from_environment({}) is None
    assert model_from_environment({"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""}) is None


def test_a_key_chooses_its_provider():
    assert isinstance(model_from_environment({"OPENAI_API_KEY": "k"}), OpenAIChat)
    assert isinstance(model_from_environment({"ANTHROPIC_API_KEY": "k"}), AnthropicMessages)


def test_the_model_variable_names_the_model():
    assert model_from_environment({"ANTHROPIC_API_KEY": "k", "ANTHROPIC_MODEL": "claude-x"}).name == "claude-x"


def test_a_server_of_ones_own_needs_no_key_but_the_models_name():
    own = {"OPENAI_BASE_URL": "http://localhost:11434/v1"}
    assert model_from_environment({**own, "OPENAI_MODEL": "qwen"}).name == "qwen"
    with pytest.raises(InvalidSettings, match="OPENAI_MODEL"):
        model_from_environment(own)


def test_the_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_MODEL", "gpt-x")
    assert model_from_environment().name == "gpt-x"


BOTH = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}


@pytest.mark.parametrize(
    ("named", "kind", "name"),
    [
        ("gpt-x", OpenAIChat, "gpt-x"),
        ("o3", OpenAIChat, "o3"),
        ("claude-x", AnthropicMessages, "claude-x"),
        ("openai:banana", OpenAIChat, "banana"),
        ("anthropic:banana", AnthropicMessages, "banana"),
        ("openai:ft:gpt-x:me", OpenAIChat, "ft:gpt-x:me"),
    ],
)
def test_a_name_chooses_the_provider_and_the_model(named, kind, name):
    model = model_from_environment(BOTH | {"OPENAI_MODEL": "another", "TOOLFLEET_MODEL": "claude-y"}, named=named)
    assert (type(model), model.name) == (kind, name)


def test_a_variable_names_the_model_for_every_command():
    assert model_from_environment(BOTH | {"TOOLFLEET_MODEL": "claude-x"}).name == "claude-x"
    assert model_from_environment(BOTH | {"TOOLFLEET_MODEL": ""}).name != "claude-x"


def test_the_rehearsal_can_be_asked_for_where_there_are_keys():
    assert model_from_environment(BOTH, named="rehearsal") is None
    assert model_from_environment(BOTH, named="toolfleet-rehearsal") is None


@pytest.mark.parametrize("name", ["qwen", "qwen3:8b", "claude-by-proxy", "gpt-oss:20b"])
def test_a_server_of_ones_own_may_call_its_models_what_it_likes(name):
    own = {"OPENAI_BASE_URL": "http://localhost:11434/v1"}
    model = model_from_environment(own, named=name)
    assert (type(model), model.name) == (OpenAIChat, name)


@pytest.mark.parametrize(
    ("named", "environ", "complaint"),
    [
        ("gpt-x", {}, "gpt-x needs OPENAI_API_KEY"),
        ("gpt-x", {"ANTHROPIC_API_KEY": "k"}, "gpt-x needs OPENAI_API_KEY"),
        ("claude-x", {"OPENAI_API_KEY": "k"}, "claude-x needs ANTHROPIC_API_KEY"),
        ("anthropic:banana", {}, "banana needs ANTHROPIC_API_KEY"),
        ("banana", BOTH, "write openai:banana or anthropic:banana"),
        ("mistral:large", BOTH, "write openai:mistral:large"),
        ("openai:", BOTH, "names no model"),
        ("", BOTH, "names no model"),
        ("gpt 5", {"OPENAI_BASE_URL": "http://localhost:1/v1"}, "names no model"),
    ],
)
def test_a_name_that_cannot_be_asked_is_refused_with_the_remedy(named, environ, complaint):
    with pytest.raises(InvalidSettings, match=complaint):
        model_from_environment(environ, named=named)
