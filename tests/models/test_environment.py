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
